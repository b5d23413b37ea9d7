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

	process *exec.Cmd
}

// StartIn makes a host of an empty directory. Stop ends its programs. The path must be short: sockets have no long ones.
func (p Program) StartIn(ctx context.Context, dir string, o Options) (*Directory, error) {
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
	name, sockets := "bottlerocket-power", []string{state.PowerSocket}
	if o.Interface == v1alpha1.InterfaceUpdateAPI {
		name, sockets = "bottlerocket-apiserver", append(sockets, state.APISocket)
	}
	d.process = d.command(context.WithoutCancel(ctx), p, name)
	d.process.Stderr = os.Stderr
	if err := d.process.Start(); err != nil {
		return nil, err
	}
	for _, socket := range sockets {
		if err := persist(ctx, func() error {
			conn, err := net.Dial("unix", d.Root.Path(socket))
			if err != nil {
				return err
			}
			return conn.Close()
		}); err != nil {
			return nil, errors.Join(err, d.Stop())
		}
	}
	return d, nil
}

// command is one of the host's programs.
func (d *Directory) command(ctx context.Context, p Program, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, string(p))
	cmd.Args = []string{name}
	cmd.Env = append(os.Environ(), state.RootVariable+"="+string(d.Root))
	return cmd
}

// Stop ends the host's programs. The directory stays.
func (d *Directory) Stop() error {
	err := d.process.Process.Kill()
	_ = d.process.Wait()
	return err
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
