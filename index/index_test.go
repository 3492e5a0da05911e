package index_test

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

type block struct {
	group uint16
	key   kv.Key
}

// naive is what an Index should be: maps and plain definitions.
type naive struct {
	rules   map[index.Slot]index.TierRule // open slots
	groups  map[index.Slot][]index.Group
	tiers   map[index.Slot]map[block]kv.TierMask
	tickets map[index.Ticket]*naiveTicket
}

type naiveTicket struct {
	slot     index.Slot
	keys     map[kv.Key]bool
	deadline clock.Instant
}

func (n *naive) promised(s index.Slot, k kv.Key) bool {
	for _, t := range n.tickets {
		if t.slot == s && t.keys[k] {
			return true
		}
	}
	return false
}

// run is the definition of a Run that all groups can use.
func (n *naive) run(s index.Slot, keys []kv.Key, hope bool) index.Run {
	r := n.mainRun(s, keys, hope)
	readable := kv.TierMask(1<<kv.NumTiers - 1)
	if n.rules[s] == index.DeviceThenHost {
		readable = kv.HBM.Mask() | kv.CPU.Mask()
	}
	usable := func(l int) bool {
		for _, g := range n.groups[s] {
			for i := max(0, l-g.WindowBlocks); i < l; i++ {
				if n.tiers[s][block{g.ID, keys[i]}]&readable == 0 && !(hope && n.promised(s, keys[i])) {
					return false
				}
			}
		}
		return true
	}
	l := r.Len()
	for !usable(l) {
		l--
	}
	if r.HBM, r.Lower = min(r.HBM, l), max(0, l-r.HBM); r.Lower == 0 {
		r.Tier = kv.HBM
	}
	return r
}

// mainRun is the definition of a Run, one tier at a time.
func (n *naive) mainRun(s index.Slot, keys []kv.Key, hope bool) index.Run {
	on := func(i int, t kv.Tier) bool {
		return n.tiers[s][block{0, keys[i]}].Has(t) || hope && t == kv.HBM && n.promised(s, keys[i])
	}
	var r index.Run
	for r.HBM < len(keys) && on(r.HBM, kv.HBM) {
		r.HBM++
	}
	for t := kv.CPU; t < kv.NumTiers; t++ {
		if t != kv.CPU && n.rules[s] == index.DeviceThenHost {
			break
		}
		i := r.HBM
		for i < len(keys) && on(i, t) {
			i++
		}
		if i-r.HBM > r.Lower {
			r.Lower, r.Tier = i-r.HBM, t
		}
	}
	return r
}

func (n *naive) match(keys []kv.Key) []index.Hit {
	var hits []index.Hit
	for _, s := range slices.Sorted(maps.Keys(n.rules)) {
		h := index.Hit{Slot: s, Run: n.run(s, keys, false), Promised: n.run(s, keys, true)}
		if h.Promised.Len() > 0 {
			hits = append(hits, h)
		}
	}
	return hits
}

func sorted(hits []index.Hit) []index.Hit {
	slices.SortFunc(hits, func(a, b index.Hit) int { return cmp.Compare(a.Slot, b.Slot) })
	return hits
}

func (n *naive) drop(s index.Slot) {
	delete(n.rules, s)
	delete(n.groups, s)
	delete(n.tiers, s)
	maps.DeleteFunc(n.tickets, func(_ index.Ticket, t *naiveTicket) bool { return t.slot == s })
}

func chain(n int) []kv.Key {
	keys := make([]kv.Key, n)
	k := kv.Root("m", "", "")
	for i := range keys {
		k = kv.Next(k, kv.Content(i))
		keys[i] = k
	}
	return keys
}

