// SPDX-License-Identifier: Apache-2.0

// Command demo shows what Moult does: on a cluster of its own, with machines that are really changed where this machine
// can run them, it carries out the Plans of examples/plan.yaml under the live view, and leaves the cluster for you to try.
//
//	up:  build ─▶ cluster ─▶ Moult, version v1.0.0 on the machines, a workload ─▶ Plans ─▶ watch ─▶ prove
//	down removes all of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"moult.dev/moult/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "demo", Short: "Show what Moult does, on a cluster of its own", SilenceUsage: true, SilenceErrors: true}
	dir := root.PersistentFlags().String("dir", stateDir(), "where the demo keeps its state")

	machines := 0
	if cluster.CanRunMachines() == nil {
		machines = 3
	}
	d := demo{}
	var timeout time.Duration
	up := &cobra.Command{Use: "up", Short: "Start the demo, in place of one that is left from before", Args: cobra.NoArgs}
	up.Flags().IntVar(&d.machines, "machines", machines, "number of real machines; they need root on Linux")
	up.Flags().IntVar(&d.nodes, "nodes", 20, "number of simulated nodes")
	up.Flags().DurationVar(&timeout, "timeout", 15*time.Minute, "how long it may take; the first time much has to be built")
	up.RunE = func(cmd *cobra.Command, _ []string) error {
		d.dir = *dir
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return d.up(ctx)
	}
	down := &cobra.Command{Use: "down", Short: "Remove the demo", Args: cobra.NoArgs}
	down.RunE = func(cmd *cobra.Command, _ []string) error { return remove(cmd.Context(), *dir) }
	root.AddCommand(up, down)
	return root
}

// stateDir is in the user's cache, which every call finds again.
func stateDir() string {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "moult-demo")
	}
	return filepath.Join(os.TempDir(), "moult-demo")
}
