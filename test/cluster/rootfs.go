// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kubeletPath is where a machine has its kubelet.
const kubeletPath = "/usr/local/bin/kubelet"

// kernelFiles are the settings that a kubelet wants to see, and would otherwise
// change for the whole of this machine.
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
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private, %w", err)
	}
	root := filepath.Join(c.Dir, "root")
	layers := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(c.Dir, "upper"), filepath.Join(c.Dir, "work"))
	if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
		return fmt.Errorf("mounting the root file system, %w", err)
	}
	at := func(path string) string { return filepath.Join(root, path) }
	bind := func(source, target string, flags uintptr) error {
		return unix.Mount(source, at(target), "", unix.MS_BIND|flags, "")
	}
	const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	steps := []func() error{
		func() error { return unix.Mount("proc", at("/proc"), "proc", noExec, "") },
		func() error { return unix.Mount("sysfs", at("/sys"), "sysfs", noExec, "") },
		func() error { return c.enterCgroups(at(cgroupRoot)) },
		func() error {
			return unix.Mount("tmpfs", at("/run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
		},
		func() error {
			return unix.Mount("tmpfs", at("/tmp"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
		},
		func() error { return bind("/dev", "/dev", unix.MS_REC) },
		func() error {
			return unix.Mount("tmpfs", at("/dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
		},
		func() error { return c.bindDisk(root, "kubelet", "/var/lib/kubelet") },
		func() error { return c.bindDisk(root, "containerd", "/var/lib/containerd") },
		func() error { return c.bindFile(root, c.Kubelet, kubeletPath) },
		func() error { return c.face(root, "/proc/sys/kernel/random/boot_id", c.BootID) },
		// Writing to it would reboot this machine.
		func() error { return bind("/dev/null", "/proc/sysrq-trigger", 0) },
	}
	for path, value := range kernelFiles {
		steps = append(steps, func() error { return c.face(root, path, value) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("mounting below the root file system, %w", err)
		}
	}
	if err := pivot(root); err != nil {
		return fmt.Errorf("moving into the root file system, %w", err)
	}
	// As systemd does, for what containers mount into the machine.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
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

// bindDisk mounts one of the machine's disks.
func (c machineConfig) bindDisk(root, disk, path string) error {
	target := filepath.Join(root, path)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return unix.Mount(filepath.Join(c.Dir, disk), target, "", unix.MS_BIND, "")
}

// bindFile mounts one file, which may lie on another file system than the root's.
func (c machineConfig) bindFile(root, source, path string) error {
	target := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	file.Close()
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

// face mounts a file with that value over one of the kernel's, which may not exist.
func (c machineConfig) face(root, path, value string) error {
	target := filepath.Join(root, path)
	if _, err := os.Stat(target); err != nil {
		return nil
	}
	source := filepath.Join(c.Dir, "faces", filepath.Base(path))
	if err := os.WriteFile(source, []byte(value+"\n"), 0o444); err != nil {
		return err
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

func writeSysctl(path, value string) error { return os.WriteFile(path, []byte(value), 0o644) }
