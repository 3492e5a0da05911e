package sim

import (
	"reflect"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/route"
)

// With the load of the catalogue the queue changes nothing; far beyond what the
// fleet can do it refuses, and every request ends.
func TestQueueOfTheProduct(t *testing.T) {
	scenarios, err := Find("conversation-1.5")
	if err != nil {
		t.Fatal(err)
	}
	sc := scenarios[0]
	sc.Workload.Half, sc.Workload.Limit = "", 150
	tight := route.DefaultQueue()
	tight.TTFTObjective, tight.MaxWait = 2*time.Second, 3*time.Second
	policies := []Policy{Queued("default", route.DefaultQueue()), Queued("tight", tight)}
	without, err := ParsePolicies(Ours)
	if err != nil {
		t.Fatal(err)
	}
	play := func(speed float64) map[string]Row {
		sc.Workload.Speed = speed
		table, err := Play(t.Context(), sc, Options{Policies: append(policies, without...), Column: Learned, Seeds: []uint64{1}})
		if err != nil {
			t.Fatal(err)
		}
		rows := make(map[string]Row)
		for name, row := range table.Policies {
			rows[name] = *row
		}
		return rows
	}
	calm := play(1.5)
	if !reflect.DeepEqual(calm["default"], calm[Ours]) {
		t.Errorf("with a queue %+v, without %+v", calm["default"], calm[Ours])
	}
	flood := play(60)
	if flood[Ours].Failed != 0 || flood["tight"].Failed == 0 || flood["tight"].TTFTP99 > flood[Ours].TTFTP99 {
		t.Errorf("flooded: %v refused and p99 %v s with a tight queue, %v and %v s without", flood["tight"].Failed, flood["tight"].TTFTP99, flood[Ours].Failed, flood[Ours].TTFTP99)
	}
}
