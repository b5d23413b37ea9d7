// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kubeletPath is where a machine has its kubelet.
const kubeletPath = "/usr/local/bin/kubelet"

// kernelFiles are the settings that a kubelet wants to see, and would otherwise change for the whole of this machine.
var kernelFiles = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// enterRoot makes the machine's root file system and moves into it. All of it is
// mounted in the machine's own namespace, and goes away with its last process.
func (c machineConfig) enterRoot() error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root := filepath.Join(c.Dir, "root")
	at := func(path string) string { return filepath.Join(root, path) }
	layers := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(c.Dir, "upper"), filepath.Join(c.Dir, "work"))
	if err := mount("overlay", root, "overlay", 0, layers); err != nil {
		return err
	}
	const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		options              string
	}{
		{"proc", "/proc", "proc", noExec, ""},
		{"sysfs", "/sys", "sysfs", noExec, ""},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"/dev", "/dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if err := mount(m.source, at(m.target), m.kind, m.flags, m.options); err != nil {
			return err
		}
	}
	if err := c.enterCgroups(at(cgroupRoot)); err != nil {
		return fmt.Errorf("mounting cgroups, %w", err)
	}
	errs := []error{
		bindDir(filepath.Join(c.Dir, "kubelet"), at("/var/lib/kubelet")),
		bindDir(filepath.Join(c.Dir, "containerd"), at("/var/lib/containerd")),
		bindFile(c.Kubelet, at(kubeletPath)),
		c.face(root, "/proc/sys/kernel/random/boot_id", c.BootID),
		// Written to for real, it would reboot this machine.
		c.face(root, "/proc/sysrq-trigger", ""),
	}
	for path, value := range kernelFiles {
		errs = append(errs, c.face(root, path, value))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := pivot(root); err != nil {
		return fmt.Errorf("moving into the root file system, %w", err)
	}
	// As systemd does, for what containers mount into the machine.
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s, %w", target, err)
	}
	return nil
}

// pivot makes root the root directory and lets go of the old one.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	// The old root is mounted over the new one, and comes off at once.
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

// bindDir mounts a directory at another place, which is made.
func bindDir(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return mount(source, target, "", unix.MS_BIND, "")
}

// bindFile mounts a file at another place, which is made.
func bindFile(source, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	file.Close()
	return mount(source, target, "", unix.MS_BIND, "")
}

// face mounts a file with that value over one of the kernel's, where it has it.
func (c machineConfig) face(root, path, value string) error {
	target := filepath.Join(root, path)
	if _, err := os.Stat(target); err != nil {
		return nil
	}
	source := filepath.Join(c.Dir, "faces", filepath.Base(path))
	if err := os.WriteFile(source, []byte(value+"\n"), 0o644); err != nil {
		return err
	}
	return mount(source, target, "", unix.MS_BIND, "")
}

func writeSysctl(path, value string) error { return os.WriteFile(path, []byte(value), 0o644) }
