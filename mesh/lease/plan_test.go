package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestVotersPlan: one change at a time, and none that a split could have caused.
func TestVotersPlan(t *testing.T) {
	// A leader "0" and its voters, each a letter: a alive, d dead, l leaving; then
	// live replicas without a vote: s runs Raft and waits, n does not.
	for _, c := range []struct {
		voters, others string
		steady         time.Duration
		want           step
	}{
		{"aa", "", time.Hour, step{}},
		{"aa", "n", time.Hour, step{}},
		{"aaaa", "n", time.Hour, step{}},
		{"", "n", time.Hour, step{}},
		{"", "nn", time.Second, step{}},
		{"", "nn", growAfter, step{do: invite, name: "n1"}},
		{"a", "s", growAfter, step{do: add, id: "s1"}},
		{"ad", "n", 0, step{do: invite, name: "n1"}},
		{"aad", "", 0, step{do: remove, id: "d2"}}, // a third voter has come in its place
		{"ad", "", 0, step{}},
		{"ad", "", shrinkAfter, step{do: remove, id: "d1"}},
		{"aadd", "", 0, step{}}, // maybe a split
		{"adda", "", shrinkAfter - 1, step{}},
		{"al", "", 0, step{do: remove, id: "l1"}},
		{"al", "n", 0, step{do: invite, name: "n1"}},
		{"aal", "", 0, step{do: remove, id: "l2"}},
		{"a", "", shrinkAfter, step{do: remove, id: "a0"}},
	} {
		v := &view{self: "0", own: advert{Cluster: 1, Server: "0", Leads: true}, looked: true, steady: c.steady}
		v.servers = []server{{"0", true}}
		for i, state := range c.voters {
			id := fmt.Sprint(string(state), i)
			v.servers = append(v.servers, server{id, true})
			v.others = append(v.others, seen{name: id, alive: state == 'a', heard: true, advert: advert{Cluster: 1, Server: id, Leaving: state == 'l'}})
		}
		for i, state := range c.others {
			o := seen{name: fmt.Sprint(string(state), i+1), alive: true, heard: true, advert: advert{Cluster: 1}}
			if state == 's' {
				o.Server = o.name
			}
			v.others = append(v.others, o)
		}
		got := v.voters()
		if got.name != "" && strings.HasPrefix(got.name, "n") {
			got.name = c.want.name // whichever
		}
		if got != c.want {
			t.Errorf("voters 0%s, others %q, steady %v: %+v, want %+v", c.voters, c.others, c.steady, got, c.want)
		}
	}
}

// TestLeavingACluster: a cluster is left for another whose generation is past that
// of the own copy, and until it is that is asked for.
func TestLeavingACluster(t *testing.T) {
	const own, other = Cluster(1), Cluster(2)
	leads := func(c Cluster, gen uint64, yieldTo Cluster) seen {
		a := advert{Cluster: c, Gen: gen, Leads: true, Voters: int(c), YieldTo: yieldTo}
		return seen{name: fmt.Sprint("leader of ", c), alive: true, heard: true, advert: a}
	}
	for name, c := range map[string]struct {
		own        advert
		copyOf     Cluster
		leaderless time.Duration
		others     []seen
		want       step
	}{
		"leads, an equal generation":     {own: advert{Cluster: own, Gen: 2, Leads: true, Voters: 1}, others: []seen{leads(other, 2, 0)}, want: step{do: yield, to: other}},
		"leads, an earlier one":          {own: advert{Cluster: own, Gen: 2, Leads: true, Voters: 1}, others: []seen{leads(other, 1, 0)}, want: step{do: yield, to: other}},
		"leads, a later one":             {own: advert{Cluster: own, Gen: 2, Leads: true, Voters: 1}, others: []seen{leads(other, 3, 0)}, want: step{do: follow, to: other}},
		"leads, has more voters":         {own: advert{Cluster: own, Gen: 2, Leads: true, Voters: 3, Server: "0", Servers: []server{{"0", true}}}, others: []seen{leads(other, 3, 0)}},
		"follows one that stays":         {own: advert{Cluster: own, Gen: 2}, others: []seen{leads(own, 2, 0), leads(other, 3, 0)}},
		"follows one that leaves, early": {own: advert{Cluster: own, Gen: 2}, others: []seen{leads(own, 2, other), leads(other, 2, 0)}, want: step{do: yield, to: other}},
		"follows one that leaves":        {own: advert{Cluster: own, Gen: 2}, others: []seen{leads(own, 2, other), leads(other, 3, 0)}, want: step{do: follow, to: other}},
		"leaderless, early":              {own: advert{Cluster: own, Gen: 2}, leaderless: reviveAfter, others: []seen{leads(other, 2, 0)}, want: step{do: yield, to: other}},
		"leaderless":                     {own: advert{Cluster: own, Gen: 2}, leaderless: reviveAfter, others: []seen{leads(other, 3, 0)}, want: step{do: follow, to: other}},
		"new":                            {others: []seen{leads(other, 1, 0)}, want: step{do: follow, to: other}},
		"back, with a copy of it":        {own: advert{Gen: 1}, copyOf: other, others: []seen{leads(other, 1, 0)}, want: step{do: follow, to: other}},
		"back, with a copy of another":   {own: advert{Gen: 1}, copyOf: own, others: []seen{leads(other, 1, 0)}, want: step{do: yield, to: other}},
		"new, and that leaves itself":    {others: []seen{leads(other, 3, 7)}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{self: "0", own: c.own, copyOf: c.copyOf, leaderless: c.leaderless, others: c.others, looked: true}
			for _, o := range c.others {
				if o.Cluster == own {
					v.yieldTo = o.YieldTo
				}
			}
			if got := plan(v); got != c.want {
				t.Errorf("plans %+v, want %+v", got, c.want)
			}
		})
	}
}

// However many replicas there are, what each told last is news until it tells
// again.
func TestAdvertsStayNews(t *testing.T) {
	for peers := range maxPeers {
		if p := advertPeriod(peers); p < advertsEvery || p > freshAdvert-advertsEvery {
			t.Fatalf("with %d peers a replica tells how it stands every %v, and counts as gone after %v", peers, p, freshAdvert)
		}
	}
	if advertsEvery > freshFor/2 {
		t.Errorf("a leader tells how far it is every %v: tables are certain for %v", advertsEvery, freshFor)
	}
}
