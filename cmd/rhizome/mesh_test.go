package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/mesh"
)

// cluster is replicas that share a mesh, over the same emulated workers.
type cluster struct {
	t        *testing.T
	group    *emulator.Group
	secret   string // file
	addrs    []string
	replicas []*served
}

func newCluster(t *testing.T, replicas, workers int) *cluster {
	t.Helper()
	preset, err := model.PresetByName("llama3-8b-h100")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, secret: filepath.Join(t.TempDir(), "secret")}
	write(t, c.secret, "not-a-secret: 0123456789abcdefghijklmnopqrstuvwxyz\n")
	if workers == 0 {
		return c
	}
	c.group, err = emulator.StartGroup(t.Context(), emulator.GroupConfig{Workers: workers, AnyPorts: true,
		Config: emulator.Config{Model: "m", Preset: preset, Speedup: 5}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.group.Close(); http.DefaultClient.CloseIdleConnections() })
	for range replicas {
		c.replicas = append(c.replicas, c.start())
	}
	return c
}

// start has one more replica serve, which is told of all before it.
func (c *cluster) start(more ...string) *served {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	s := &served{stderr: &lines{more: make(chan struct{}, 1)}}
	ended := make(chan int, 1)
	args := append(c.args(), more...)
	go func() { ended <- run(ctx, args, io.Discard, s.stderr) }()
	var once sync.Once
	code := 0
	s.stop = func() int {
		once.Do(func() { cancel(); code = <-ended })
		return code
	}
	c.t.Cleanup(func() { s.stop() })
	c.serving(s)
	return s
}

// args are the command line of the next replica.
func (c *cluster) args() []string {
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--mesh-listen", "127.0.0.1:0", "--mesh-secret", "file:" + c.secret, "--grace", "5s"}
	if c.group != nil {
		for _, spec := range c.group.Specs() {
			args = append(args, "--worker", spec)
		}
	}
	for _, addr := range c.addrs {
		args = append(args, "--peer", addr)
	}
	return args
}

// serving waits until a replica serves, and notes where.
func (c *cluster) serving(s *served) {
	c.t.Helper()
	c.addrs = append(c.addrs, s.stderr.await(c.t, `msg="in the mesh" replica="(\S+) `)[1])
	m := s.stderr.await(c.t, `msg=serving data=(\S+) admin=(\S+)`)
	s.data, s.admin = m[1], m[2]
}

// get reads what the admin API tells at a path.
func (s *served) get(t *testing.T, path string, into any) {
	t.Helper()
	r, err := http.Get(s.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// mesh is what it tells of the mesh, and workers what of workers.
func (s *served) mesh(t *testing.T) (state mesh.State) {
	t.Helper()
	s.get(t, "/mesh", &state)
	return state
}

func (s *served) workers(t *testing.T) (all []fleet.Description) {
	t.Helper()
	s.get(t, "/workers", &all)
	return all
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// awaitMesh waits until all replicas are ready, and connected to all others.
func (c *cluster) awaitMesh() {
	c.t.Helper()
	for i, s := range c.replicas {
		s.awaitReady(c.t)
		await(c.t, fmt.Sprintf("replica %d is connected to all", i), func() bool { return s.up(c.t) == len(c.replicas)-1 })
	}
}

// up counts the peers that a replica is connected to.
func (s *served) up(t *testing.T) (n int) {
	for _, m := range s.mesh(t).Members {
		if m.Up {
			n++
		}
	}
	return n
}

// Two replicas find each other by one address, show it, and tell goodbyes from
// deaths; secrets are nowhere shown.
func TestReplicasSeeEachOther(t *testing.T) {
	c := newCluster(t, 2, 1)
	c.awaitMesh()
	a, b := c.replicas[0], c.replicas[1]
	state := a.mesh(t)
	if !state.Enabled || !state.Warm || state.Address != c.addrs[0] || state.Members[0].Address != c.addrs[1] || state.Members[0].Name != b.mesh(t).Replica {
		t.Errorf("state %+v", state)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"ctl", "mesh", "--admin", a.admin}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, want := range []string{state.Replica, "this one, warm", b.mesh(t).Replica, c.addrs[1], "  up  ", "cluster default", "0 corrupted"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	a.awaitAdmin(t, "/metrics", `rhizome_mesh_members{state="up"} 1`)
	a.awaitAdmin(t, "/metrics", "rhizome_mesh_corruption_total 0")
	if secret, _ := os.ReadFile(c.secret); strings.Contains(a.stderr.String(), strings.TrimSpace(string(secret))) {
		t.Error("the log shows the secret")
	}
	a.awaitAdmin(t, "/config", `file:`+c.secret)
	if code := b.stop(); code != 0 {
		t.Errorf("exit %d: %s", code, b.stderr.String())
	}
	a.stderr.await(t, `msg="a replica has left"`)
}

// Without settings there is no mesh and no socket, and the admin API says so.
func TestNoMeshWithoutASecret(t *testing.T) {
	s := serve(t, 1)
	if state := s.mesh(t); state.Enabled {
		t.Errorf("state %+v", state)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"ctl", "mesh", "--admin", s.admin}, &out, &errs); code != 0 || !strings.Contains(out.String(), "alone") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
	errs.Reset()
	if code := run(t.Context(), []string{"serve", "--worker", "http://127.0.0.1:1", "--peer", "127.0.0.1:2"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "nobody could be trusted") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

// Replicas that are at the same batch of an engine's log show the same digest.
func TestReplicasShowEqualStreams(t *testing.T) {
	c := newCluster(t, 2, 1)
	c.awaitMesh()
	c.awaitReaders()
	if _, _, err := c.replicas[0].turn(t, promptOf(1, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, "both replicas hold the same of the worker", func() bool {
		var a, b []mesh.HeldStream
		c.replicas[0].get(t, "/mesh/streams", &a)
		c.replicas[1].get(t, "/mesh/streams", &b)
		if len(a) != 1 || len(b) != 1 || a[0].Next == 0 || a[0].Next != b[0].Next || a[0].Boot != b[0].Boot {
			return false
		}
		if a[0].Digest != b[0].Digest || a[0].Skips != b[0].Skips || a[0].Worker != c.replicas[0].workers(t)[0].ID {
			t.Fatalf("one shows %+v, the other %+v", a[0], b[0])
		}
		return true
	})
}
