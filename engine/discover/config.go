package discover

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/engine"
)

// Config says where workers are found besides the list of the configuration
// itself. What several sources find is one worker; of what they say of it, that
// of the first in this order holds: the admin API, the configuration's list,
// files, Kubernetes, DNS.
type Config struct {
	// Files are lists of workers in YAML or JSON, each item as under workers. They
	// are followed; a file that can't be read whole keeps the list before.
	Files []string `yaml:"files,omitempty"`
	// DNS are names whose addresses, or SRV records, are workers.
	DNS []DNSConfig `yaml:"dns,omitempty"`
	// Kubernetes is the cluster in which pods are workers.
	Kubernetes KubernetesConfig `yaml:"kubernetes,omitempty"`
}

// DNSConfig is one name in DNS.
type DNSConfig struct {
	// Name is looked up for addresses, or SRV records.
	Name string `yaml:"name"`
	// Port is the workers' port; with SRV the records tell it.
	Port int `yaml:"port,omitempty"`
	// SRV looks up SRV records, whose targets and ports are the workers. Default
	// false: each address of the name is one; IPv6 ones where there is no IPv4.
	SRV bool `yaml:"srv,omitempty"`
	// Interval is the time between two looks, 100 ms or more. Default 5 s.
	Interval time.Duration `yaml:"interval,omitempty"`
	// KeepFor is how long the last list stays in force while looks fail, or find
	// nothing. Default 1 min.
	KeepFor time.Duration `yaml:"keep_for,omitempty"`
	// Pool says what all these workers have in common.
	Pool PoolConfig `yaml:"pool,omitempty"`
}

// KubernetesConfig says how to ask the cluster's API, and for what.
type KubernetesConfig struct {
	// Server is the URL of the API. Default https://kubernetes.default.svc.
	Server string `yaml:"server,omitempty"`
	// TokenFile holds the bearer token; it is read again for each request.
	// Default: the service account's.
	TokenFile string `yaml:"token_file,omitempty"`
	// CAFile holds the certificates that the API's is checked against; it is
	// followed. Default: the service account's.
	CAFile string `yaml:"ca_file,omitempty"`
	// Resync is the time after which everything is listed anew, though a watch
	// tells of changes: a change that got lost is made up for by then. 1 s or
	// more; default 1 min.
	Resync time.Duration `yaml:"resync,omitempty"`
	// Pods are the sets of pods that are workers. Default: none, and the API is
	// not asked.
	Pods []PodsConfig `yaml:"pods,omitempty"`
}

// PodsConfig is one set of pods.
type PodsConfig struct {
	// Namespace is where they are. Default: the router's own.
	Namespace string `yaml:"namespace,omitempty"`
	// Selector picks pods by their labels, as kubectl's --selector does. Either
	// it or Service is given.
	Selector string `yaml:"selector,omitempty"`
	// Service picks the endpoints of a Service of this name, by its
	// EndpointSlices. Pods' annotations aren't seen then.
	Service string `yaml:"service,omitempty"`
	// Port is the name of the pods' port, or its number. Default: the only one.
	Port string `yaml:"port,omitempty"`
	// Pool says what all these workers have in common; annotations of a pod
	// (rhizome.dev/model and so on) go before it.
	Pool PoolConfig `yaml:"pool,omitempty"`
}

// PoolConfig is what workers that are found together have in common.
type PoolConfig struct {
	// Scheme is http or https. Default http.
	Scheme string `yaml:"scheme,omitempty"`
	// Engine is what runs there: vllm or sglang. Empty: the workers are asked.
	Engine string `yaml:"engine,omitempty"`
	// EventsPort is the port on which rank 0 publishes KV events. Default: the
	// workers are asked, or the usual port is tried.
	EventsPort int `yaml:"events_port,omitempty"`
	// ReplayPort is the port on which rank 0 replays them. Default: none.
	ReplayPort int `yaml:"replay_port,omitempty"`
	// Ranks is the number of data-parallel ranks. Default 1.
	Ranks int `yaml:"dp,omitempty"`
	// Model is the model's name in block keys. Empty: the first that a worker
	// lists.
	Model string `yaml:"model,omitempty"`
	// Preset names the engine constants to assume until they are measured.
	Preset string `yaml:"preset,omitempty"`
	// H2C makes requests go by cleartext HTTP/2. Default false.
	H2C bool `yaml:"h2c,omitempty"`
	// Token is sent to the workers as a bearer token. Default: none.
	Token string `yaml:"token,omitempty" config:"secret"`
}

// serviceAccount is where Kubernetes puts what a pod needs to ask the API.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	dns := make([]DNSConfig, 0, len(c.DNS))
	for _, d := range c.DNS {
		d.Interval = cmp.Or(d.Interval, 5*time.Second)
		d.KeepFor = cmp.Or(d.KeepFor, time.Minute)
		dns = append(dns, d)
	}
	c.DNS = dns
	k := &c.Kubernetes
	k.Server = cmp.Or(k.Server, "https://kubernetes.default.svc")
	k.TokenFile = cmp.Or(k.TokenFile, serviceAccount+"token")
	k.CAFile = cmp.Or(k.CAFile, serviceAccount+"ca.crt")
	k.Resync = cmp.Or(k.Resync, time.Minute)
	return c
}

