package fleet

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/index"
)

// However many workers peers list, of all that they list together the fleet takes
// as many as a list may have, and says of as many why it does not take them.
func TestPeersListsAreBounded(t *testing.T) {
	f, err := New(Config{}, Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)},
		nil, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(f)
	var records [][]byte
	for i := range discover.MaxWorkers + 10 {
		good := discover.Found{Spec: engine.Spec{URL: fmt.Sprintf("http://w%05d:1", i)}}
		bad := discover.Found{Spec: engine.Spec{URL: fmt.Sprintf("http://169.254.%d.%d:1", i>>8, i&255)}}
		records = append(records, []byte(r.record(good)), []byte(r.record(bad)))
	}
	good, refused := r.vetPeers(records)
	if len(good) != discover.MaxWorkers || len(refused) != discover.MaxWorkers {
		t.Errorf("%d workers are taken, %d refused", len(good), len(refused))
	}
}
