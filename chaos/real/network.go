//go:build linux

package real

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The plan of addresses: the third byte says whose one is, the last which of
// its lives.
const (
	hubAddress   = "10.77.0.1"
	workersThird = 200
	replicaThird = 10 // of replica 0
	maxReplicas  = 100
	maxLives     = 250
)

// replicaAddress is where a replica's life is reached by clients and workers.
func replicaAddress(n, life int) string {
	return fmt.Sprintf("10.77.%d.%d", replicaThird+n, 1+life%maxLives)
}

// tunnelAddress is where its peers reach it when the mesh runs over the switch.
func tunnelAddress(n, life int) string {
	return fmt.Sprintf("10.78.%d.%d", replicaThird+n, 1+life%maxLives)
}

func workerAddress(n int) string { return fmt.Sprintf("10.77.%d.%d", workersThird, 1+n) }

// network is the namespaces of a run.
type network struct {
	owner    owner
	hub      *namespace
	workers  *namespace
	replicas []*namespace
	rules    rules
}

// newNetwork makes the namespaces and joins them by a bridge. What it made of
// one that fails is removed by close.
func newNetwork(o owner, replicas, workers int) (*network, error) {
	n := &network{owner: o, rules: newRules(replicas)}
	err := n.build(replicas, workers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the namespaces: %w", err), n.close())
	}
	return n, nil
}

func (n *network) build(replicas, workers int) (err error) {
	if n.hub, err = newNamespace(n.owner.name("hub")); err != nil {
		return err
	}
	if err := n.hub.ip("link", "add", "br0", "type", "bridge"); err != nil {
		return err
	}
	if err := n.hub.ip("addr", "add", hubAddress+"/16", "dev", "br0"); err != nil {
		return err
	}
	if err := n.hub.ip("link", "set", "br0", "up"); err != nil {
		return err
	}
	if n.workers, err = n.join("workers"); err != nil {
		return err
	}
	for i := range workers {
		if err := n.workers.ip("addr", "add", workerAddress(i)+"/16", "dev", "eth0"); err != nil {
			return err
		}
	}
	for i := range replicas {
		r, err := n.join(fmt.Sprintf("r%d", i))
		if err != nil {
			return err
		}
		n.replicas = append(n.replicas, r)
		if err := r.rule(n.rules.text(i)); err != nil {
			return err
		}
	}
	return nil
}

// join makes a namespace with a link to the bridge.
func (n *network) join(what string) (*namespace, error) {
	s, err := newNamespace(n.owner.name(what))
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"link", "add", "to-" + what, "type", "veth", "peer", "name", "eth0", "netns", s.name},
		{"link", "set", "to-" + what, "master", "br0", "up"},
	} {
		if err := n.hub.ip(args...); err != nil {
			return nil, err
		}
	}
	return s, s.ip("link", "set", "eth0", "up")
}

// move gives a replica the addresses of its next life and takes the old ones.
func (n *network) move(replica, life int, tunnel bool) error {
	s := n.replicas[replica]
	if err := s.ip("addr", "flush", "dev", "eth0"); err != nil {
		return err
	}
	if err := s.ip("addr", "add", replicaAddress(replica, life)+"/16", "dev", "eth0"); err != nil || !tunnel {
		return err
	}
	if err := s.ip("addr", "flush", "dev", tunnelDevice); err != nil {
		return err
	}
	return s.ip("addr", "add", tunnelAddress(replica, life)+"/16", "dev", tunnelDevice)
}

// way is the one from a replica to another.
type way struct{ from, to int }

// cut adds or takes away a reason to drop what goes such ways. All receivers are
// told at once, so that a cut begins and ends everywhere at about the same time.
func (n *network) cut(ways []way, more bool) error {
	var changed []int
	for _, w := range ways {
		if n.rules.cut(w.from, w.to, more) && !slices.Contains(changed, w.to) {
			changed = append(changed, w.to)
		}
	}
	return together(changed, func(to int) error { return n.replicas[to].rule(n.rules.text(to)) })
}

// narrow lets a replica send so many bytes a second at most; 0 for no limit.
func (n *network) narrow(replica int, bytesPerSecond float64) error {
	s := n.replicas[replica]
	if bytesPerSecond <= 0 {
		return s.run("", "tc", "qdisc", "del", "dev", "eth0", "root")
	}
	return s.run("", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprintf("%.0fbit", 8*bytesPerSecond), "burst", "32kb", "latency", "200ms")
}

// name says which addresses the replicas' name has, in all namespaces.
func (n *network) name(addresses []string) error {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n")
	for _, a := range addresses {
		fmt.Fprintf(&text, "%s %s\n", a, replicasName)
	}
	for _, s := range n.replicas {
		if err := s.show("hosts", text.String()); err != nil {
			return err
		}
	}
	return nil
}

// replicasName is what replicas look each other up by.
const replicasName = "replicas"

// close removes the namespaces. It may be called on one that was built in part.
func (n *network) close() error {
	for _, s := range append([]*namespace{n.hub, n.workers}, n.replicas...) {
		if s != nil {
			s.fd.Close()
		}
	}
	_, err := sweep(func(o owner) bool { return o == n.owner })
	return err
}

// show has a namespace's processes see a file in place of the one in /etc. The
// file is written in place, for they hold on to it.
func (s *namespace) show(file, text string) error {
	dir := filepath.Join(perNamespace, s.name)
	err := os.MkdirAll(dir, 0o755)
	for range 10 {
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
		err = os.MkdirAll(dir, 0o755) // another run, at its end, found the parent empty and removed it
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}
