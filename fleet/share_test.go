package fleet

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

func after(d time.Duration) clock.Instant { return clock.Instant(0).Add(d) }

func TestPeerSharesAddUpAndFade(t *testing.T) {
	var m Member
	one, two := NewPeer(core.Replica{Name: "one"}), NewPeer(core.Replica{Name: "two"})
	one.SetMeanRequest(time.Second)
	m.HearShare(two, Share{QueuedTokens: 100, QueuedSeqs: 1, InFlight: 3})
	m.HearShare(one, Share{QueuedTokens: 10, Decoding: 2, InFlight: 2})
	m.HearShare(one, Share{QueuedTokens: 20, Decoding: 4, InFlight: 4}) // in place of the former
	one.Heard(after(0))
	two.Heard(after(0))
	share := m.PeerShare(after(silentAfter))
	var load cost.Load
	share.AddTo(&load)
	if load.QueuedTokens != 120 || load.QueuedSeqs != 1 || load.Decoding != 4 || share.InFlight != 7 {
		t.Errorf("shares add up to %+v, %+v", share, load)
	}
	two.Heard(after(10 * time.Second))
	if share := m.PeerShare(after(silentAfter + time.Second)); share.QueuedTokens != 110 || share.InFlight != 5 {
		t.Errorf("of a replica that fell silent %+v is left after a mean request time, want half", share)
	}
	if share := m.PeerShare(after(silentAfter + 7*time.Second)); share.InFlight != 3 {
		t.Errorf("%+v counts, want what the replica that can be heard has", share)
	}
	m.HearShare(two, Share{})
	m.HearShare(one, Share{})
	if share := m.PeerShare(after(0)); share != (Share{}) {
		t.Errorf("%+v is left of replicas with nothing in flight", share)
	}
}

func someShare(t *rapid.T, name string) Share {
	number := func(field string, most float64) float64 {
		return math.Round(rapid.Float64Range(0, most).Draw(t, name+field))
	}
	return Share{
		QueuedTokens: number("queued", maxShareTokens), QueuedPairs: math.Round(rapid.Float64Range(0, 1<<52).Draw(t, name+"pairs")),
		QueuedSeqs: int(number("seqs", maxShareSeqs)), Decoding: number("decoding", maxShareSeqs), ContextTokens: number("context", maxShareTokens),
		RemainingTokens: number("remaining", maxShareTokens), UniqueTokens: number("unique", maxShareTokens), InFlight: int(number("in flight", maxShareSeqs)),
	}
}

// What is told arrives, whatever the numbers; and bytes of any kind do no harm.
func TestSharesOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := someShare(t, "")
		if got, ok := decodeShare(encodeShare(&s)); !ok || got != s {
			t.Fatalf("%+v arrives as %+v, %v", s, got, ok)
		}
		decodeShare(rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "bytes"))
	})
	s := Share{QueuedTokens: 12_345, QueuedPairs: 1e8, QueuedSeqs: 3, Decoding: 40, ContextTokens: 200_000, RemainingTokens: 9000, UniqueTokens: 180_000, InFlight: 43}
	if n := len(encodeShare(&s)); n > 32 {
		t.Errorf("a usual share takes %d bytes", n)
	}
	s.Decoding = math.Inf(1)
	if got, ok := decodeShare(encodeShare(&s)); !ok || got.Decoding != maxShareSeqs {
		t.Errorf("numbers beyond all bounds arrive as %+v, %v", got, ok)
	}
}

// Whatever comes and goes, in whatever order members and pages appear, a member
// of the view has the sum of what is on the peers' pages at that time.
func TestSharesFollowThePages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := sharePages{said: make(map[kv.Target]map[*Peer]Share), peers: make(map[core.Replica]*pagePeer)}
		targets := []kv.Target{{Worker: 1, Rank: kv.NoRank}, {Worker: 2, Rank: 0}, {Worker: 2, Rank: 1}}
		writers := []core.Replica{{Name: "a"}, {Name: "b"}, {Name: "b", Inc: 1}}
		type place struct {
			w core.Replica
			t kv.Target
		}
		pages := make(map[place]Share)
		var view []*Member
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w, tg := rapid.SampledFrom(writers).Draw(t, "writer"), rapid.SampledFrom(targets).Draw(t, "target")
			switch rapid.SampledFrom([]string{"put", "put", "delete", "view", "foreign", "mean"}).Draw(t, "what") {
			case "put":
				s := someShare(t, "put ")
				pages[place{w, tg}] = s
				p.hear(0, w, core.TargetKey(tg), &crdt.PageItem{Value: encodeShare(&s)})
			case "delete":
				delete(pages, place{w, tg})
				p.hear(0, w, core.TargetKey(tg), nil)
			case "view":
				var next []*Member
				for _, tg := range targets {
					switch rapid.SampledFrom([]string{"none", "new", "old"}).Draw(t, "member") {
					case "new":
						next = append(next, &Member{Target: tg})
					case "old":
						for _, m := range view {
							if m.Target == tg {
								next = append(next, m)
							}
						}
					}
				}
				view = next
				p.show(view)
			case "foreign":
				p.hear(0, w, rapid.StringN(0, 12, 12).Draw(t, "key"), &crdt.PageItem{Value: []byte{1}})
			case "mean":
				p.hear(0, w, meanKey, &crdt.PageItem{Value: []byte{0, 0, 0, 1, 0, 0, 0, 0}})
			}
			for _, m := range view {
				want, inFlight := 0.0, 0
				for at, s := range pages {
					if at.t == m.Target {
						want, inFlight = want+s.QueuedTokens, inFlight+s.InFlight
					}
				}
				if got := m.PeerShare(0); got.QueuedTokens != want || got.InFlight != inFlight {
					t.Fatalf("%v has %+v of peers, want %v tokens in %d requests", m.Target, got, want, inFlight)
				}
			}
		}
		for _, w := range writers {
			for _, tg := range targets {
				p.hear(0, w, core.TargetKey(tg), nil)
			}
		}
		if len(p.said) != 0 {
			t.Fatalf("%v is left of pages that went", p.said)
		}
	})
}
