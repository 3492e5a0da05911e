package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/fleet"
)

// ctlWorkersCommand groups what decides which workers there are.
type ctlWorkersCommand struct {
	List    ctlWorkersListCommand  `cmd:"" default:"withargs" help:"Show the workers, who found them and how they are."`
	Add     ctlWorkersAddCommand   `cmd:"" help:"Have a worker be in the fleet until the router ends, and undo its removal."`
	Drain   ctlWorkersDrainCommand `cmd:"" help:"Send a worker nothing new; what it has in flight ends as it would have."`
	Undrain ctlWorkersUndrain      `cmd:"" help:"Send a drained worker new requests again."`
	Remove  ctlWorkersRemove       `cmd:"" help:"Take a worker out until it is added again or the router ends, whoever lists it."`
}

type ctlWorkersListCommand struct {
	JSON bool `help:"Print the JSON as served."`
	adminFlags
}

func (c *ctlWorkersListCommand) Run(sh *shell) error {
	body, err := c.get(sh.ctx, "workers")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := sh.stdout.Write(body)
		return err
	}
	var all []fleet.Description
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("%s answered no list of workers: %w", c.Admin, err)
	}
	return writeWorkers(sh.stdout, all)
}

func writeWorkers(w io.Writer, all []fleet.Description) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "worker\tid\tstate\tfound by\tmodels")
	for _, d := range all {
		name := strings.TrimPrefix(d.Worker, "http://")
		if d.Rank >= 0 {
			name = fmt.Sprintf("%s/%d", name, d.Rank)
		}
		state := d.Grade
		switch {
		case d.SameAs != "":
			state = "same as " + strings.TrimPrefix(d.SameAs, "http://")
		case d.Why != "":
			state += " (" + d.Why + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, d.ID, state, strings.Join(d.Sources, ", "), strings.Join(d.Models, ", "))
	}
	return t.Flush()
}

type ctlWorkersAddCommand struct {
	Worker string `arg:"" help:"The worker as serve --worker takes it: URL[,key=value…]."`
	adminFlags
}

func (c *ctlWorkersAddCommand) Run(sh *shell) error {
	line, err := json.Marshal(c.Worker) // a line of text is YAML too, but for some letters
	if err != nil {
		return err
	}
	body, err := c.ask(sh.ctx, http.MethodPost, string(line), "workers")
	if err != nil {
		return err
	}
	_, err = sh.stdout.Write(body)
	return err
}

// whichWorker names one worker on the command line.
type whichWorker struct {
	Worker string `arg:"" help:"The worker's id or its URL, as ctl workers list shows them."`
	adminFlags
}

// decide asks for something about the worker.
func (c *whichWorker) decide(sh *shell, method string, more ...string) error {
	body, err := c.get(sh.ctx, "workers")
	if err != nil {
		return err
	}
	var all []fleet.Description
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("%s answered no list of workers: %w", c.Admin, err)
	}
	wanted := strings.TrimPrefix(c.Worker, "http://")
	for _, d := range all {
		if d.ID == c.Worker || strings.TrimPrefix(d.Worker, "http://") == wanted {
			_, err := c.ask(sh.ctx, method, "", append([]string{"workers", d.ID}, more...)...)
			return err
		}
	}
	return fmt.Errorf("no worker has the id or the URL %s: rhizome ctl workers list shows them", c.Worker)
}

type ctlWorkersDrainCommand struct{ whichWorker }

func (c *ctlWorkersDrainCommand) Run(sh *shell) error {
	return c.decide(sh, http.MethodPost, "drain")
}

type ctlWorkersUndrain struct{ whichWorker }

func (c *ctlWorkersUndrain) Run(sh *shell) error { return c.decide(sh, http.MethodDelete, "drain") }

type ctlWorkersRemove struct{ whichWorker }

func (c *ctlWorkersRemove) Run(sh *shell) error { return c.decide(sh, http.MethodDelete) }
