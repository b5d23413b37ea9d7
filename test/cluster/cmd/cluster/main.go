// SPDX-License-Identifier: Apache-2.0

// The cluster command runs a Kubernetes cluster on this machine, for whoever is not a Go test. See package cluster for what it is made of.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"moult.dev/moult/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "cluster", Short: "Run a Kubernetes cluster on this machine", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(upCommand(), downCommand(), runCommand(), statusCommand(), imagesCommand(), execCommand())
	for _, verb := range []struct {
		name, short string
		do          func(context.Context, *cluster.Machine) error
	}{
		{"reboot", "Reboot a machine and wait until its node is ready", func(ctx context.Context, m *cluster.Machine) error { return m.Reboot(ctx) }},
		{"kill", "Switch a machine off, as a power cut does", func(ctx context.Context, m *cluster.Machine) error { return m.Kill(ctx) }},
		{"start", "Switch a machine on and wait until its node is ready", func(ctx context.Context, m *cluster.Machine) error { return m.Start(ctx) }},
	} {
		root.AddCommand(machineCommand(verb.name, verb.short, verb.do))
	}
	return root
}

// dirFlag adds the flag that names the cluster.
func dirFlag(cmd *cobra.Command) *string {
	dir := cmd.Flags().String("dir", "", "the cluster's state directory")
	_ = cmd.MarkFlagRequired("dir") // it was added just now
	return dir
}

func upCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "up --dir DIR", Short: "Start a cluster that stays until down", Args: cobra.NoArgs}
	dir := dirFlag(cmd)
	var o cluster.Options
	cmd.Flags().IntVar(&o.Machines, "machines", 0, "number of real machines; they need root")
	cmd.Flags().IntVar(&o.Nodes, "nodes", 0, "number of simulated nodes")
	cmd.Flags().StringArrayVar(&o.Images, "image", nil, "image archive to import on every machine; may be repeated")
	cmd.Flags().Float64Var(&o.PodSeconds, "pod-seconds", 1, "how long a Job's pod runs on a simulated node")
	cmd.Flags().BoolVar(&o.AuditLog, "audit-log", false, "log the metadata of every request, to log/audit.log")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Dir = *dir
		c, err := cluster.StartDetached(cmd.Context(), o)
		if err != nil {
			return err
		}
		fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
		return nil
	}
	return cmd
}

func downCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "down --dir DIR", Short: "End a cluster, and clear up after any that have died", Args: cobra.NoArgs}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cluster.Down(cmd.Context(), *dir) }
	return cmd
}

// runCommand is for tests of several packages that share a cluster.
func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -- COMMAND...",
		Short: "Start a cluster without machines, run a command beside it, and stop it, however the command ends",
		Long: "Start a cluster without machines, run a command beside it, and stop it, however the command ends. The command finds the " +
			"cluster's directory in the environment variable " + cluster.SharedDir + ".",
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		c, err := cluster.Start(cmd.Context(), cluster.Options{AuditLog: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Stop()) }()
		child := exec.CommandContext(cmd.Context(), args[0], args[1:]...)
		child.Env = append(os.Environ(), cluster.SharedDir+"="+c.Dir())
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		return child.Run()
	}
	return cmd
}

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status --dir DIR", Short: "Show a cluster's machines", Args: cobra.NoArgs}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.Connect(*dir)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tADDRESS\tBOOT ID")
		for _, m := range c.Machines() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", m.Name(), m.IP(), m.BootID())
		}
		return w.Flush()
	}
	return cmd
}

func imagesCommand() *cobra.Command {
	images := &cobra.Command{Use: "images", Short: "Manage the machines' images"}
	load := &cobra.Command{Use: "load --dir DIR ARCHIVE...", Short: "Import image archives on every machine", Args: cobra.MinimumNArgs(1)}
	dir := dirFlag(load)
	load.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.Connect(*dir)
		if err != nil {
			return err
		}
		return c.LoadImage(cmd.Context(), args...)
	}
	images.AddCommand(load)
	return images
}

func machineCommand(name, short string, do func(context.Context, *cluster.Machine) error) *cobra.Command {
	cmd := &cobra.Command{Use: name + " --dir DIR MACHINE", Short: short, Args: cobra.ExactArgs(1)}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := find(*dir, args[0])
		if err != nil {
			return err
		}
		return do(cmd.Context(), m)
	}
	return cmd
}

func execCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "exec --dir DIR MACHINE -- COMMAND...", Short: "Run a command in a machine", Args: cobra.MinimumNArgs(2)}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := find(*dir, args[0])
		if err != nil {
			return err
		}
		return m.ExecStream(cmd.Context(), os.Stdin, os.Stdout, os.Stderr, args[1:]...)
	}
	return cmd
}

func find(dir, name string) (*cluster.Machine, error) {
	c, err := cluster.Connect(dir)
	if err != nil {
		return nil, err
	}
	m := c.Machine(name)
	if m == nil {
		return nil, fmt.Errorf("no machine is named %s in %s", name, dir)
	}
	return m, nil
}
