package mesh

import (
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Streams is told of the streams of engines; see core.Sink.
type Streams interface {
	Changed(id crdt.StreamID, changes []index.Change)
	Replaced(id crdt.StreamID, s *crdt.Stream)
	Trimmed(id crdt.StreamID, tier kv.Tier, blocks int)
	Readers()
}

// ears are who is told of what. They are set before Run and before any Do, and
// called within Do.
type ears struct {
	streams Streams
	pages   [core.NumKinds]func(writer core.Replica, key string, value *crdt.PageItem)
	rows    [core.NumTables]func(row crdt.Register)
	told    [core.NumTopics]func(from string, words []byte)
}

// HearStreams has s told of the engines' streams.
func (n *Node) HearStreams(s Streams) { n.ears.streams = s }

// HearPage has f told of peers' values of one kind: nil for one that went.
func (n *Node) HearPage(k core.Kind, f func(writer core.Replica, key string, value *crdt.PageItem)) {
	n.ears.pages[k] = f
}

// HearRows has f told of a table's rows, whoever wrote them.
func (n *Node) HearRows(t core.Table, f func(row crdt.Register)) { n.ears.rows[t] = f }

// Changed is part of core.Sink.
func (e *ears) Changed(id crdt.StreamID, changes []index.Change) {
	if e.streams != nil {
		e.streams.Changed(id, changes)
	}
}

// Replaced is part of core.Sink.
func (e *ears) Replaced(id crdt.StreamID, s *crdt.Stream) {
	if e.streams != nil {
		e.streams.Replaced(id, s)
	}
}

// Trimmed is part of core.Sink.
func (e *ears) Trimmed(id crdt.StreamID, tier kv.Tier, blocks int) {
	if e.streams != nil {
		e.streams.Trimmed(id, tier, blocks)
	}
}

// Readers is part of core.Sink.
func (e *ears) Readers() {
	if e.streams != nil {
		e.streams.Readers()
	}
}

// Page is part of core.Sink.
func (e *ears) Page(k core.Kind, writer core.Replica, key string, value *crdt.PageItem) {
	if f := e.pages[k]; f != nil {
		f(writer, key, value)
	}
}

// Row is part of core.Sink.
func (e *ears) Row(t core.Table, row crdt.Register) {
	if f := e.rows[t]; f != nil {
		f(row)
	}
}
