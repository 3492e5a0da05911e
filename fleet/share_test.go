package fleet

import (
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
)

func TestPeerSharesAddUpAndRunOut(t *testing.T) {
	var m Member
	at := func(d time.Duration) clock.Instant { return clock.Instant(0).Add(d) }
	m.HearShare(at(0), 2, Share{QueuedTokens: 100, QueuedSeqs: 1, InFlight: 3})
	m.HearShare(at(time.Second), 1, Share{QueuedTokens: 10, Decoding: 2, InFlight: 2})
	m.HearShare(at(time.Second), 1, Share{QueuedTokens: 20, Decoding: 4, InFlight: 4}) // in place of the former
	var load cost.Load
	share := m.PeerShare(at(time.Second))
	share.AddTo(&load)
	if load.QueuedTokens != 120 || load.QueuedSeqs != 1 || load.Decoding != 4 || share.InFlight != 7 {
		t.Errorf("shares add up to %+v, %+v", share, load)
	}
	if share := m.PeerShare(at(shareLife + time.Millisecond)); share.InFlight != 4 {
		t.Errorf("of a replica that fell silent %d requests count, want those of the other: 4", share.InFlight)
	}
	m.HearShare(at(shareLife), 1, Share{})
	if share := m.PeerShare(at(shareLife)); share != (Share{}) {
		t.Errorf("%+v is left of replicas with nothing in flight", share)
	}
}