// Any reports whether workers may be found by any of it.
func (c Config) Any() bool { return len(c.Files)+len(c.DNS)+len(c.Kubernetes.Pods) > 0 }

// Limits of what a configuration may name.
const (
	maxSources  = 256
	minInterval = 100 * time.Millisecond
	minResync   = time.Second
)

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := len(c.Files) + len(c.DNS) + len(c.Kubernetes.Pods); n > maxSources {
		bad("files, dns and kubernetes.pods are %d together: want at most %d", n, maxSources)
	}
	names := make(map[string]bool)
	for i, f := range c.Files {
		switch {
		case f == "":
			bad("files[%d]: want the path of a file", i)
		case names[f]:
			bad("files[%d]: %s is there twice", i, f)
		}
		names[f] = true
	}
	clear(names)
	for i, d := range c.DNS {
		if err := d.validate(); err != nil {
			bad("dns[%d]: %w", i, err)
		}
		if name := d.key(); names[name] {
			bad("dns[%d]: %s is there twice", i, name)
		}
		names[d.key()] = true
	}
	if err := c.Kubernetes.validate(); err != nil {
		bad("kubernetes.%w", err)
	}
	return errors.Join(errs...)
}

func (d DNSConfig) validate() error {
	switch {
	case d.Name == "" || strings.ContainsAny(d.Name, " /:,"):
		return fmt.Errorf("name is %q: want a name in DNS", d.Name)
	case d.SRV && d.Port != 0:
		return errors.New("port: SRV records tell the ports, leave it out")
	case !d.SRV && (d.Port < 1 || d.Port > 65535):
		return fmt.Errorf("port is %d: want 1 to 65535", d.Port)
	case d.Interval < minInterval:
		return fmt.Errorf("interval is %v: want %v or more", d.Interval, minInterval)
	case d.KeepFor < 0:
		return fmt.Errorf("keep_for is %v: want 0 (the default) or more", d.KeepFor)
	}
	return d.Pool.validate()
}

// key tells names in DNS apart.
func (d DNSConfig) key() string {
	if d.SRV {
		return d.Name
	}
	return net.JoinHostPort(d.Name, strconv.Itoa(d.Port))
}

func (k KubernetesConfig) validate() error {
	if _, err := (engine.Spec{URL: k.Server}).Canonical(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if k.Resync < minResync {
		return fmt.Errorf("resync is %v: want %v or more", k.Resync, minResync)
	}
	keys := make(map[string]bool)
	for i, p := range k.Pods {
		switch {
		case (p.Selector == "") == (p.Service == ""):
			return fmt.Errorf("pods[%d]: want either selector or service", i)
		case strings.ContainsAny(p.Namespace+p.Service, "/ ,?#&%"):
			return fmt.Errorf("pods[%d]: namespace %q and service %q are names of Kubernetes", i, p.Namespace, p.Service)
		case keys[p.Key()]:
			return fmt.Errorf("pods[%d]: %s is there twice", i, p.Key())
		}
		keys[p.Key()] = true
		if n, err := strconv.Atoi(p.Port); err == nil && (n < 1 || n > 65535) {
			return fmt.Errorf("pods[%d]: port is %d: want a name, or 1 to 65535", i, n)
		}
		if err := p.Pool.validate(); err != nil {
			return fmt.Errorf("pods[%d]: %w", i, err)
		}
	}
	return nil
}

// Key tells sets of pods apart.
func (p PodsConfig) Key() string {
	key := p.Namespace + "/" + cmp.Or(p.Service, p.Selector)
	if p.Port != "" {
		key += ":" + p.Port
	}
	return key
}

func (p PoolConfig) validate() error {
	spec := p.spec()
	spec.URL = p.scheme() + "://host:1"
	spec.Events, spec.Replay = p.sockets("host")
	if _, err := spec.Canonical(); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	return nil
}

func (p PoolConfig) scheme() string { return cmp.Or(p.Scheme, "http") }

// spec returns what a pool says of each worker, but for where it is.
func (p PoolConfig) spec() engine.Spec {
	return engine.Spec{Engine: p.Engine, Ranks: p.Ranks, Model: p.Model, Preset: p.Preset, H2C: p.H2C, Token: p.Token}
}

// sockets returns the endpoints of a host's KV events.
func (p PoolConfig) sockets(host string) (events, replay string) {
	if p.EventsPort != 0 {
		events = "tcp://" + net.JoinHostPort(host, strconv.Itoa(p.EventsPort))
	}
	if p.ReplayPort != 0 {
		replay = "tcp://" + net.JoinHostPort(host, strconv.Itoa(p.ReplayPort))
	}
	return events, replay
}

// Spec returns the worker of a pool at a host and port.
func (p PoolConfig) Spec(host string, port int) engine.Spec {
	spec := p.spec()
	spec.URL = p.scheme() + "://" + net.JoinHostPort(host, strconv.Itoa(port))
	spec.Events, spec.Replay = p.sockets(host)
	return spec
}
