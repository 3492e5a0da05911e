package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rhizome-router/rhizome/config"
)

type serveCommand struct {
	Config string `help:"Configuration file, followed while running. The other flags override it." placeholder:"FILE" env:"RHIZOME_CONFIG"`

	Workers []string `name:"worker" sep:"none" help:"A worker: URL[,events=tcp://HOST:PORT][,replay=tcp://HOST:PORT][,engine=vllm|sglang][,dp=RANKS][,id=NAME][,model=NAME][,preset=NAME]. Repeat for each. rhizome emulate prints such lines. Also in $$RHIZOME_WORKERS." placeholder:"URL,…"`
	Policy  string   `help:"How workers are chosen: ${policies}. Default: rhizome." enum:",${policies}" default:""`

	Listen     string   `help:"Data address. Default: :8080."`
	Admin      string   `help:"Admin address; beyond loopback it needs a token. Default: 127.0.0.1:8081."`
	AdminToken string   `help:"Bearer token of the admin port, or file:PATH or env:NAME. Also in $$RHIZOME_ADMIN_TOKEN."`
	MeshSecret []string `sep:"none" help:"Secret of the mesh that replicas share what they know in, or file:PATH or env:NAME; openssl rand -base64 32 prints one. Repeat to change it." placeholder:"SECRET"`
	Peers      []string `name:"peer" sep:"none" help:"HOST:PORT where other replicas may be found. Repeat for more." placeholder:"HOST:PORT"`
	MeshListen string   `help:"UDP address for other replicas. Default: :7400."`

	Name       string         `help:"This replica's name in response headers; default: the host's."`
	Grace      *time.Duration `help:"How long running requests may take after SIGTERM. Default: 30s."`
	TrustHints *bool          `help:"Believe every caller's x-agent-* headers."`
	Seed       *uint64        `help:"Seed of all random choices; default, and 0: draw one."`
}

func (c *serveCommand) Run(sh *shell) error {
	source := configSource(c.Config)
	source.Flags = c.flags(sh)
	loaded, err := source.Load()
	if err != nil {
		return err
	}
	sh.setLog(loaded.Config.Log)
	r, err := newReplica(loaded, sh)
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ctx, stop := context.WithCancel(sh.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.follow(ctx, source, hangups) })
	err = r.run(ctx)
	stop()
	wg.Wait()
	return err
}

// flags are the settings that the command line names.
func (c *serveCommand) flags(sh *shell) []config.Flag {
	var flags []config.Flag
	add := func(name, path string, given bool, values ...string) {
		if given {
			flags = append(flags, config.Flag{Name: name, Path: path, Values: values})
		}
	}
	if sh.logLevel != nil {
		add("--log-level", "log.level", true, sh.logLevel.String())
	}
	add("--worker", "workers", len(c.Workers) > 0, c.Workers...)
	add("--policy", "route.policy", c.Policy != "", c.Policy)
	add("--listen", "gateway.listen", c.Listen != "", c.Listen)
	add("--admin", "gateway.admin.listen", c.Admin != "", c.Admin)
	add("--admin-token", "gateway.admin.token", c.AdminToken != "", c.AdminToken)
	add("--mesh-secret", "mesh.secrets", len(c.MeshSecret) > 0, c.MeshSecret...)
	add("--peer", "mesh.peers", len(c.Peers) > 0, c.Peers...)
	add("--mesh-listen", "mesh.listen", c.MeshListen != "", c.MeshListen)
	add("--name", "name", c.Name != "", c.Name)
	if c.Grace != nil {
		add("--grace", "grace", true, c.Grace.String())
	}
	if c.TrustHints != nil {
		add("--trust-hints", "gateway.trust_hints", true, fmt.Sprint(*c.TrustHints))
	}
	if c.Seed != nil {
		add("--seed", "seed", true, fmt.Sprint(*c.Seed))
	}
	return flags
}

// configSource is where settings come from besides flags.
func configSource(file string) config.Source {
	return config.Source{
		File: file, Env: os.Environ(),
		OtherEnv:   []string{"RHIZOME_CONFIG", "RHIZOME_ADMIN", "RHIZOME_TEST_"},
		EnvAliases: map[string]string{"RHIZOME_ADMIN_TOKEN": "gateway.admin.token"},
	}
}
