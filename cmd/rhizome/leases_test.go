package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
)

// leases is what a replica knows of leases.
func (s *served) leases(t *testing.T) (d lease.Description) {
	t.Helper()
	s.get(t, "/leases", &d)
	return d
}

// step asks a replica for a step of a workflow, and returns the worker.
func (s *served) step(workflow string, prompt []uint32) (string, error) {
	worker, _, err := s.stepOf(workflow, prompt)
	return worker, err
}

// stepOf is step, and returns the request's id.
func (s *served) stepOf(workflow string, prompt []uint32) (worker, id string, err error) {
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": prompt, "max_tokens": 2, "ignore_eos": true})
	if err != nil {
		return "", "", err
	}
	q, err := http.NewRequest(http.MethodPost, s.data+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return "", "", err
	}
	q.Header.Set("X-Agent-Workflow-Id", workflow)
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", "", err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		return "", "", err
	}
	if r.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("%s: %s", r.Status, answer)
	}
	return r.Header.Get("x-rhizome-worker"), r.Header.Get("x-request-id"), nil
}

// agreed reports whether all replicas know the same leases for certain, so many
// of them, and three vote.
func (c *cluster) agreed(leases int) bool {
	var first lease.Description
	voters := 0
	for i, s := range c.replicas {
		d := s.leases(c.t)
		if i == 0 {
			first = d
		}
		if !d.Fresh || d.Digest != first.Digest || d.Leases != leases || d.Leader != first.Leader {
			return false
		}
		if d.Leads {
			for _, x := range d.Servers {
				if x.Voter {
					voters++
				}
			}
			if voters != len(d.Servers) {
				return false
			}
		}
	}
	return voters == 3
}

// betweenCrashes is how long after a crash TestLeasesSurviveCrashes has the next one
// at the earliest: the variable RHIZOME_TEST_CRASHES_EVERY, such as 20s, or as soon
// as all agree again.
func betweenCrashes(t *testing.T) time.Duration {
	text := os.Getenv("RHIZOME_TEST_CRASHES_EVERY")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RHIZOME_TEST_CRASHES_EVERY: %v", err)
	}
	return d
}

// Replicas agree where workflows live, and each of them in turn may crash under
// load and come back as another: no request to the others fails and no lease is
// lost.
func TestLeasesSurviveCrashes(t *testing.T) {
	t.Setenv("RHIZOME_GATEWAY_TRUST_HINTS", "true")
	const workflows = 8
	every := betweenCrashes(t)
	c := newCluster(t, 0, 3)
	kills := make([]func(), 3)
	c.replicas = make([]*served, 3)
	for i := range c.replicas {
		c.replicas[i], kills[i] = c.startProcess()
	}
	c.awaitMesh()
	home := make([]string, workflows)
	for turn := range 2 {
		for w := range workflows {
			worker, err := c.replicas[(w+turn)%3].step(fmt.Sprint("workflow-", w), promptOf(w, turn))
			if err != nil {
				t.Fatal(err)
			}
			home[w] = worker
		}
	}
	// A workflow's first two steps may have come before there was a leader.
	await(t, "all agree on all workflows", func() bool {
		for w := range workflows {
			if _, err := c.replicas[w%3].step(fmt.Sprint("workflow-", w), promptOf(w, 1)); err != nil {
				t.Fatal(err)
			}
		}
		return c.agreed(workflows)
	})
	held := c.replicas[0].leases(t).Held

	var alive [3]atomic.Pointer[served]
	for i, s := range c.replicas {
		alive[i].Store(s)
	}
	var sent atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	endLoad := sync.OnceFunc(func() { close(stop) })
	defer endLoad()
	for i := range alive {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				s := alive[i].Load()
				if s == nil {
					s = alive[(i+1)%3].Load()
				}
				_, err := s.step(fmt.Sprint("workflow-", n%workflows), promptOf(n%workflows, 1))
				if err != nil && s == alive[i].Load() {
					t.Errorf("a request to a replica that lives failed: %v", err)
					return
				}
				sent.Add(1)
			}
		})
	}
	for i := range c.replicas {
		crash := time.Now()
		alive[i].Store(nil)
		kills[i]()
		c.replicas[i], kills[i] = c.startProcess()
		c.replicas[i].awaitReady(t)
		alive[i].Store(c.replicas[i])
		await(t, fmt.Sprintf("all agree after the crash of replica %d", i), func() bool { return c.agreed(workflows) })
		t.Logf("all agree again %v after the crash of replica %d", time.Since(crash).Round(time.Millisecond), i)
		time.Sleep(time.Until(crash.Add(every))) // of load, not for anything to be so
	}
	endLoad()
	wg.Wait()
	t.Logf("%d requests meanwhile", sent.Load())
	if sent.Load() == 0 {
		t.Error("nothing was sent meanwhile")
	}
	now := c.replicas[2].leases(t)
	for _, h := range held {
		if !slices.ContainsFunc(now.Held, func(x lease.Held) bool { return x.Key == h.Key }) {
			t.Errorf("the lease of %s is lost", h.Key)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"ctl", "leases", "--admin", c.replicas[0].admin, "--limit", "2"}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, want := range []string{"leader: ", "8 leases", "all that is agreed is known here", "workflow"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	c.replicas[0].awaitAdmin(t, "/metrics", "rhizome_leases_held 8")
}
