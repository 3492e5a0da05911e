package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// LeaseTTL is how long leases live in chaos, so that a pause outlasts one.
const LeaseTTL = 5 * time.Second

// Where the scenarios of the catalogue are played.
var (
	everywhere = []Place{Pure, Bubble, Real}
	pureReal   = []Place{Pure, Real}
	onlyReal   = []Place{Real}
)

// scenario is the shape that all of the catalogue share but for what do changes.
func scenario(name, doc string, grounds []Place, do func(s *Scenario)) Scenario {
	s := Scenario{
		Name: name, Doc: doc, Grounds: slices.Clone(grounds), Replicas: 3, Workers: 6,
		Load: Load{Sessions: 24, Think: time.Second}, Duration: 60 * time.Second, Settle: 10 * time.Second,
		Bounds: Bounds{Regret: 2},
	}
	do(&s)
	return s
}

const second = time.Second

// Catalogue returns the standard set.
func Catalogue() []Scenario {
	return slices.Concat(networkScenarios(), replicaScenarios(), workerScenarios(), machineScenarios())
}

func networkScenarios() []Scenario {
	return []Scenario{
		scenario("partition-rejoin", "one of three replicas is cut off for 20 s and comes back", everywhere, func(s *Scenario) {
			s.Quick = true
			s.Faults = []Fault{{Kind: Cut, At: 15 * second, For: 20 * second, A: []int{2}}}
		}),
		scenario("partition-60", "one of three replicas is cut off for 60 s and comes back", everywhere, func(s *Scenario) {
			s.Duration = 90 * second
			s.Faults = []Fault{{Kind: Cut, At: 15 * second, For: 60 * second, A: []int{2}}}
		}),
		scenario("partition-120", "one of three replicas is cut off for 120 s and comes back", everywhere, func(s *Scenario) {
			s.Duration = 150 * second
			s.Faults = []Fault{{Kind: Cut, At: 15 * second, For: 120 * second, A: []int{2}}}
		}),
		scenario("minority-majority", "two of five replicas are cut off from the other three for 20 s", everywhere, func(s *Scenario) {
			s.Replicas = 5
			s.Faults = []Fault{{Kind: Cut, At: 15 * second, For: 20 * second, A: []int{0, 1}, B: []int{2, 3, 4}}}
		}),
		scenario("one-way", "what one replica sends is lost for 20 s, what it is sent arrives", everywhere, func(s *Scenario) {
			s.Quick = true
			s.Faults = []Fault{{Kind: OneWay, At: 15 * second, For: 20 * second, A: []int{1}}}
		}),
		scenario("bridge", "two halves that only one replica in the middle can talk to, for 20 s", everywhere, func(s *Scenario) {
			s.Replicas, s.Quick = 5, true
			s.Faults = []Fault{{Kind: Cut, At: 15 * second, For: 20 * second, A: []int{0, 1}, B: []int{3, 4}}}
		}),
		scenario("flapping-link", "the links of one replica come and go every 2 s for 30 s", everywhere, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Flap, At: 10 * second, For: 30 * second, A: []int{0}, Period: 2 * second}}
		}),
		scenario("bad-network", "5 % of packets lost, 2 % doubled, 5 % out of order, 20 ms more delay, all the time", everywhere, func(s *Scenario) {
			s.Faults = []Fault{
				{Kind: Loss, At: 5 * second, For: 50 * second, Amount: 0.05}, {Kind: Duplicate, At: 5 * second, For: 50 * second, Amount: 0.02},
				{Kind: Reorder, At: 5 * second, For: 50 * second, Amount: 0.05, Length: 10 * time.Millisecond},
				{Kind: Delay, At: 5 * second, For: 50 * second, Length: 20 * time.Millisecond},
			}
		}),
		scenario("narrow-link", "one replica can send 2 Mbit/s for 20 s", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Narrow, At: 15 * second, For: 20 * second, A: []int{0}, Amount: 250e3}}
		}),
		scenario("names-gone", "a replica is cut off and comes back while nobody's name leads anywhere", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Names, At: 10 * second, For: 25 * second}, {Kind: Cut, At: 15 * second, For: 15 * second, A: []int{2}}}
		}),
		scenario("low-mtu", "packets over 1300 bytes vanish for 30 s", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: LowMTU, At: 10 * second, For: 30 * second, Amount: 1300}}
		}),
	}
}

