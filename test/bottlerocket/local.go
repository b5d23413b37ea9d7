// SPDX-License-Identifier: Apache-2.0

package bottlerocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/uuid"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket/state"
)

// Directory is a host that is a directory of this machine, with programs that serve it. A reboot changes there what one
// changes on a machine, and ends no process.
type Directory struct {
	Host
	// Root is the directory. What has it as its root directory sees the host.
	Root state.Root

	processes []*exec.Cmd
}

// StartIn makes a host of an empty directory. Stop ends its programs. The path must be short: sockets have no long ones.
func (p Program) StartIn(ctx context.Context, dir string, o Options) (_ *Directory, err error) {
	d := &Directory{Host: Host{directory(dir)}, Root: state.Root(dir)}
	if err := p.WriteFiles(dir, o); err != nil {
		return nil, err
	}
	if err := d.Root.Replace(state.BootIDFile, []byte(uuid.NewString()+"\n")); err != nil {
		return nil, err
	}
	if out, err := d.command(ctx, p, "bottlerocket-boot").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("booting a host, %w\n%s", err, out)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop())
		}
	}()
	services := map[string]string{"bottlerocket-power": state.PowerSocket}
	if o.Interface == v1alpha1.InterfaceUpdateAPI {
		services["bottlerocket-apiserver"] = state.APISocket
	}
	for name, socket := range services {
		cmd := d.command(context.WithoutCancel(ctx), p, name)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		d.processes = append(d.processes, cmd)
		err := persist(ctx, func() error {
			conn, err := net.Dial("unix", d.Root.Path(socket))
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// command is one of the host's programs.
func (d *Directory) command(ctx context.Context, p Program, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, string(p))
	cmd.Args = append([]string{name}, args...)
	cmd.Env = append(os.Environ(), state.RootVariable+"="+string(d.Root))
	return cmd
}

// Command is one of the host's programs, such as updog, run from outside.
func (d *Directory) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return d.command(ctx, Program(d.Root.Path(programPath)), name, args...)
}

// Stop ends the host's programs. The directory stays.
func (d *Directory) Stop() error {
	var errs []error
	for _, cmd := range d.processes {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		_ = cmd.Wait() // it was killed
	}
	d.processes = nil
	return errors.Join(errs...)
}

// directory is a host that is a directory.
type directory string

func (d directory) read(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), path))
}

func (d directory) write(_ context.Context, path string, data []byte) error {
	return state.Root(d).Replace(path, data)
}

func (d directory) remove(_ context.Context, path string) error {
	return ignoreMissing(os.Remove(filepath.Join(string(d), path)))
}
