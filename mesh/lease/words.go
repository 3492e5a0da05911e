package lease

import (
	"errors"
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/crdt/wire"
)

// What replicas tell each other about agreement begins with its kind:
//
//	advert    see advert
//	invite    cluster: run Raft in it
//	propose   a proposal, for the leader to put into the log
//	read      no, key; answer: no, known, found, cluster, index, lease
//	ask       cluster, index: what was agreed after it, please
//	entries   cluster, the index before them; index, proposal, …
//	part      cluster, index, part, parts, bytes of a snapshot
type word uint8

const (
	wordAdvert word = iota + 1
	wordInvite
	wordPropose
	wordRead
	wordAnswer
	wordAsk
	wordEntries
	wordPart
)

var errWord = errors.New("not a word about agreement")

const maxServers = 64

func say(k word, fields int) *wire.Writer {
	w := wire.NewWriter(nil)
	w.Array(1 + fields)
	w.Uint(uint64(k))
	return w
}

// hear begins to read words.
func hear(b []byte) (word, int, *wire.Reader) {
	r := wire.NewReader(b)
	n := r.Array(1)
	return word(r.Uint(math.MaxUint8)), n - 1, r
}

func need(r *wire.Reader, n, want int) {
	if n != want {
		r.Fail(fmt.Errorf("%w: %d fields, want %d", errWord, n, want))
	}
}

const advertFields = 14

func (a *advert) words() []byte {
	w := say(wordAdvert, advertFields)
	for _, v := range [...]uint64{uint64(a.Cluster), a.Gen, a.Index, a.Inc, a.Applied, a.Low, a.Term, uint64(a.Voters), uint64(a.YieldTo)} {
		w.Uint(v)
	}
	w.String(a.Server)
	w.Bool(a.Leaving)
	w.Bool(a.Leads)
	w.Array(2 * len(a.Servers))
	for _, s := range a.Servers {
		w.String(s.ID)
		w.Bool(s.Voter)
	}
	w.Uint(0) // room for what a later version adds
	return w.Bytes()
}

func readAdvert(r *wire.Reader, n int) (a advert) {
	need(r, n, advertFields)
	a.Cluster, a.Gen, a.Index, a.Inc = Cluster(r.Uint(math.MaxUint64)), r.Uint(math.MaxUint32), r.Uint(math.MaxUint64), r.Uint(math.MaxUint32)
	a.Applied, a.Low, a.Term = r.Uint(math.MaxUint64), r.Uint(math.MaxUint64), r.Uint(math.MaxUint64)
	a.Voters, a.YieldTo = int(r.Uint(maxServers)), Cluster(r.Uint(math.MaxUint64))
	a.Server, a.Leaving, a.Leads = r.String(maxNameBytes), r.Bool(), r.Bool()
	servers := r.Array(2)
	if servers > maxServers {
		r.Fail(fmt.Errorf("%w: %d servers", errWord, servers))
		return a
	}
	for range servers {
		a.Servers = append(a.Servers, server{r.String(maxNameBytes), r.Bool()})
	}
	r.Uint(math.MaxUint64)
	return a
}

func inviteWords(c Cluster) []byte {
	w := say(wordInvite, 1)
	w.Uint(uint64(c))
	return w.Bytes()
}

func proposeWords(proposal []byte) []byte {
	w := say(wordPropose, 1)
	w.Data(proposal)
	return w.Bytes()
}

func readWords(no uint64, k Key) []byte {
	w := say(wordRead, 2)
	w.Uint(no)
	w.Data(k[:])
	return w.Bytes()
}

const answerFields = 5 + leaseFields

// answer is what the leader knows of a workflow's lease.
type answer struct {
	no           uint64
	known, found bool
	at           place
	lease        Lease
}

func (a *answer) words() []byte {
	w := say(wordAnswer, answerFields)
	w.Uint(a.no)
	w.Bool(a.known)
	w.Bool(a.found)
	w.Uint(uint64(a.at.cluster))
	w.Uint(a.at.index)
	a.lease.put(w)
	return w.Bytes()
}

func readAnswer(r *wire.Reader, n int) answer {
	need(r, n, answerFields)
	return answer{r.Uint(math.MaxUint64), r.Bool(), r.Bool(), place{Cluster(r.Uint(math.MaxUint64)), r.Uint(math.MaxUint64)}, readLease(r)}
}

func askWords(c Cluster, index uint64) []byte {
	w := say(wordAsk, 2)
	w.Uint(uint64(c))
	w.Uint(index)
	return w.Bytes()
}

func entriesWords(c Cluster, before uint64, entries []entry) []byte {
	w := say(wordEntries, 2+2*len(entries))
	w.Uint(uint64(c))
	w.Uint(before)
	for _, e := range entries {
		w.Uint(e.index)
		w.Data(e.bytes)
	}
	return w.Bytes()
}

// readEntries reads what entriesWords wrote; the entries lie in the words.
func readEntries(r *wire.Reader, n int) (c Cluster, before uint64, entries []entry) {
	if n < 2 || n%2 != 0 {
		r.Fail(fmt.Errorf("%w: %d fields", errWord, n))
		return 0, 0, nil
	}
	c, before = Cluster(r.Uint(math.MaxUint64)), r.Uint(math.MaxUint64)
	last := before
	for range (n - 2) / 2 {
		e := entry{index: r.Uint(math.MaxUint64), bytes: r.Data(maxProposal)}
		if e.index <= last {
			r.Fail(fmt.Errorf("%w: entries out of order", errWord))
			return 0, 0, nil
		}
		last = e.index
		entries = append(entries, e)
	}
	return c, before, entries
}

const partFields = 5

// part is a piece of a snapshot.
type part struct {
	cluster   Cluster
	index     uint64
	no, parts int
	bytes     []byte
}

func (p *part) words() []byte {
	w := say(wordPart, partFields)
	for _, v := range [...]uint64{uint64(p.cluster), p.index, uint64(p.no), uint64(p.parts)} {
		w.Uint(v)
	}
	w.Data(p.bytes)
	return w.Bytes()
}

const (
	partBytes = 256 << 10
	maxParts  = 256 // 64 MiB
)

func readPart(r *wire.Reader, n int) part {
	need(r, n, partFields)
	return part{Cluster(r.Uint(math.MaxUint64)), r.Uint(math.MaxUint64), int(r.Uint(maxParts)), int(r.Uint(maxParts)), r.Data(partBytes)}
}