func replicaScenarios() []Scenario {
	return []Scenario{
		scenario("crash-loop", "one of three replicas is killed every 8 s and comes back as a new boot 3 s later", everywhere, func(s *Scenario) {
			s.Quick = true
			for i := range 5 {
				s.Faults = append(s.Faults, Fault{Kind: Crash, At: time.Duration(8+8*i) * second, For: 3 * second, A: []int{1}})
			}
		}),
		scenario("kill-each", "each of three replicas is killed in turn, 20 s apart, and comes back as a new boot", pureReal, func(s *Scenario) {
			s.Duration = 70 * second
			for i := range 3 {
				s.Faults = append(s.Faults, Fault{Kind: Crash, At: time.Duration(10+20*i) * second, For: 3 * second, A: []int{i}})
			}
		}),
		scenario("leader-kill", "who leads the agreement on leases is killed 20 times, 6 s apart", everywhere, func(s *Scenario) {
			s.Duration = 130 * second
			for i := range 20 {
				s.Faults = append(s.Faults, Fault{Kind: Crash, At: time.Duration(6+6*i) * second, For: 2 * second, A: []int{i % 3}, Leader: true})
			}
		}),
		scenario("pause", "a replica stands still for 8 s, longer than a lease lives", pureReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Pause, At: 20 * second, For: 8 * second, A: []int{0}}}
		}),
		scenario("restart-all", "all replicas restart within a second, at new addresses", everywhere, func(s *Scenario) {
			s.Bounds.Regret = 3
			s.Faults = []Fault{{Kind: Crash, At: 20 * second, For: 2 * second, A: []int{0, 1, 2}}}
		}),
		scenario("restart-empty", "all replicas are killed at once and stay away for 15 s; nothing is on their disks", everywhere, func(s *Scenario) {
			s.Bounds.Regret = 4
			s.Faults = []Fault{{Kind: Crash, At: 20 * second, For: 15 * second, A: []int{0, 1, 2}}}
		}),
		scenario("restart-kept", "all replicas are killed at once when each has saved its state, and restart with that, at new addresses", []Place{Bubble, Real}, func(s *Scenario) {
			s.Duration = 95 * second
			s.Faults = []Fault{{Kind: Crash, At: 70 * second, For: 2 * second, A: []int{0, 1, 2}, Keep: true}}
		}),
		scenario("feed-owner", "a worker restarts, and while its log is copied around the replicas that read it are killed", everywhere, func(s *Scenario) {
			s.Quick = true
			s.Faults = []Fault{
				{Kind: Cut, At: 10 * second, For: 15 * second, A: []int{2}},
				{Kind: Crash, At: 25*second + 20*time.Millisecond, For: 4 * second, A: []int{0}},
				{Kind: Worker, At: 30 * second, For: 4 * second, A: []int{0}},
				{Kind: Crash, At: 34*second + 20*time.Millisecond, For: 4 * second, A: []int{1}},
			}
		}),
		scenario("scale", "ten replicas become three at once, and ten again", everywhere, func(s *Scenario) {
			s.Replicas, s.Load.Sessions = 10, 40
			s.Faults = []Fault{{Kind: Crash, At: 20 * second, For: 20 * second, A: []int{3, 4, 5, 6, 7, 8, 9}}}
		}),
	}
}

