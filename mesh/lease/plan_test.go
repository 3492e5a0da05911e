package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
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

// TestRevivalPlan: a new generation begins on the replica that knows most, once a
// quorum is lost for good, and never beside one that may be there.
func TestRevivalPlan(t *testing.T) {
	// This replica is "m", a voter of generation 2 that knows 10 entries; the servers
	// are its own, then each other's, d being dead.
	alive := func(name string, gen, index uint64) seen {
		return seen{name: name, alive: true, heard: true, advert: advert{Cluster: 1, Server: name, Gen: gen, Index: index}}
	}
	later, sooner := reviveAfter, reviveAfter-1
	for name, c := range map[string]struct {
		voters     string // names of them
		others     []seen
		most       int
		leaderless time.Duration
		want       doing
	}{
		"alone of two":                  {"md", nil, 2, later, begin},
		"one leader is awaited":         {"md", nil, 2, sooner, nothing},
		"a majority lives":              {"mad", []seen{alive("a", 2, 9)}, 3, time.Hour, nothing},
		"half of four live":             {"madd", []seen{alive("a", 2, 9)}, 4, later, begin},
		"two of five, most in sight":    {"maddd", []seen{alive("a", 2, 9), alive("x", 2, 9)}, 5, later, begin},
		"two of five, few in sight":     {"maddd", []seen{alive("a", 2, 9)}, 5, reviveFew - 1, nothing},
		"few in sight for long":         {"maddd", []seen{alive("a", 2, 9)}, 5, reviveFew, begin},
		"another knows more":            {"madd", []seen{alive("a", 2, 11)}, 4, time.Hour, nothing},
		"another is of a later one":     {"madd", []seen{alive("a", 3, 1)}, 4, time.Hour, nothing},
		"as much, with a first name":    {"madd", []seen{alive("a", 2, 10)}, 4, time.Hour, nothing},
		"as much, with a last name":     {"mzdd", []seen{alive("z", 2, 10)}, 4, later, begin},
		"what one knows by now is open": {"madd", []seen{{name: "z", alive: true, heard: true, age: freshAdvert + 1, advert: advert{Cluster: 1}}}, 4, time.Hour, nothing},
	} {
		v := &view{self: "m", own: advert{Cluster: 1, Server: "m", Gen: 2, Index: 10}, looked: true, others: c.others, most: c.most, leaderless: c.leaderless}
		for i, r := range c.voters {
			id := string(r)
			if r == 'd' {
				id = fmt.Sprint("d", i)
			}
			v.servers = append(v.servers, server{id, true})
		}
		if got := v.revive(); got.do != c.want {
			t.Errorf("%s: it does %d, want %d", name, got.do, c.want)
		}
	}
}

// TestWhichClusterStays: of two that meet the one with more voters, then the
// longer log, then the later generation; and both sides see it alike.
func TestWhichClusterStays(t *testing.T) {
	order := []advert{ // the last stays before all others
		{Cluster: 9, Voters: 1, Index: 90, Gen: 9},
		{Cluster: 8, Voters: 2, Index: 5, Gen: 9},
		{Cluster: 1, Voters: 2, Index: 6, Gen: 1},
		{Cluster: 2, Voters: 2, Index: 6, Gen: 1},
		{Cluster: 3, Voters: 2, Index: 6, Gen: 2},
		{Cluster: 4, Voters: 3, Index: 1, Gen: 1},
	}
	for i, a := range order {
		for j, b := range order {
			a.Leads, b.Leads = true, true
			v := &view{self: "a", own: a, others: []seen{{name: "b", alive: true, heard: true, advert: b}}}
			want := Cluster(0)
			if j > i {
				want = b.Cluster
			}
			if got := v.outranked(); got != want {
				t.Errorf("of cluster %d, which meets %d: ends for %d, want %d", a.Cluster, b.Cluster, got, want)
			}
		}
	}
}

// TestNewLeasesOfAKeyAreBounded: so many in each second, others' apart.
func TestNewLeasesOfAKeyAreBounded(t *testing.T) {
	b, now := newBuckets(1000), clock.Instant(1)
	got := 0
	for range 4000 { // over 2 s
		now = now.Add(500 * time.Microsecond)
		if b.take(now, 7) {
			got++
		}
	}
	if got < 2900 || got > 3001 { // what a second may have, and then two more
		t.Errorf("one key got %d leases in 2 s, at 1000 a second", got)
	}
	if !b.take(now, 8) {
		t.Error("another key got none")
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
