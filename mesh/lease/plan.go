package lease

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Cluster names a run of Raft: the voters that share a log. A new one begins
// when there is none, or when the old one can't elect a leader any more. Zero
// is none.
type Cluster uint64

// advert is what a replica tells all others of itself: a leader twice a second,
// others in large fleets more rarely.
type advert struct {
	Cluster Cluster // that it votes in, or follows; 0 for none
	Gen     uint64  // of its copy
	Index   uint64  // of its copy
	Inc     uint64  // its incarnation
	Server  string  // its name in Raft while it runs it, else empty
	Applied uint64  // of the log, while it runs Raft
	Low     uint64  // its promises below are settled
	Leaving bool
	// YieldTo is the cluster for which it leaves its own, once that has begun a
	// generation past its copy's.
	YieldTo Cluster
	// Of the leader alone.
	Leads   bool
	Term    uint64
	Voters  int      // of whom it hears
	Servers []server // of its cluster
}

// server is a member of a Raft cluster.
type server struct {
	ID    string
	Voter bool
}

// seen is another replica as a plan sees it.
type seen struct {
	name  string
	alive bool // a member that is not leaving
	advert
	heard bool          // an advert came
	age   time.Duration // of the advert
}

// view is what a plan is made from.
type view struct {
	self string
	own  advert
	// copyOf is the cluster that the own copy is of.
	copyOf Cluster
	// others are the other replicas by name, those that died within the last
	// minute included.
	others []seen
	// looked says that a replica was looked for at every configured address.
	looked bool
	// steady is for how long nobody came or went; leaderless for how long no
	// leader of the own cluster was heard.
	steady, leaderless time.Duration
	// running is for how long this replica has run Raft.
	running time.Duration
	// servers are the own cluster's as last heard, and yieldTo the cluster for which
	// its leader ends it.
	servers []server
	yieldTo Cluster
	// addedAt is how long the log was when the last server was taken in.
	addedAt uint64
	// most is how many replicas were alive at once before the leader was lost.
	most int
}

// What a replica waits for.
const (
	formAfter    = 3 * time.Second  // nobody came or went, before a first cluster is made
	growAfter    = 3 * time.Second  // likewise, before there are more voters
	shrinkAfter  = 30 * time.Second // and fewer
	reviveAfter  = 10 * time.Second // without a leader, before a new generation
	retireAfter  = 10 * time.Second // for being asked to vote, before it stops to run Raft
	reviveFew    = time.Minute      // likewise where most replicas are out of sight
	freshAdvert  = 3 * time.Second
	advertsEvery = 500 * time.Millisecond
)

// step is what a replica should do about its cluster.
type step struct {
	do   doing
	to   Cluster // of follow and yield
	name string  // of invite
	id   string  // of add, promote, remove
}

type doing uint8

const (
	nothing  doing = iota
	begin          // a cluster with this replica as its voter, from its copy
	follow         // cluster to, leaving the own one
	yield          // tell that the own cluster is to be left for to
	invite         // replica name to run Raft in the own cluster
	add            // server id as a non-voter
	promote        // server id to a voter
	remove         // server id
	transfer       // leadership, for this replica is leaving
	retire         // stop running Raft: the cluster has no such server
)

// plan says what a replica should do about the cluster it is in.
func plan(v *view) step {
	if to := v.outranked(); to != 0 {
		switch {
		case !v.own.Leads && v.own.Cluster != 0 && v.leaderless < reviveAfter && v.yieldTo != to:
			return step{}
		case !v.later(to):
			return step{do: yield, to: to}
		}
		return step{do: follow, to: to}
	}
	switch {
	case v.own.Leaving && !v.own.Leads:
		return step{}
	case v.own.Leads:
		return v.voters()
	case v.own.Cluster == 0:
		return v.form()
	case v.own.Server != "" && v.running >= retireAfter && v.leaderless < freshAdvert && !slices.ContainsFunc(v.servers, func(s server) bool { return s.ID == v.own.Server }):
		return step{do: retire}
	}
	return v.revive()
}

// leaders returns the replicas that lead a cluster, as far as is known now, of
// others than the own one those that don't end it.
func (v *view) leaders(yield func(*seen) bool) {
	for i := range v.others {
		if o := &v.others[i]; o.alive && o.heard && o.Leads && o.age < freshAdvert && (o.YieldTo == 0 || o.Cluster == v.own.Cluster) && !yield(o) {
			return
		}
	}
}

// outranked returns the cluster that this replica's has to end for: of two that
// meet the one stays that has more voters, then the longer log. 0 for none.
func (v *view) outranked() (to Cluster) {
	best := v.own
	if !v.own.Leads {
		best = advert{}
		for o := range v.leaders {
			if o.Cluster == v.own.Cluster && v.own.Cluster != 0 {
				best = o.advert
			}
		}
	}
	for o := range v.leaders {
		if o.Cluster != v.own.Cluster && outranks(&o.advert, &best) {
			best, to = o.advert, o.Cluster
		}
	}
	return to
}

func outranks(a, b *advert) bool {
	return cmp.Or(cmp.Compare(a.Voters, b.Voters), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Gen, b.Gen), cmp.Compare(a.Cluster, b.Cluster)) > 0
}

// later reports whether cluster to has begun a generation past that of the copy
// here, or the copy is of it. Until then what was agreed on here may look later
// than what will be agreed on there, and a workflow's tokens would shrink.
func (v *view) later(to Cluster) bool {
	if v.copyOf == to {
		return true
	}
	for o := range v.leaders {
		if o.Cluster == to {
			return o.Gen > v.own.Gen
		}
	}
	return false
}

