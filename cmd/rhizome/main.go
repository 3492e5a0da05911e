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
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/transport"
)

// version is set by the build.
var version = "dev"

func main() {
	_ = os.Setenv(transport.QuietQUIC, "true") // transport logs it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal kills at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands are what the command line offers.
type commands struct {
	LogLevel *slog.Level `help:"Least level that is logged: debug, info, warn or error. Default: info, or what $$RHIZOME_LOG_LEVEL says."`

	Serve   serveCommand   `cmd:"" help:"Route requests to workers."`
	Demo    demoCommand    `cmd:"" help:"Run emulated workers, a router and a load in one process, with a live table."`
	Emulate emulateCommand `cmd:"" help:"Run emulated workers that speak vLLM's or SGLang's wire."`
	Explain explainCommand `cmd:"" help:"Show why a request went where it did."`
	Ctl     ctlCommand     `cmd:"" help:"Ask a running replica."`
	Check   checkCommand   `cmd:"" name:"check-config" help:"Check a configuration, and show what is in force and where it comes from."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// shell is what every command may use of the world.
type shell struct {
	ctx            context.Context
	stdout, stderr io.Writer
	log            *slog.Logger
	level          *slog.LevelVar // of log
	logLevel       *slog.Level    // the flag; nil when it isn't given
}

// setLog logs from now on as a configuration says.
func (sh *shell) setLog(cfg config.LogConfig) {
	sh.level.Set(cfg.Level)
	options := &slog.HandlerOptions{Level: sh.level}
	if cfg.Format == config.JSONLog {
		sh.log = slog.New(slog.NewJSONHandler(sh.stderr, options))
	} else {
		sh.log = slog.New(slog.NewTextHandler(sh.stderr, options))
	}
}

// errTold says that a command failed and has already said why.
var errTold = errors.New("failed")

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cli commands
	exit := -1
	parser, err := kong.New(&cli, kong.Name("rhizome"),
		kong.Description("A router for LLM inference fleets: it sends each request to the worker that will answer first."),
		kong.Vars{"policies": policyNames(), "presets": presetNames(), "templates": strings.Join(emulator.Templates(), ",")},
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
	sh := &shell{ctx: ctx, stdout: stdout, stderr: stderr, level: new(slog.LevelVar), logLevel: cli.LogLevel}
	sh.setLog(config.LogConfig{Level: logLevel(cli.LogLevel)})
	err = parsed.Run(sh)
	var bad *config.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return 0
	case errors.Is(err, errTold):
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "rhizome: the configuration can't be used\n%v\n", bad)
	default:
		fmt.Fprintln(stderr, "rhizome:", err)
	}
	return 1
}

// logLevel is the level for commands that read no configuration: the flag's, or
// the variable's where that is one.
func logLevel(flag *slog.Level) slog.Level {
	var level slog.Level
	if flag != nil {
		return *flag
	}
	if err := level.UnmarshalText([]byte(os.Getenv("RHIZOME_LOG_LEVEL"))); err != nil {
		return slog.LevelInfo
	}
	return level
}

type versionCommand struct{}

func (versionCommand) Run(sh *shell) error {
	of := version
	if clock.Lab {
		of += " (a lab build, not for use)"
	}
	_, err := fmt.Fprintln(sh.stdout, "rhizome", of)
	return err
}
