// Command rhizome-lab is the laboratory: what measures Rhizome and compares it
// with others. Nothing in it links into the product.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/rhizome-router/rhizome/transport"
)

// version is set by the build.
var version = "dev"

func main() {
	_ = os.Setenv(transport.QuietQUIC, "true") // transport logs it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands are what the command line offers.
type commands struct {
	Load    loadCommand    `cmd:"" help:"Replay a trace against one or more routers, in the same run, and compare them."`
	Sim     simCommand     `cmd:"" help:"Play policies against modelled engines in virtual time and compare them."`
	Chaos   chaosCommand   `cmd:"" help:"Break a mesh of replicas on purpose and judge what comes of it."`
	Tune    tuneCommand    `cmd:"" help:"Search the rates of the cost, or a peer's parameters, that do best on the tuning scenarios."`
	Bench   benchCommand   `cmd:"" help:"Measure a part of the house."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// shell is what every command may use of the world.
type shell struct {
	ctx            context.Context
	stdout, stderr io.Writer
	args           []string
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cli commands
	exit := -1
	parser, err := kong.New(&cli, kong.Name("rhizome-lab"), kong.Description("Measures Rhizome and compares it with others."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exit = code }))
	if err != nil {
		fmt.Fprintln(stderr, "rhizome-lab:", err)
		return 2
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "rhizome-lab: %v\nTry: rhizome-lab --help\n", err)
		return 2
	}
	if err := parsed.Run(&shell{ctx, stdout, stderr, args}); err != nil {
		if errors.Is(err, context.Canceled) {
			return 130
		}
		fmt.Fprintln(stderr, "rhizome-lab:", err)
		return 1
	}
	return 0
}

type versionCommand struct{}

func (versionCommand) Run(sh *shell) error {
	_, err := fmt.Fprintln(sh.stdout, "rhizome-lab", version)
	return err
}
