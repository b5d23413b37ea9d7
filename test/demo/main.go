// SPDX-License-Identifier: Apache-2.0

// Command demo shows what Moult does, on a cluster of its own, under the live view, and proves it. It ends with an error if what it shows is not so.
//
//	up --kind plan          Plans bring machines, which are really changed where this computer can run them, and simulated nodes to a version
//	up --kind daemonset     an ExtendedDaemonSet tries two versions on one machine: one fails, and the other goes on to all machines
//	up --kind bottlerocket  machines that look like Bottlerocket hosts bring themselves to a release, and reboot, one after the other
//	up --kind replacement   a scale set in a simulated cloud gets another image, and each of its machines is replaced by a new one
//	down                    removes all of it
//
// The cluster stays for you to try, except with replacement: its cloud ends with this process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/test/cluster"
)

// kinds are the kinds of demo, each as the function that runs it.
var kinds = map[string]func(context.Context, *demo){
	"plan": showPlans, "daemonset": showDaemons, "bottlerocket": showHosts, "replacement": showReplacement,
}

func main() {
	log.SetLogger(logr.Discard()) // Programs that log have logs of their own.
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
	d := &demo{began: time.Now()}
	names := strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	up := &cobra.Command{Use: "up", Short: "Start the demo, in place of one that is left from before", Args: cobra.NoArgs}
	kind := up.Flags().String("kind", "plan", "what to show: "+names)
	up.Flags().IntVar(&d.machines, "machines", machines, "number of real machines; they need root on Linux")
	up.Flags().IntVar(&d.nodes, "nodes", -1, "number of simulated nodes (default: 12 with plan, 3 with replacement in place of machines, otherwise none)")
	up.RunE = func(cmd *cobra.Command, _ []string) error {
		show, ok := kinds[*kind]
		if !ok {
			return fmt.Errorf("there is no demo of kind %q, but of: %s", *kind, names)
		}
		d.begin(cmd.Context(), *dir)
		show(cmd.Context(), d)
		if d.err != nil && d.cluster != nil {
			fmt.Printf("The logs are in %s; `%s` removes all of it.\n", filepath.Join(d.cluster.Dir(), "log"), d.removal())
		}
		return d.err
	}
	down := &cobra.Command{Use: "down", Short: "Remove the demo", Args: cobra.NoArgs}
	down.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := os.Stat(filepath.Join(*dir, marker)); err != nil {
			fmt.Printf("There is no demo in %s.\n", *dir)
			return nil
		}
		return remove(cmd.Context(), *dir)
	}
	root.AddCommand(up, down)
	return root
}

// stateDir is the same in every call.
func stateDir() string {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "moult-demo")
	}
	return filepath.Join(os.TempDir(), "moult-demo")
}

const (
	// marker is a file that says that a directory belongs to a demo and may be removed. The process of that demo has it locked.
	marker = "moult-demo"
	// pidFile has the number of the operator's process where that runs outside of the cluster.
	pidFile = "moult.pid"
)

// claim makes the state directory, or removes what is left in it of an earlier demo, and locks it for as long as this process runs.
func claim(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == marker }) {
		return fmt.Errorf("%s has something else in it: choose another directory with --dir", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if locked, err = os.OpenFile(filepath.Join(dir, marker), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	if err := endHolder(ctx, dir); err != nil {
		return fmt.Errorf("locking %s, %w", dir, err)
	}
	stopOperator(dir)
	if err := cluster.Down(ctx, filepath.Join(dir, "cluster")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ending the cluster, %w", err)
	}
	entries, err = os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != marker {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// locked is open, and so locked, until this process ends.
var locked *os.File

// endHolder locks the state directory, and ends the demo that has it locked.
func endHolder(ctx context.Context, dir string) error {
	for told := false; ; {
		err := unix.FcntlFlock(locked.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return err
		}
		holder := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(locked.Fd(), unix.F_GETLK, &holder); err != nil {
			return err
		}
		if holder.Type != unix.F_UNLCK {
			if holder.Pid <= 0 {
				return errors.New("another demo runs there, in a container or on another computer: end it first")
			}
			if !told {
				fmt.Printf("Ending the demo that still runs in %s as process %d.\n", dir, holder.Pid)
				told = true
			}
			if err := syscall.Kill(int(holder.Pid), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending process %d, %w", holder.Pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// remove ends the demo in a directory, whatever there is of it.
func remove(ctx context.Context, dir string) error {
	if err := claim(ctx, dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// stopOperator ends the operator that runs outside of the cluster, if there is one.
func stopOperator(dir string) {
	text, _ := os.ReadFile(filepath.Join(dir, pidFile))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	for err == nil {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !strings.Contains(string(line), "/moult\x00controller\x00") {
			return // It has ended.
		}
		err = syscall.Kill(pid, syscall.SIGKILL)
		time.Sleep(50 * time.Millisecond)
	}
}
