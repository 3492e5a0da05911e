package gateway

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// rate is what one tenant may have; 0 means no limit.
type rate struct {
	maxInFlight int
	perSecond   float64
}

// limiter counts one tenant's requests: how many there are, and how many began.
// The two are separate: a long stream stays in flight until it ends.
type limiter struct {
	mu       sync.Mutex
	rate     rate
	inFlight int
	tokens   float64 // requests that may begin at once
	at       clock.Instant
}

// limiters holds the tenants' limiters across changes of the config. There are
// as many as the config names.
type limiters struct {
	mu       sync.Mutex
	byTenant map[string]*limiter
}

func newLimiters() *limiters { return &limiters{byTenant: make(map[string]*limiter)} }

// of returns a tenant's limiter with that rate; nil for one without limits.
func (l *limiters) of(tenant string, r rate) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.byTenant[tenant]
	if !ok && r == (rate{}) {
		return nil
	}
	if !ok {
		t = &limiter{tokens: math.Inf(1)} // full: cut to the burst when first used
		l.byTenant[tenant] = t
	}
	t.mu.Lock()
	t.rate = r
	t.mu.Unlock()
	return t
}

// enter takes one request in, or says after how long there may be room. Every
// success wants one leave.
func (l *limiter) enter(now clock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if per := l.rate.perSecond; per > 0 {
		l.tokens = min(max(1, per), l.tokens+per*now.Sub(l.at).Seconds())
		l.at = now
		if l.tokens < 1 {
			wait := time.Duration((1 - l.tokens) / per * float64(time.Second))
			return &limitError{wait, fmt.Sprintf("the limit is %v requests a second", per)}
		}
	}
	if most := l.rate.maxInFlight; most > 0 && l.inFlight >= most {
		return &limitError{time.Second, fmt.Sprintf("the limit is %d requests at a time", most)}
	}
	if l.rate.perSecond > 0 {
		l.tokens--
	}
	l.inFlight++
	return nil
}

func (l *limiter) leave() {
	l.mu.Lock()
	l.inFlight--
	l.mu.Unlock()
}

// limitError says that a tenant has too much going on.
type limitError struct {
	retryAfter time.Duration
	msg        string
}

func (e *limitError) Error() string { return "too many requests: " + e.msg }
