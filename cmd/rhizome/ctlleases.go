package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rhizome-router/rhizome/mesh/lease"
)

type ctlLeasesCommand struct {
	Limit int  `default:"20" help:"List at most this many leases, the last used first."`
	JSON  bool `help:"Print the JSON as served."`
	adminFlags
}

func (c *ctlLeasesCommand) Run(sh *shell) error {
	body, err := c.get(sh.ctx, "leases")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := sh.stdout.Write(body)
		return err
	}
	var d lease.Description
	if err := json.Unmarshal(body, &d); err != nil {
		return fmt.Errorf("%s answered no state of leases: %w", c.Admin, err)
	}
	return writeLeases(sh.stdout, &d, c.Limit)
}

// writeLeases prints who agrees, how this replica stands with it, and some of
// the leases.
func writeLeases(w io.Writer, d *lease.Description, limit int) error {
	if !d.Enabled {
		_, err := fmt.Fprintln(w, "this replica agrees with nobody: no mesh is configured (mesh.secrets)")
		return err
	}
	leader := d.Leader
	if leader == "" {
		leader = "none heard of: workflows keep their workers by each replica's own memory"
	}
	role := "follows"
	switch {
	case d.Leads:
		role = "leads"
	case d.Server != "":
		role = "votes"
	}
	fresh := "all that is agreed is known here"
	if !d.Fresh {
		fresh = fmt.Sprintf("what is known here may be old (%d entries behind)", d.Lag)
	}
	fmt.Fprintf(w, "leader: %s\nthis replica %s; %s\ngeneration %d, index %d, %d leases, digest %s\n", leader, role, fresh, d.Gen, d.Index, d.Leases, d.Digest)
	fmt.Fprint(w, "voters:")
	for _, s := range d.Servers {
		fmt.Fprintf(w, " %s", s.ID)
		if !s.Voter {
			fmt.Fprint(w, " (not yet)")
		}
	}
	fmt.Fprintf(w, "\n%d granted, %d renewed, %d revoked, %d conflicts; %d proposals dropped, %d over a key's limit; %d changes of leader, %d elections won here without need\n",
		d.Grants, d.Renewals, d.Revocations, d.Conflicts, d.Dropped, d.Limited, d.LeaderChanges, d.SpuriousElections)
	if len(d.Held) == 0 || limit <= 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nworkflow\ttarget\tboot\ttoken")
	for _, h := range d.Held[:min(limit, len(d.Held))] {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d.%d\n", h.Key, h.Target, h.Boot, h.Gen, h.Index)
	}
	return t.Flush()
}