func workerScenarios() []Scenario {
	return []Scenario{
		scenario("worker-storm", "workers die and come back empty, one after another, 3 s apart", everywhere, func(s *Scenario) {
			s.Quick = true
			for i := range 10 {
				s.Faults = append(s.Faults, Fault{Kind: Worker, At: time.Duration(8+3*i) * second, For: 4 * second, A: []int{i % 6}})
			}
		}),
		scenario("worker-partition", "a worker restarts while a replica is cut off", everywhere, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Cut, At: 15 * second, For: 20 * second, A: []int{2}}, {Kind: Worker, At: 20 * second, For: 4 * second, A: []int{0, 3}}}
		}),
		scenario("address-reuse", "two workers die, and other engines, with other blocks, come up at their addresses", everywhere, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Moved, At: 20 * second, For: 4 * second, A: []int{0, 3}}}
		}),
		scenario("event-loss", "5 % of the engines' events are lost on their way and replayed when missed", pureReal, func(s *Scenario) {
			s.Quick = true
			s.Faults = []Fault{{Kind: EventLoss, At: 5 * second, For: 50 * second, Amount: 0.05}}
		}),
		scenario("event-gap", "all events of two workers are lost for 3 s and can't be replayed", everywhere, func(s *Scenario) {
			s.Bounds.LostToAll = true
			s.Faults = []Fault{{Kind: EventGap, At: 20 * second, For: 3 * second, A: []int{0, 1}}}
		}),
		scenario("slow-worker", "a third of the workers runs at a quarter of its speed for 20 s", pureReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Slow, At: 20 * second, For: 20 * second, A: []int{0, 1}, Amount: 4}}
		}),
	}
}

func machineScenarios() []Scenario {
	return []Scenario{
		scenario("clock-jump", "the wall clocks of two replicas jump an hour, one each way", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: ClockJump, At: 15 * second, For: 20 * second, A: []int{0}, Length: time.Hour}, {Kind: ClockJump, At: 15 * second, For: 20 * second, A: []int{1}, Length: -time.Hour}}
		}),
		scenario("clock-drift", "the wall clock of a replica gains two minutes each second for 20 s", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: ClockJump, At: 15 * second, For: 20 * second, A: []int{2}, Length: 2 * time.Minute, Period: second}}
		}),
		scenario("disk-full", "the disk that a replica keeps its state on is full for 65 s, in which it would save it", onlyReal, func(s *Scenario) {
			s.Duration = 90 * second
			s.Faults = []Fault{{Kind: DiskFull, At: 15 * second, For: 65 * second, A: []int{0}}}
		}),
		scenario("certificates", "all certificates are replaced and the old ones taken back", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Expiry, At: 20 * second, For: 10 * second}}
		}),
		scenario("disk-slow", "each write to a replica's disk takes 5 s for 65 s, in which it saves its state", onlyReal, func(s *Scenario) {
			s.Duration = 90 * second
			s.Faults = []Fault{{Kind: DiskSlow, At: 15 * second, For: 65 * second, A: []int{0}, Length: 5 * second}}
		}),
		scenario("expired", "a replica's certificate runs out; a cut of 4 s keeps it out until it has another", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Expired, At: 15 * second, For: 25 * second, A: []int{2}}, {Kind: Cut, At: 22 * second, For: 4 * second, A: []int{2}}}
		}),
		scenario("upgrade", "replicas start anew one after another with the next minor version of the wire", onlyReal, func(s *Scenario) {
			s.Faults = []Fault{{Kind: Upgrade, At: 15 * second, For: 30 * second, A: []int{0, 1, 2}, Period: 10 * second}}
		}),
	}
}

// Find returns scenarios of the catalogue by a comma-separated list of names.
func Find(names string) ([]Scenario, error) {
	all := Catalogue()
	var out []Scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == strings.TrimSpace(name) })
		if i < 0 {
			known := make([]string, len(all))
			for i := range all {
				known[i] = all[i].Name
			}
			return nil, fmt.Errorf("unknown scenario %q: want some of %s", name, strings.Join(known, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// Suite returns the scenarios of a suite: quick, for every change, or standard,
// which is all of them.
func Suite(name string) ([]Scenario, error) {
	all := Catalogue()
	switch name {
	case "standard":
		return all, nil
	case "quick":
		return slices.DeleteFunc(all, func(s Scenario) bool { return !s.Quick }), nil
	}
	return nil, fmt.Errorf("unknown suite %q: want quick or standard", name)
}
