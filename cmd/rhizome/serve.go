package main

import (
	"cmp"
	"errors"
	"os"
	"time"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/route"
)

type serveCommand struct {
	Workers []string `name:"worker" sep:"none" help:"A worker: URL[,events=tcp://HOST:PORT][,replay=tcp://HOST:PORT][,engine=vllm|sglang][,dp=RANKS][,id=NAME][,model=NAME][,preset=NAME]. Repeat for each. rhizome emulate prints such lines." placeholder:"URL,…" env:"RHIZOME_WORKERS"`
	Policy  string   `help:"How workers are chosen: ${enum}." enum:"${policies}" default:"rhizome"`

	Listen     string        `help:"Data address." default:":8080"`
	Admin      string        `help:"Admin address; beyond loopback it needs a token." default:"127.0.0.1:8081"`
	AdminToken string        `help:"Bearer token of the admin port." env:"RHIZOME_ADMIN_TOKEN"`
	Name       string        `help:"This replica's name in response headers; default: the host's."`
	Grace      time.Duration `help:"How long running requests may take after SIGTERM." default:"30s"`
	TrustHints bool          `help:"Believe every caller's x-agent-* headers."`
	Seed       uint64        `help:"Seed of all random choices; 0 draws one." default:"0"`
}

func (c *serveCommand) Run(sh *shell) error {
	if len(c.Workers) == 0 {
		return errors.New("no workers: name at least one with --worker, or try rhizome demo")
	}
	specs, err := parseWorkers(c.Workers)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	r, err := newReplica(replicaConfig{
		Workers: specs, Policy: route.Policy(c.Policy), Name: cmp.Or(c.Name, host, "rhizome"), Grace: c.Grace,
		Seed: cmp.Or(c.Seed, uint64(time.Now().UnixNano())),
		Gateway: gateway.Config{Listen: c.Listen, Admin: gateway.AdminConfig{Listen: c.Admin, Token: c.AdminToken},
			TrustHints: c.TrustHints},
	}, sh.log)
	if err != nil {
		return err
	}
	return r.run(sh.ctx)
}
