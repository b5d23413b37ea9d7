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

// importImages imports Docker archives on every machine that is on.
func (s *supervisor) importImages(ctx context.Context, paths []string) error {
	return importOn(ctx, s.machineStates(), paths)
}

// importOn imports Docker archives on those machines that are on.
func importOn(ctx context.Context, machines []MachineState, paths []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(2, runtime.NumCPU()))
	for _, state := range machines {
		if state.PID == 0 {
			continue
		}
		for _, path := range paths {
			group.Go(func() error {
				if err := state.importImage(ctx, path); err != nil {
					return fmt.Errorf("importing %s on %s, %w", path, state.Name, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

func (m MachineState) importImage(ctx context.Context, path string) error {
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
