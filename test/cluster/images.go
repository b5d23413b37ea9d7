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

	"moult.dev/moult/hack/build"
	"moult.dev/moult/hack/image"
)

// ShellImage is an image on every machine that has a shell and the usual commands.
const ShellImage = image.Busybox

// standardImages writes the images that every machine has and returns their paths.
func (s *supervisor) standardImages(ctx context.Context) ([]string, error) {
	dir := filepath.Join(s.spec.Dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	shell, err := image.Shell(ctx, findTool("busybox"))
	if err != nil {
		return nil, err
	}
	shell.Env = []string{"PATH=" + toolPath}
	pause := image.Spec{
		Tags:       []string{pauseImage},
		Files:      map[string]image.File{"/pause": {Source: filepath.Join(s.spec.Programs, build.Pause)}},
		Entrypoint: []string{"/pause"},
	}
	var paths []string
	for name, spec := range map[string]image.Spec{"pause.tar": pause, "shell.tar": shell} {
		file := filepath.Join(dir, name)
		if err := image.Build(ctx, spec, file); err != nil {
			return nil, err
		}
		paths = append(paths, file)
	}
	return paths, nil
}

// importImages imports image archives on every machine that is on. One that is switched off or removed meanwhile needs them no
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

// importOn imports each image archive on those machines that are on.
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

// importImage imports an image archive on a machine in the boot that the state tells of.
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
