// Command rhizome is the product: the router, a demo of it, and the emulated
// workers that the demo and tests run against.
//
// main parses flags and hands each command its parts; wire.go puts a replica
// together, in the order of the house.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal kills at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands are what the command line offers.
type commands struct {
	LogLevel slog.Level `help:"Least level that is logged: debug, info, warn or error." default:"info" env:"RHIZOME_LOG_LEVEL"`

	Serve   serveCommand   `cmd:"" help:"Route requests to workers."`
	Demo    demoCommand    `cmd:"" help:"Run emulated workers, a router and a load in one process, with a live table."`
	Emulate emulateCommand `cmd:"" help:"Run emulated workers that speak vLLM's or SGLang's wire."`
	Explain explainCommand `cmd:"" help:"Show why a request went where it did."`
	Ctl     ctlCommand     `cmd:"" help:"Ask a running replica."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// shell is what every command may use of the world.
type shell struct {
	ctx            context.Context
	stdout, stderr io.Writer
	log            *slog.Logger
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cli commands
	exit := -1
	parser, err := kong.New(&cli, kong.Name("rhizome"),
		kong.Description("A router for LLM inference fleets: it sends each request to the worker that will answer first."),
		kong.Vars{"policies": policyNames(), "presets": presetNames()},
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exit = code }))
	if err != nil {
		fmt.Fprintln(stderr, "rhizome:", err)
		return 2
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "rhizome: %v\nTry: rhizome --help\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: cli.LogLevel}))
	err = parsed.Run(&shell{ctx, stdout, stderr, log})
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "rhizome:", err)
		return 1
	}
	return 0
}

type versionCommand struct{}

func (versionCommand) Run(sh *shell) error {
	_, err := fmt.Fprintln(sh.stdout, "rhizome", version)
	return err
}