func TestIndexAgainstNaive(t *testing.T) {
	keys := chain(10)
	rapid.Check(t, func(t *rapid.T) {
		x := index.New(index.Config{Seed: rapid.Uint64().Draw(t, "seed")})
		n := &naive{
			rules:   map[index.Slot]index.TierRule{},
			groups:  map[index.Slot][]index.Group{},
			tiers:   map[index.Slot]map[block]kv.TierMask{},
			tickets: map[index.Ticket]*naiveTicket{},
		}
		now := clock.Instant(0)
		anySlot := rapid.Uint32Range(0, 6)
		span := func(t *rapid.T) (lo, hi int) {
			lo = rapid.IntRange(0, len(keys)-1).Draw(t, "lo")
			return lo, rapid.IntRange(lo+1, len(keys)).Draw(t, "hi")
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				if len(n.rules) == 7 {
					return
				}
				rule := rapid.SampledFrom([]index.TierRule{index.HBMThenOneTier, index.DeviceThenHost}).Draw(t, "rule")
				s := x.Open(rule)
				if _, taken := n.rules[s]; taken {
					t.Fatalf("slot %d was given out twice", s)
				}
				n.rules[s], n.tiers[s] = rule, map[block]kv.TierMask{}
			},
			"drop": func(t *rapid.T) {
				s := index.Slot(anySlot.Draw(t, "slot"))
				x.Drop(s)
				n.drop(s)
			},
			"groups": func(t *rapid.T) {
				s := index.Slot(anySlot.Draw(t, "slot"))
				var groups []index.Group
				for id := range rapid.Uint16Range(0, 2).Draw(t, "groups") {
					groups = append(groups, index.Group{ID: 1 + id, WindowBlocks: rapid.IntRange(1, 4).Draw(t, "window")})
				}
				if err := x.SetGroups(s, groups); err != nil {
					t.Fatal(err)
				}
				if _, open := n.rules[s]; open {
					n.groups[s] = groups
				}
			},
			"sweep": func(t *rapid.T) {
				left := x.Sweep(rapid.SampledFrom([]int{1, 500, 1500, 1 << 20}).Draw(t, "budget"))
				if st := x.Stats(); st.DrainingSlots != left || st.OpenSlots != len(n.rules) {
					t.Fatalf("%d left, %+v, want %d open", left, st, len(n.rules))
				}
			},
			"apply": func(t *rapid.T) {
				s := index.Slot(anySlot.Draw(t, "slot"))
				group := uint16(max(0, rapid.IntRange(-3, 2).Draw(t, "group")))
				tier := kv.Tier(max(0, rapid.IntRange(-2, kv.NumTiers).Draw(t, "tier")))
				present := rapid.IntRange(0, 3).Draw(t, "present") > 0
				lo, hi := span(t)
				keys, changes := keys, []index.Change(nil)
				if again := rapid.SampledFrom([]int{1, 1, 1, 60}).Draw(t, "again"); again > 1 { // as a long batch
					keys, lo, hi = slices.Repeat(keys[lo:hi], again), 0, again*(hi-lo)
				}
				for _, k := range keys[lo:hi] {
					changes = append(changes, index.Change{Key: k, Group: group, Tier: tier, Present: present})
					if _, open := n.rules[s]; !open || tier >= kv.NumTiers {
						continue
					}
					b := block{group, k}
					if !present {
						n.tiers[s][b] &^= tier.Mask()
						continue
					}
					n.tiers[s][b] |= tier.Mask()
					if tier != kv.HBM || group != 0 {
						continue
					}
					for _, ticket := range n.tickets {
						if ticket.slot == s {
							delete(ticket.keys, k)
						}
					}
				}
				x.Apply(s, changes)
			},
			"begin": func(t *rapid.T) {
				s := index.Slot(anySlot.Draw(t, "slot"))
				lo, hi := span(t)
				deadline := now + clock.Instant(rapid.IntRange(0, 20).Draw(t, "life"))
				no := x.Begin(s, keys[lo:hi], deadline)
				ticket := &naiveTicket{slot: s, keys: map[kv.Key]bool{}, deadline: deadline}
				for _, k := range keys[lo:hi] {
					if _, open := n.rules[s]; open && !n.tiers[s][block{0, k}].Has(kv.HBM) {
						ticket.keys[k] = true
					}
				}
				if (no == 0) != (len(ticket.keys) == 0) || n.tickets[no] != nil {
					t.Fatalf("ticket %d for %d keys", no, len(ticket.keys))
				}
				if no != 0 {
					n.tickets[no] = ticket
				}
			},
			"end": func(t *rapid.T) {
				no := index.Ticket(rapid.Uint64Range(0, 12).Draw(t, "ticket"))
				x.End(no)
				delete(n.tickets, no)
			},
			"extend": func(t *rapid.T) {
				no := index.Ticket(rapid.Uint64Range(0, 12).Draw(t, "ticket"))
				deadline := now + clock.Instant(rapid.IntRange(0, 20).Draw(t, "life"))
				ticket := n.tickets[no]
				if x.Extend(no, deadline) != (ticket != nil) {
					t.Fatalf("Extend(%d) and the model disagree whether it is open", no)
				}
				if ticket != nil {
					ticket.deadline = deadline
				}
				if at, open := x.Deadline(no); open != (ticket != nil) || open && at != deadline {
					t.Fatalf("Deadline(%d) is %v, %v after it was set to %v", no, at, open, deadline)
				}
			},
			"expire": func(t *rapid.T) {
				now += clock.Instant(rapid.IntRange(0, 8).Draw(t, "passed"))
				open := len(n.tickets)
				maps.DeleteFunc(n.tickets, func(_ index.Ticket, t *naiveTicket) bool { return t.deadline <= now })
				if got, want := x.Expire(now), open-len(n.tickets); got != want {
					t.Fatalf("%d tickets expired, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				lo, hi := span(t)
				got, want := sorted(x.Match(keys[lo:hi], nil)), n.match(keys[lo:hi])
				if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
					t.Fatalf("match of blocks %d to %d (-want +got):\n%s", lo, hi, d)
				}
				s := index.Slot(anySlot.Draw(t, "slot"))
				for group := range uint16(3) {
					if got, want := x.Tiers(s, group, keys[lo]), n.tiers[s][block{group, keys[lo]}]; got != want {
						t.Fatalf("slot %d group %d: tiers %b, want %b", s, group, got, want)
					}
				}
			},
		})
		for s := range index.Slot(7) {
			x.Drop(s)
		}
		if left := x.Sweep(1 << 30); left != 0 {
			t.Fatalf("%d slots left after a sweep without limit", left)
		}
		if st := x.Stats(); st.Keys != 0 || st.Holders != 0 || st.Tickets != 0 || st.Promises != 0 {
			t.Fatalf("left behind: %+v", st)
		}
	})
}

