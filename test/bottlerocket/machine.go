// SPDX-License-Identifier: Apache-2.0

package bottlerocket

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket/state"
	"moult.dev/moult/test/cluster"
)

// Open is the host that a machine has been from its first boot on, see WriteFiles.
func Open(m *cluster.Machine) *Host { return &Host{machine{m}} }

// before is where a machine keeps what it had in the place of a host's files.
const before = state.Dir + "/before"

// replaced are those files.
var replaced = []string{state.OSReleaseFile, "/usr/bin/systemctl"}

// Install makes a host of a running machine, without a reboot. The kubelet takes notice some seconds later.
func (p Program) Install(ctx context.Context, m *cluster.Machine, o Options) (*Host, error) {
	h := &Host{machine{m}}
	if err := h.install(ctx, m, p, o); err != nil {
		return nil, fmt.Errorf("making a host of %s, %w", m.Name(), err)
	}
	return h, nil
}

func (h *Host) install(ctx context.Context, m *cluster.Machine, p Program, o Options) error {
	dir, err := os.MkdirTemp("", "moult-host-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := p.WriteFiles(dir, o); err != nil {
		return err
	}
	files, err := pack(dir)
	if err != nil {
		return err
	}
	script := "set -e; mkdir -p " + before + " " + state.FaultDir
	for _, path := range replaced {
		script += fmt.Sprintf("; cp -a %s %s/", path, before)
	}
	script += "; tar -x -f - -C /; /etc/machine/boot/bottlerocket-boot"
	if err := run(ctx, m, files, script); err != nil {
		return err
	}
	return m.Reload(ctx)
}

// endPrograms ends what the host's programs still do: a slow command would write what it knows over what the next host on the machine knows.
const endPrograms = "while :; do found=; for exe in /proc/[0-9]*/exe; do case $(readlink $exe) in " + programPath +
	"*) found=1; pid=${exe#/proc/}; kill -9 ${pid%/exe} ;; esac; done; [ $found ] || break; done"

// Uninstall makes the machine what it was before Install, but for what it runs: that changes with the kubelet's next look.
func (h *Host) Uninstall(ctx context.Context) error {
	m := h.place.(machine).Machine
	return persist(ctx, func() error {
		script := "rm -f " + strings.Join(append(links(v1alpha1.InterfaceUpdateAPI), links(v1alpha1.InterfaceSentinel)...), " ") + " " + state.APISocket + "; " + endPrograms + "; for file in " + before + "/*; do case $file in"
		for _, path := range replaced {
			script += fmt.Sprintf(" *%s) rm -f %s; cp -a $file %s ;;", filepath.Base(path), path, path)
		}
		script += " esac; done; rm -rf " + strings.Join([]string{state.Dir, filepath.Dir(programPath), state.SentinelFile}, " ")
		if err := run(ctx, m, nil, script); err != nil {
			return err
		}
		return m.Reload(ctx)
	})
}

func run(ctx context.Context, m *cluster.Machine, in io.Reader, script string) error {
	var out bytes.Buffer
	if err := m.ExecStream(ctx, in, &out, &out, "/bin/sh", "-c", script); err != nil {
		return fmt.Errorf("%w\n%s", err, out.Bytes())
	}
	return nil
}

// pack packs files and links, without the directories that they are in.
func pack(dir string) (io.Reader, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		if entry.Type() == fs.ModeSymlink {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		if header.Name, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		if err := w.WriteHeader(header); err != nil || link != "" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &buffer, w.Close()
}

// machine is a host that is a machine.
type machine struct{ *cluster.Machine }

func (m machine) read(path string) ([]byte, error) { return m.ReadFile(path) }

func (m machine) write(ctx context.Context, path string, data []byte) error {
	// Whole or not at all: a program may be reading it.
	script := fmt.Sprintf("set -e; mkdir -p %s; cat >%s.new; mv -f %s.new %s", filepath.Dir(path), path, path, path)
	return run(ctx, m.Machine, bytes.NewReader(data), script)
}

func (m machine) remove(ctx context.Context, path string) error {
	return run(ctx, m.Machine, nil, "rm -f "+path)
}
