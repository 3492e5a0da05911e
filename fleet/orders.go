package fleet

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// What the admin API of any replica decided of a worker is a row of the table of
// orders, by the worker's id: whether it is removed, whether it drains, and the
// spec with which it was added, as a line of text, with the host on which that
// means something (see record). No decision is a row too: one that was undone.
const orderFields = 4

func orderKey(id kv.WorkerID) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(id)))
}

func orderID(key string) (kv.WorkerID, bool) {
	if len(key) != 8 {
		return 0, false
	}
	return kv.WorkerID(binary.BigEndian.Uint64([]byte(key))), true
}

func (r *Registry) orderRow(removed, drained bool, added *discover.Found) string {
	w := wire.NewWriter(nil)
	w.Array(orderFields)
	w.Bool(removed)
	w.Bool(drained)
	line, host := "", ""
	if added != nil {
		line, host = added.Spec.String(), r.hostOf(added.Spec)
	}
	w.String(line)
	w.String(host)
	return string(w.Bytes())
}

// orders are the rows of all decisions here. A worker that was added with a
// token stays here: peers are told no tokens. It needs mu.
func (r *Registry) orders() map[string]string {
	added := make(map[kv.WorkerID]*discover.Found)
	for i, f := range r.added {
		if f.Spec.Token == "" {
			added[r.fleet.idOf(f.Spec)] = &r.added[i]
		}
	}
	rows := make(map[string]string)
	for _, decided := range []map[kv.WorkerID]bool{r.removed, r.drained} {
		for id := range decided { // order-free: a map
			rows[orderKey(id)] = r.orderRow(r.removed[id], r.drained[id], added[id])
		}
	}
	for id, f := range added { // order-free: a map
		rows[orderKey(id)] = r.orderRow(r.removed[id], r.drained[id], f)
	}
	return rows
}

// announce tells peers which decisions were made here, and undone, since it was
// called last. It needs mu, and is called within Do of the mesh.
func (r *Registry) announce(now clock.Instant, c *core.Core, rows map[string]string) {
	tell := func(key, row string) {
		r.obeyed[key] = row
		c.Set(now, core.Orders, key, 0, []byte(row))
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if r.decided[key] != rows[key] {
			tell(key, rows[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.decided)) {
		if _, still := rows[key]; !still {
			tell(key, r.orderRow(false, false, nil))
		}
	}
	r.decided = rows
}

// obey makes a row's decision one of this replica. It needs mu.
func (r *Registry) obey(key, row string) {
	if r.obeyed[key] == row {
		return
	}
	id, ok := orderID(key)
	if !ok {
		return
	}
	rd := wire.NewReader([]byte(row))
	n := rd.Array(1)
	if n < orderFields {
		return
	}
	removed, drained, line, host := rd.Bool(), rd.Bool(), rd.String(maxLineBytes), rd.String(maxTextBytes)
	rd.Skip(n - orderFields)
	if rd.End() != nil || r.decisions() >= discover.MaxWorkers && (removed || drained || line != "") {
		return
	}
	r.obeyed[key] = row
	log := r.fleet.deps.Log.With("id", id)
	log.Info("a worker was decided on at another replica", "removed", removed, "drained", drained, "added", line)
	set := func(m map[kv.WorkerID]bool, is bool) {
		if is {
			m[id] = true
		} else {
			delete(m, id)
		}
	}
	set(r.removed, removed)
	set(r.drained, drained)
	r.added = slices.DeleteFunc(slices.Clone(r.added), func(f discover.Found) bool { return f.Spec.Token == "" && r.fleet.idOf(f.Spec) == id })
	if line == "" {
		return
	}
	spec, err := r.vetLine(line, host)
	switch {
	case errors.Is(err, errElsewhere):
	case err != nil:
		log.Warn("a worker that was added at another replica can't be used", "worker", spec, "err", err)
	case r.fleet.idOf(spec) == id:
		r.added = append(r.added, discover.Found{Spec: spec})
	}
}
