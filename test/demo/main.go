// SPDX-License-Identifier: Apache-2.0

// Command demo shows what Moult does, on a cluster of its own, under the live view, and leaves the cluster for you to try, but where it says so.
//
//	up --kind plan          Plans on machines, which are really changed where this machine can run them, and simulated nodes:
//	                        build ─▶ cluster ─▶ Moult, version v1.0.0 on the machines, a workload ─▶ Plans ─▶ watch ─▶ prove
//	up --kind bottlerocket  three machines that look like hosts of Bottlerocket bring themselves to a release, and reboot:
//	                        build ─▶ cluster ─▶ hosts, a workload ─▶ Moult, which labels the hosts ─▶ watch ─▶ prove
//	up --kind replacement   a scale set of three machines, in a cloud that is played, gets another image, and each machine is replaced by another one:
//	                        build ─▶ cluster, cloud ─▶ Moult, a workload ─▶ moult set-image ─▶ watch ─▶ prove ─▶ remove all
//	down                    removes all of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/test/cluster"
)

func main() {
	log.SetLogger(logr.Discard()) // Those that log have logs of their own.
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
	var name string
	up := &cobra.Command{Use: "up", Short: "Start the demo, in place of one that is left from before", Args: cobra.NoArgs}
	up.Flags().StringVar(&name, "kind", kindPlan, "what to show: "+kindNames())
	up.Flags().IntVar(&d.machines, "machines", machines, "number of real machines; they need root on Linux")
	up.Flags().IntVar(&d.nodes, "nodes", -1, "number of simulated nodes (default: 20, with bottlerocket none, with replacement 6 in place of machines)")
	up.Flags().DurationVar(&timeout, "timeout", 15*time.Minute, "how long it may take; the first time much has to be built")
	up.RunE = func(cmd *cobra.Command, _ []string) error {
		k, ok := kinds[name]
		if !ok {
			return fmt.Errorf("there is no demo of kind %q, but of: %s", name, kindNames())
		}
		d.dir, d.name = *dir, name
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return d.up(ctx, k(&d))
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
