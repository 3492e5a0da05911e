package core

import (
	"cmp"
	"errors"
	"fmt"
)

// Limits bound what a replica holds of what others say. What is over a limit is
// refused and counted, and is asked for again where that makes sense. A zero means
// the default.
type Limits struct {
	// Streams are the logs of engines' KV events, one for each life of a rank.
	// Default 65,536.
	Streams int `yaml:"streams"`
	// PageValues are what one replica says on one matter: loads, promises, places
	// of responses and so on. Default 65,536.
	PageValues int `yaml:"page_values"`
	// TableRows are what anyone may say on one matter: current boots, operators'
	// decisions. Default 65,536.
	TableRows int `yaml:"table_rows"`
	// Replicas are the others that are known, those that died within the last
	// minute included. Default 1,024.
	Replicas int `yaml:"replicas"`
	// Wants are things that one replica asked for and was not sent yet. Default
	// 131,072.
	Wants int `yaml:"wants"`
	// SnapshotBytes is the largest snapshot of a log that is taken from a replica.
	// Default 512 MiB, some 30 million blocks.
	SnapshotBytes int `yaml:"snapshot_bytes"`
}

// WithDefaults returns l with every zero replaced by its default.
func (l Limits) WithDefaults() Limits {
	l.Streams = cmp.Or(l.Streams, 1<<16)
	l.PageValues = cmp.Or(l.PageValues, 1<<16)
	l.TableRows = cmp.Or(l.TableRows, 1<<16)
	l.Replicas = cmp.Or(l.Replicas, 1<<10)
	l.Wants = cmp.Or(l.Wants, 1<<17)
	l.SnapshotBytes = cmp.Or(l.SnapshotBytes, 512<<20)
	return l
}

// Validate says which limits can't work; each problem begins with its key, as a
// member of limits.
func (l Limits) Validate() error {
	var errs []error
	for _, f := range []struct {
		key string
		is  int
	}{
		{"streams", l.Streams}, {"page_values", l.PageValues}, {"table_rows", l.TableRows},
		{"replicas", l.Replicas}, {"wants", l.Wants}, {"snapshot_bytes", l.SnapshotBytes},
	} {
		if f.is < 1 {
			errs = append(errs, fmt.Errorf("limits.%s is %d: want 1 or more", f.key, f.is))
		}
	}
	return errors.Join(errs...)
}

// Held is how much of its limits a replica uses.
type Held struct {
	Replicas      int
	Wants         int            // of all peers together
	TableRows     [NumTables]int // by table
	SnapshotBytes int            // of those that are put together
}

// Held returns it.
func (c *Core) Held() Held {
	h := Held{Replicas: len(c.peers)}
	for _, name := range c.names {
		p := c.peers[name]
		h.Wants += len(p.tasks)
		for _, a := range p.parts { // order-free: a sum
			h.SnapshotBytes += len(a.bytes)
		}
	}
	for t := range c.tables {
		h.TableRows[t] = c.tables[t].Len()
	}
	return h
}

var tableNames = [NumTables]string{Boots: "boots", Orders: "orders"}

// String returns the table's name as used in metrics.
func (t Table) String() string { return tableNames[t] }
