package route

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// sessions remembers each session's last worker, within bounds, by a hash of the
// session's name.
type sessions struct {
	last  map[uint64]session
	older map[uint64]session

	// kept is the share of what fallbacks predicted that was cached, of late.
	kept float64
	// since is the clock of a target's cache when a session of an earlier process
	// first asked for it.
	since map[kv.Target]uint64
}

type session struct {
	target kv.Target
	at     clock.Instant
	clock  uint64 // of the target's cache at that time: see fleet.Member.Clock
	slot   index.Slot
	tokens int32 // of its last prompt, and of the answer where answers stay cached
	// Of a session of an earlier process only the age of its prompt is known, in
	// tokens that the cache took in since, and the worker's boot, if it has one.
	restored bool
	age      uint64
	boot     kv.Boot
}

// maxSessions bounds each of the two generations.
const maxSessions = 100_000

func newSessions() *sessions {
	return &sessions{last: make(map[uint64]session), kept: 1, since: make(map[kv.Target]uint64)}
}

func (s *sessions) get(name string) (session, bool) {
	if name == "" {
		return session{}, false
	}
	return s.find(xxh3.HashString(name))
}

func (s *sessions) find(hash uint64) (session, bool) {
	v, ok := s.last[hash]
	if !ok {
		v, ok = s.older[hash]
	}
	return v, ok
}

// put remembers a session's worker. When a generation is full, the one before
// it is forgotten: the least recently used half goes, at no cost per request.
func (s *sessions) put(name string, last session) {
	if name != "" {
		s.set(xxh3.HashString(name), last)
	}
}

func (s *sessions) set(hash uint64, last session) {
	if len(s.last) >= maxSessions {
		s.older, s.last = s.last, make(map[uint64]session)
	}
	s.last[hash] = last
}

// resize notes how large the prompt placed at an instant was, if it is still the
// session's last.
func (s *sessions) resize(name string, at clock.Instant, tokens int) {
	if name == "" {
		return
	}
	hash := xxh3.HashString(name)
	if v, ok := s.last[hash]; ok && v.at == at {
		v.tokens = int32(min(tokens, 1<<30))
		s.last[hash] = v
	}
}

// fallback says what a session's last worker holds of a prompt of which neither
// its blocks nor its bytes are known there, as after a restart: as much as the
// session's last prompt had, if it is not too old, and as such guesses came true
// of late.
func (s *sessions) fallback(last session, m *fleet.Member, c *fleet.Cache, z *sizing) cost.Hit {
	if m.Target != last.target || !last.restored && last.slot != c.Slot {
		return cost.Hit{}
	}
	now := m.Clock(c)
	age := now - min(last.clock, now)
	if last.restored {
		if id, ok := m.Worker.Identity(); ok && id.Boot != 0 && last.boot != 0 && id.Boot != last.boot {
			return cost.Hit{}
		}
		since, known := s.since[last.target]
		if !known {
			since = now
			s.since[last.target] = now
		}
		age = last.age + now - min(since, now)
	}
	h := m.Horizon(c)
	block := max(1, cmp.Or(c.BlockTokens, defaultBlockTokens))
	tokens := float64(min(int(s.kept*float64(last.tokens)), int(z.total)-1) / block * block)
	switch {
	case tokens <= 0:
	case age < h.HBM:
		return cost.Hit{HBMTokens: tokens}
	case age < h.Total:
		return cost.Hit{LowerTokens: tokens, Tier: h.Lower}
	}
	return cost.Hit{}
}

// observe learns how much of what a fallback predicted was cached.
func (s *sessions) observe(predicted, actual int) {
	if predicted > 0 {
		s.kept += 0.1 * (min(1, float64(actual)/float64(predicted)) - s.kept)
	}
}

// SavedSession is where a session was last, in a form that outlives the process.
// Its name can't be told from it.
type SavedSession struct {
	Hash   uint64    // of the session's name
	Target kv.Target // where its last request went
	Since  time.Duration
	Tokens int32   // of its last prompt
	Age    uint64  // tokens that the target's cache took in since
	Boot   kv.Boot // of the target; 0: not known
}

// Sessions returns the sessions that were last seen within a time, the latest
// first, n at most. It holds up decisions only while it copies them.
func (r *Router) Sessions(within time.Duration, n int) []SavedSession {
	members := make(map[kv.Target]*fleet.Member)
	for _, m := range r.deps.Fleet.View().Members {
		members[m.Target] = m
	}
	now, last, older := r.copySessions()
	var all []SavedSession
	add := func(hash uint64, s session) {
		if saved, ok := s.saved(now, members[s.target]); ok && saved.Since <= within {
			saved.Hash = hash
			all = append(all, saved)
		}
	}
	// order-free: sorted below
	for hash, s := range last {
		add(hash, s)
	}
	// order-free: sorted below
	for hash, s := range older {
		if _, twice := last[hash]; !twice {
			add(hash, s)
		}
	}
	slices.SortFunc(all, func(a, b SavedSession) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Hash, b.Hash)) })
	return all[:min(n, len(all))]
}

// copySessions returns both generations of sessions as they are now. The older
// one never changes, so it is no copy.
func (r *Router) copySessions() (now clock.Instant, last, older map[uint64]session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deps.Clock.Now(), maps.Clone(r.sessions.last), r.sessions.older
}

// saved returns a session in its form to be kept, but for its name; false where
// its worker is gone, or the cache that it had.
func (s *session) saved(now clock.Instant, m *fleet.Member) (SavedSession, bool) {
	if m == nil {
		return SavedSession{}, false
	}
	saved := SavedSession{Target: s.target, Since: now.Sub(s.at), Tokens: s.tokens, Age: s.age, Boot: s.boot}
	if s.restored {
		return saved, true
	}
	c := m.Cache()
	if s.slot != c.Slot {
		return SavedSession{}, false
	}
	id, _ := m.Worker.Identity()
	clock := m.Clock(&c)
	saved.Age, saved.Boot = clock-min(s.clock, clock), id.Boot
	return saved, true
}

// RestoreSessions takes over the sessions of an earlier process, which were
// saved so long ago.
func (r *Router) RestoreSessions(saved []SavedSession, ago time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	for i := len(saved) - 1; i >= 0; i-- { // the latest last
		s := &saved[i]
		if _, known := r.sessions.find(s.Hash); known {
			continue
		}
		at := now.Add(-s.Since - max(0, ago))
		r.sessions.set(s.Hash, session{target: s.Target, at: at, tokens: s.Tokens, restored: true, age: s.Age, boot: s.Boot})
	}
}
