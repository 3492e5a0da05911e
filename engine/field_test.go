package engine

import "testing"

// TestBR57_OneRecoveryForEachGap: eleven batches are lost; the one behind them
// has all of them fetched at once, with what came meanwhile, and nothing of it
// is taken twice or fetched again.
func TestBR57_OneRecoveryForEachGap(t *testing.T) {
	p := startPublisher(t, "", "")
	p.dropLive = between(50, 61)
	fw := follow(t, p.config())
	fw.expect(FeedConnected)
	fw.subscribed(p)
	p.publish(50)
	fw.expectBatches(0, 50)
	before := fw.feed.Stats()
	p.publish(30) // 61 shows the gap
	fw.expectBatches(50, 80)
	p.publish(20)
	fw.expectBatches(80, 100)
	if s := fw.feed.Stats(); s.ReplayRounds != before.ReplayRounds+1 || s.Resets != before.Resets || s.Gaps != before.Gaps+1 {
		t.Errorf("%+v, before the gap %+v", s, before)
	}
}