func TestMatchTierRules(t *testing.T) {
	keys := chain(6)
	for _, c := range []struct {
		name  string
		rule  index.TierRule
		tiers [6]kv.TierMask
		want  index.Run
	}{
		{"all in HBM", index.HBMThenOneTier, [6]kv.TierMask{1, 1, 1, 1, 1, 1}, index.Run{HBM: 6}},
		{"a hole ends it", index.HBMThenOneTier, [6]kv.TierMask{1, 1, 0, 1, 1, 1}, index.Run{HBM: 2}},
		{"CPU goes on", index.HBMThenOneTier, [6]kv.TierMask{1, 3, 2, 2, 0, 2}, index.Run{HBM: 2, Lower: 2, Tier: kv.CPU}},
		{"the farther tier", index.HBMThenOneTier, [6]kv.TierMask{1, 6, 6, 4, 4, 2}, index.Run{HBM: 1, Lower: 4, Tier: kv.Disk}},
		{"of equals the faster", index.HBMThenOneTier, [6]kv.TierMask{1, 6, 6, 0, 0, 0}, index.Run{HBM: 1, Lower: 2, Tier: kv.CPU}},
		{"one tier only", index.HBMThenOneTier, [6]kv.TierMask{1, 2, 4, 8, 0, 0}, index.Run{HBM: 1, Lower: 1, Tier: kv.CPU}},
		{"HBM isn't resumed", index.HBMThenOneTier, [6]kv.TierMask{1, 2, 1, 1, 0, 0}, index.Run{HBM: 1, Lower: 1, Tier: kv.CPU}},
		{"nothing in HBM", index.HBMThenOneTier, [6]kv.TierMask{8, 8, 8, 0, 0, 0}, index.Run{Lower: 3, Tier: kv.Remote}},
		{"host only", index.DeviceThenHost, [6]kv.TierMask{1, 6, 6, 4, 4, 4}, index.Run{HBM: 1, Lower: 2, Tier: kv.CPU}},
		{"disk is no host", index.DeviceThenHost, [6]kv.TierMask{1, 4, 4, 4, 4, 4}, index.Run{HBM: 1}},
	} {
		x := index.New(index.Config{})
		s := x.Open(c.rule)
		for i, mask := range c.tiers {
			for tier := range kv.Tier(kv.NumTiers) {
				if mask.Has(tier) {
					x.Apply(s, []index.Change{{Key: keys[i], Tier: tier, Present: true}})
				}
			}
		}
		want := []index.Hit{{Slot: s, Run: c.want, Promised: c.want}}
		if d := gocmp.Diff(want, x.Match(keys, nil)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestBudgetRefuses(t *testing.T) {
	x := index.New(index.Config{MaxBytes: 64 << 10})
	s := x.Open(index.HBMThenOneTier)
	keys := chain(20_000)
	fill(x, s, keys, kv.HBM)
	st := x.Stats()
	if st.Refused == 0 || st.Bytes > st.MaxBytes || st.Keys == 0 || st.Keys+int(st.Refused) != len(keys) {
		t.Errorf("%+v", st)
	}
	if no := x.Begin(s, keys, 1); no != 0 {
		if got := x.Stats(); got.PromisesRefused == 0 {
			t.Errorf("%+v", got)
		}
	}
	x.Drop(s)
	x.Sweep(1 << 30)
	if got := x.Stats().Bytes; got > 64<<10 {
		t.Errorf("%d B after everything left", got)
	}
	s = x.Open(index.HBMThenOneTier)
	fill(x, s, keys[:100], kv.HBM)
	if hits := x.Match(keys[:1], nil); len(hits) != 1 {
		t.Error("nothing fits after everything left")
	}
}

func TestPromisesAreBounded(t *testing.T) {
	x := index.New(index.Config{MaxPromises: 5})
	s := x.Open(index.HBMThenOneTier)
	keys := chain(8)
	no := x.Begin(s, keys, 10)
	hits := x.Match(keys, nil)
	if len(hits) != 1 || hits[0].HBM != 0 || hits[0].Promised.HBM != 5 {
		t.Errorf("%+v", hits)
	}
	if st := x.Stats(); st.PromisesRefused != 3 || st.Promises != 5 || st.Tickets != 1 {
		t.Errorf("%+v", st)
	}
	x.End(no)
	if hits := x.Match(keys, nil); len(hits) != 0 {
		t.Errorf("%+v after the end", hits)
	}
}

// TestConfirmedForGood: what a ticket promised and an event confirmed is that
// ticket's no more, even if the block goes and another ticket promises it.
func TestConfirmedForGood(t *testing.T) {
	x := index.New(index.Config{})
	s := x.Open(index.HBMThenOneTier)
	keys := chain(1)
	promisedRun := func() int {
		if hits := x.Match(keys, nil); len(hits) == 1 {
			return hits[0].Promised.HBM
		}
		return 0
	}
	old := x.Begin(s, keys, 10)
	fill(x, s, keys, kv.HBM)
	x.Apply(s, []index.Change{{Key: keys[0]}})
	if promisedRun() != 0 {
		t.Error("the promise came back when the block was evicted")
	}
	young := x.Begin(s, keys, 10)
	x.End(old)
	if promisedRun() != 1 {
		t.Error("the old ticket's end took the new one's promise")
	}
	fill(x, s, keys, kv.HBM)
	x.Apply(s, []index.Change{{Key: keys[0]}})
	x.End(x.Begin(s, keys, 10))
	if promisedRun() != 0 {
		t.Error("a ticket whose promise was confirmed still has a share in it")
	}
	x.End(young)
	if st := x.Stats(); st.Promises != 0 || st.Tickets != 0 {
		t.Errorf("%+v", st)
	}
}

func fill(x *index.Index, s index.Slot, keys []kv.Key, tier kv.Tier) {
	changes := make([]index.Change, len(keys))
	for i, k := range keys {
		changes[i] = index.Change{Key: k, Tier: tier, Present: true}
	}
	x.Apply(s, changes)
}

// TestConcurrentUse is for the race detector; what it can check besides is
// that the answers are possible ones.
func TestConcurrentUse(t *testing.T) {
	x := index.New(index.Config{})
	a := index.NewApprox(index.ApproxConfig{MaxEntries: 1000})
	keys := chain(200)
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for range 30 {
				s := x.Open(index.HBMThenOneTier)
				fill(x, s, keys, kv.HBM)
				no := x.Begin(s, keys[:50], 1)
				for i := range 20 {
					x.Apply(s, []index.Change{{Key: keys[i]}, {Key: keys[i], Tier: kv.CPU, Present: true}})
				}
				x.End(no)
				x.Expire(1)
				x.Drop(s)
				a.Touch(s, keys, 0)
				a.Drop(s)
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			var dst []index.Hit
			for {
				select {
				case <-stop:
					return
				default:
				}
				dst = x.Match(keys, dst[:0])
				for _, h := range dst {
					if h.Len() > len(keys) || h.Promised.Len() < h.Len() {
						t.Errorf("%+v", h)
					}
				}
				x.Stats()
				dst = a.Match(keys, always, dst[:0])
				a.Stats()
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	x.Sweep(1 << 30)
	if st := x.Stats(); st.Holders != 0 || st.OpenSlots != 0 || st.DrainingSlots != 0 {
		t.Errorf("left behind: %+v", st)
	}
}
