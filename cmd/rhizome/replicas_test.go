package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/route"
)

// asCommand is the variable that has this test's program be rhizome itself.
const asCommand = "RHIZOME_TEST_AS_COMMAND"

// startProcess has one more replica serve, as a process of its own. kill ends it
// as a crash does, with nobody told.
func (c *cluster) startProcess() (s *served, kill func()) {
	c.t.Helper()
	cmd := exec.Command(os.Args[0], c.args()...)
	s = &served{stderr: &lines{more: make(chan struct{}, 1)}}
	cmd.Env, cmd.Stderr = append(os.Environ(), asCommand+"=1"), s.stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	s.process = cmd.Process
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // with the signal
	})
	c.t.Cleanup(kill)
	c.serving(s)
	return s, kill
}

// awaitReaders waits until each worker is read by one replica. Replicas that
// start together begin with reading all.
func (c *cluster) awaitReaders() {
	c.t.Helper()
	await(c.t, "each worker is read by one replica", func() bool {
		read := 0
		for _, s := range c.replicas {
			var index fleet.IndexState
			s.get(c.t, "/index", &index)
			for _, cache := range index.Caches {
				if cache.Reads {
					read++
				}
			}
		}
		return read == len(c.group.Workers())
	})
}

// turn asks a replica to go on from a prompt, and returns the worker that did,
// and the request's id.
func (s *served) turn(t *testing.T, prompt []uint32) (worker, id string, err error) {
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": prompt, "max_tokens": 4, "ignore_eos": true})
	if err != nil {
		return "", "", err
	}
	r, err := http.Post(s.data+"/v1/completions", "application/json", bytes.NewReader(body))
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

// knew reports whether a replica knew of a worker with so much of a request's
// prompt, or more, when it decided.
func (s *served) knew(t *testing.T, id string, tokens int) bool {
	t.Helper()
	var decision route.Explanation
	s.get(t, "/explain/"+id, &decision)
	return slices.ContainsFunc(decision.Candidates, func(c route.Candidate) bool { return c.HBMTokens >= tokens })
}

// promptOf is the prompt of a session after its turn, in tokens.
func promptOf(session, turn int) []uint32 {
	ids := make([]uint32, 1024+64*turn)
	for i := range ids {
		ids[i] = (uint32(session)*2654435761+uint32(i)*40503)>>8%30_000 + 10
	}
	return ids
}

// A replica that is killed takes no request of the others with it, and nothing of
// what they know; they go on reading the engines that it read. It comes back as
// another replica at another port, and within 2 s knows what they know.
func TestAReplicaIsKilled(t *testing.T) {
	c := newCluster(t, 0, 3)
	kills := make([]func(), 3)
	for i := range kills {
		s, kill := c.startProcess()
		c.replicas, kills[i] = append(c.replicas, s), kill
	}
	c.awaitMesh()
	c.awaitReaders()
	const sessions = 12
	begin := func(replicas []*served, from int) {
		for n := from; n < from+sessions; n++ {
			if _, _, err := replicas[n%len(replicas)].turn(t, promptOf(n, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin(c.replicas, 0)
	stop, sent := make(chan struct{}), atomic.Int32{}
	var wg sync.WaitGroup
	others, third := c.replicas[:2], c.replicas[2]
	for i, s := range others {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Few prompts, so that they don't push out those of the sessions.
				if _, _, err := s.turn(t, promptOf(1000*(i+1)+n%8, 0)); err != nil {
					t.Errorf("replica %d: %v", i, err)
				}
				sent.Add(1)
			}
		})
	}
	name := third.mesh(t).Replica
	kills[2]()
	for i, s := range others {
		await(t, fmt.Sprintf("replica %d notices", i), func() bool {
			for _, m := range s.mesh(t).Members {
				if m.Name == name {
					return !m.Alive
				}
			}
			return true
		})
	}
	c.replicas = others
	c.awaitReaders() // all of them, again
	begin(others, sessions)

	// A machine that is busy with other things may need some attempts.
	var again *served
	took := time.Duration(0)
	for range 5 {
		var kill func()
		again, kill = c.startProcess()
		began := time.Now()
		again.awaitReady(t)
		if took = time.Since(began); took < warmWithin {
			break
		}
		kill()
	}
	close(stop)
	wg.Wait()
	m := again.mesh(t)
	if took >= warmWithin || !m.Warm || m.Streams.Held < 3 || m.Replica == name {
		t.Errorf("it came back after %v as %+v", took, m)
	}
	t.Logf("%d requests meanwhile; it was warm %v after it had joined", sent.Load(), took)
	if sent.Load() == 0 {
		t.Error("nothing was sent meanwhile")
	}
	for i, s := range []*served{again, others[0], others[1]} {
		knew := 0
		for n := range 2 * sessions {
			_, id, err := s.turn(t, promptOf(n, 1))
			if err != nil {
				t.Fatal(err)
			}
			if s.knew(t, id, len(promptOf(n, 0))) {
				knew++
			}
		}
		if knew < 2*sessions {
			t.Errorf("replica %d of those left knows of %d of %d sessions", i, knew, 2*sessions)
		}
	}
}

// warmWithin is how long a replica may take to know what its peers do.
const warmWithin = 2 * time.Second

// What an operator decides at one replica holds at all.
func TestCtlDecidesForAllReplicas(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.awaitMesh()
	url := c.group.Workers()[0].URL()
	c.replicas[0].ctl(t, 0, "drain", url)
	c.replicas[1].awaitAdmin(t, "/workers", `"grade": "draining"`)
	for n := range 4 {
		worker, _, err := c.replicas[1].turn(t, promptOf(n, 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range c.replicas[1].workers(t) {
			if d.ID == worker && d.Worker == url {
				t.Error("a drained worker got a request")
			}
		}
	}
	c.replicas[1].ctl(t, 0, "undrain", url)
	await(t, "it is undrained at the other", func() bool {
		for _, d := range c.replicas[0].workers(t) {
			if d.Grade == "draining" {
				return false
			}
		}
		return true
	})
}

// Whichever replica passes a request on, the worker gets the client's bytes.
func TestBR15_SameBytesThroughEveryReplica(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			fmt.Fprint(w, `{"data":[{"id":"m","object":"model"}]}`)
		case "/v1/chat/completions":
			b, _ := io.ReadAll(r.Body) // a short one shows
			mu.Lock()
			bodies = append(bodies, string(b))
			mu.Unlock()
			fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer worker.Close()
	c := newCluster(t, 0, 0)
	for range 2 {
		c.replicas = append(c.replicas, c.start("--worker", worker.URL))
	}
	c.awaitMesh()
	var tools []string
	for i := range 30 {
		tools = append(tools, fmt.Sprintf(`{"type":"function","function":{"name":"t%d","parameters":{"type":"object","z":{"b":1,"a":[2,{"y":0,"x":1e2}]},"properties":{"q%d":{}}}}}`, i, i))
	}
	body := `{"tools":[` + strings.Join(tools, ",") + `], "model":"m" ,"messages":[{"role":"user","content":"hi"}]}`
	for n := range 20 {
		r, err := http.Post(c.replicas[n%2].data+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) != 20 {
		t.Fatalf("%d bodies came", len(bodies))
	}
	for i, b := range bodies {
		if b != body {
			t.Fatalf("body %d is\n%s\nwant\n%s", i, b, body)
		}
	}
}

// A response that was made through one replica is found through another: engines
// keep them in their own memory.
func TestResponsesAreFoundThroughAnyReplica(t *testing.T) {
	var made atomic.Int32
	c := newCluster(t, 0, 0)
	var flags []string
	for range 3 {
		worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/models":
				fmt.Fprint(w, `{"data":[{"id":"m","object":"model"}]}`)
			case "/v1/responses":
				fmt.Fprintf(w, `{"id":"resp_%d","object":"response","output":[]}`, made.Add(1))
			default:
				http.NotFound(w, r)
			}
		}))
		defer worker.Close()
		flags = append(flags, "--worker", worker.URL)
	}
	for range 2 {
		c.replicas = append(c.replicas, c.start(flags...))
	}
	c.awaitMesh()
	ask := func(s *served, more string) (worker, id string) {
		r, body := s.ask(t, "/v1/responses", `{"model":"m","input":"hi"`+more+`}`)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", r.Status, body)
		}
		var answer struct{ ID string }
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		return r.Header.Get("x-rhizome-worker"), answer.ID
	}
	for range 12 {
		home, id := ask(c.replicas[0], "")
		await(t, "the other replica knows of it", func() bool {
			return c.replicas[1].mesh(t).Pages["responses"] >= int(made.Load())
		})
		if worker, _ := ask(c.replicas[1], `,"previous_response_id":"`+id+`"`); worker != home {
			t.Fatalf("%s was made by %s, and asked for at %s", id, home, worker)
		}
	}
}
