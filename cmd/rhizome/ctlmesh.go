package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/mesh"
)

type ctlMeshCommand struct {
	JSON bool `help:"Print the JSON as served."`
	adminFlags
}

func (c *ctlMeshCommand) Run(sh *shell) error {
	body, err := c.get(sh.ctx, "mesh")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := sh.stdout.Write(body)
		return err
	}
	var s mesh.State
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("%s answered no state of a mesh: %w", c.Admin, err)
	}
	return writeMesh(sh.stdout, &s)
}

// writeMesh prints a replica's state in the mesh: a line each for it and the
// others, and what is worth a look.
func writeMesh(w io.Writer, s *mesh.State) error {
	if !s.Enabled {
		_, err := fmt.Fprintln(w, "this replica is alone: no mesh is configured (mesh.secrets)")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "replica\taddress\tstate\tsilent\twants")
	self := "this one, warm"
	if !s.Warm {
		self = "this one, catching up"
	}
	fmt.Fprintf(t, "%s\t%s\t%s\t-\t-\n", s.Replica, s.Address, self)
	for _, m := range s.Members {
		state := "gone"
		switch {
		case m.Up:
			state = "up"
		case m.Alive:
			state = "not connected"
		}
		address := m.Address
		if address == "" {
			address = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1fs\t%d\n", m.Name, address, state, m.SilentSeconds, m.Wants)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\ncluster %s: %d streams, %d behind by %d batches; %d blocks unkeyed, %d tiers truncated\n",
		s.Cluster, s.Streams.Held, s.Streams.Behind, s.Streams.LagBatches, s.Streams.Unkeyed, s.Streams.Truncated)
	for _, lag := range s.Streams.Lagging {
		fmt.Fprintf(w, "  %s: %d batches behind, %d wait\n", lag.Target, lag.Batches, lag.Waiting)
	}
	fmt.Fprintf(w, "sent %.1f MiB live, %.1f MiB to catch up; %.1f of %.0f MiB wait, %d frames dropped\n",
		mib(int64(s.SentBytes["live"])), mib(int64(s.SentBytes["sync"])), mib(s.QueuedBytes), mib(int64(s.MaxQueueBytes)), s.DroppedFrames)
	_, err := fmt.Fprintf(w, "%d corrupted, %d incomplete, %d batches lost, %d refused; %d resyncs, %d snapshots taken, %d sent\n",
		s.Corruption, s.Incomplete, s.LostOps, s.Refused, s.Resyncs, s.SnapshotsUsed, s.SnapshotsSent)
	return err
}
