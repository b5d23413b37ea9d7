// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// importImages imports Docker archives on every machine that is on. One that is switched off or removed meanwhile needs them no
// more, and one that reboots is given them again in its next boot.
func (s *supervisor) importImages(ctx context.Context, paths []string) error {
	return importOn(ctx, s.machineStates(), paths, func(ctx context.Context, state MachineState, path string) error {
		for {
			err := importImage(ctx, state, path)
			if err == nil || ctx.Err() != nil {
				return err
			}
			next, ended := s.afterBoot(ctx, state)
			switch {
			case !ended:
				return err
			case next.PID == 0:
				return nil
			}
			state = next
		}
	})
}

// endTimeout is how long a machine may take to end, of whose processes one has ended already.
const endTimeout = time.Minute

// afterBoot returns what a machine is after the boot of a state, and false if that boot goes on.
func (s *supervisor) afterBoot(ctx context.Context, boot MachineState) (next MachineState, ended bool) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		m, err := s.machine(boot.Name)
		if err != nil {
			next = MachineState{}
			return true, nil // it was removed
		}
		next = m.current()
		return next.BootID != boot.BootID, nil
	})
	return next, err == nil
}

// importOn imports each Docker archive on those machines that are on.
func importOn(ctx context.Context, machines []MachineState, paths []string, do func(context.Context, MachineState, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(2, runtime.NumCPU()))
	for _, state := range machines {
		if state.PID == 0 {
			continue
		}
		for _, path := range paths {
			group.Go(func() error {
				if err := do(ctx, state, path); err != nil {
					return fmt.Errorf("importing %s on %s, %w", path, state.Name, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// importImage imports a Docker archive on a machine in the boot that the state tells of.
func importImage(ctx context.Context, m MachineState, path string) error {
	socket := filepath.Join("/proc", strconv.Itoa(m.PID), "root", containerdSocket)
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(m.PID))); err != nil {
			return false, fmt.Errorf("%s has stopped", m.Name)
		}
		return listening(socket), nil
	})
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := m.command(ctx, "ctr", "--namespace=k8s.io", "images", "import", "-")
	cmd.Stdin = file
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// command prepares a program to be run in the machine's namespaces.
func (m MachineState) command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(m.PID), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--"}
	cmd := exec.CommandContext(ctx, findTool("nsenter"), append(enter, args...)...)
	cmd.Env = []string{"PATH=" + toolPath, "HOME=/root"}
	return cmd
}