// form makes a first cluster, if this replica is the one to do so.
func (v *view) form() step {
	wait := formAfter
	if len(v.others) == 0 && v.looked {
		wait = 0
	}
	if !v.looked || v.steady < wait || !v.best(func(o *seen) bool { return true }) {
		return step{}
	}
	return step{do: begin}
}

// best reports whether, of the replicas that count, this one has the latest
// copy, and the first name of those that have; all must have told.
func (v *view) best(counts func(*seen) bool) bool {
	for i := range v.others {
		o := &v.others[i]
		if !o.alive || !counts(o) {
			continue
		}
		if !o.heard || o.age > freshAdvert {
			return false
		}
		if c := cmp.Or(cmp.Compare(o.Gen, v.own.Gen), cmp.Compare(o.Index, v.own.Index), strings.Compare(v.self, o.name)); c > 0 {
			return false
		}
	}
	return true
}

// revive begins a new generation, if the cluster has lost its quorum for good
// and this replica is the one to do so. A side that may still have a majority
// never does.
func (v *view) revive() step {
	wait := reviveAfter
	if 2*v.alive() < v.most {
		wait = reviveFew
	}
	if v.leaderless < wait {
		return step{}
	}
	voters, dead := 0, 0
	for _, s := range v.servers {
		if s.Voter {
			voters++
			if v.of(s.ID) == nil && s.ID != v.own.Server {
				dead++
			}
		}
	}
	if v.leaderless < wait+reviveAfter && slices.ContainsFunc(v.others, func(o seen) bool {
		return o.alive && o.heard && o.Server != "" && o.Cluster != v.own.Cluster
	}) {
		return step{} // another has begun one, and will soon lead it
	}
	if 2*dead < voters || !v.best(func(o *seen) bool { return o.Cluster == v.own.Cluster }) {
		return step{}
	}
	return step{do: begin}
}

// alive counts the replicas in sight, this one included.
func (v *view) alive() int {
	n := 1
	for i := range v.others {
		if v.others[i].alive {
			n++
		}
	}
	if v.own.Leaving {
		n--
	}
	return n
}

// of returns the live replica that runs a server; nil if none does.
func (v *view) of(id string) *seen {
	for i := range v.others {
		if o := &v.others[i]; o.alive && o.heard && o.Server == id && o.Cluster == v.own.Cluster {
			return o
		}
	}
	return nil
}

// wanted is how many voters a data centre of so many replicas has.
func wanted(replicas int) int {
	switch {
	case replicas >= 5:
		return 5
	case replicas >= 3:
		return 3
	}
	return 1
}

// voters keeps the right number of live voters, as the leader: one change at a
// time. A dead or leaving one is replaced at once: first another votes, then it
// goes.
func (v *view) voters() step {
	target, live, all := wanted(v.alive()), 0, 0
	var gone, leaving, spare []string // voters that don't answer; that leave; the others but this one
	pending := ""
	for _, s := range v.servers {
		if s.Voter {
			all++
		}
		o := v.of(s.ID)
		here := s.ID == v.own.Server && !v.own.Leaving || o != nil
		switch {
		case !s.Voter && !here:
			return step{do: remove, id: s.ID}
		case !s.Voter:
			pending = s.ID
		case here:
			live++
			if s.ID != v.own.Server {
				spare = append(spare, s.ID)
			}
		case s.ID != v.own.Server && v.leaves(s.ID):
			leaving = append(leaving, s.ID)
		case s.ID != v.own.Server:
			gone = append(gone, s.ID)
		}
	}
	slices.Sort(spare)
	slices.Sort(gone)
	if v.steady < shrinkAfter {
		// Those that are out of sight may be behind a split: a leader that made do
		// with the rest at once would in the end agree with itself.
		target = max(target, wanted(all))
	}
	switch {
	case pending != "" && live >= target:
		return step{do: remove, id: pending}
	case pending != "" && v.of(pending).Applied >= v.addedAt:
		return step{do: promote, id: pending}
	case pending != "":
		return step{}
	case live < target && (len(gone)+len(leaving) > 0 || v.own.Leaving || v.steady >= growAfter):
		if next := v.candidate(); next != nil && next.Server != "" {
			return step{do: add, id: next.Server}
		} else if next != nil {
			return step{do: invite, name: next.name}
		}
	}
	switch {
	case len(leaving) > 0: // its place is taken, or nobody can take it
		return step{do: remove, id: leaving[0]}
	case len(gone) > 0 && (live >= target || v.steady >= shrinkAfter):
		return step{do: remove, id: gone[0]}
	case v.own.Leaving && live > 0:
		return step{do: transfer}
	case live > target && v.steady >= shrinkAfter && len(spare) > 0:
		return step{do: remove, id: spare[len(spare)-1]}
	}
	return step{}
}

// leaves reports whether the replica that runs a server says that it is leaving.
func (v *view) leaves(id string) bool {
	return slices.ContainsFunc(v.others, func(o seen) bool { return o.heard && o.Server == id && o.Leaving })
}

// candidate returns the live replica to become a voter next: one that runs Raft
// for it already, or has the latest copy.
func (v *view) candidate() *seen {
	var best *seen
	for i := range v.others {
		o := &v.others[i]
		if !o.alive || !o.heard || o.Cluster != 0 && o.Cluster != v.own.Cluster || slices.ContainsFunc(v.servers, func(s server) bool { return s.ID == o.Server }) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(min(1, len(o.Server)), min(1, len(best.Server))), cmp.Compare(o.Index, best.Index)) > 0 {
			best = o
		}
	}
	return best
}
