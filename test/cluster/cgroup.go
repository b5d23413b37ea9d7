// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// unifiedCgroups reports whether this machine has cgroups of version 2 only.
func unifiedCgroups() bool {
	var fs unix.Statfs_t
	return unix.Statfs(cgroupRoot, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// makeCgroups gives a machine a cgroup of its own in every hierarchy and returns their directories.
//
// In version 1 the kubelet is ordered to keep below it. In version 2 the machine's
// init makes it the root of a cgroup namespace, and the kubelet sees no other.
func makeCgroups(name string) ([]string, error) {
	if unifiedCgroups() {
		dir := filepath.Join(cgroupRoot, name)
		controllers, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		return []string{dir}, enableControllers(cgroupRoot, controllers)
	}
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
		// A new cpuset is empty, and nothing can run in it.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(hierarchy, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return dirs, nil
}

// cgroupHierarchies returns where the hierarchies of version 1 are mounted.
func cgroupHierarchies() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") && strings.HasPrefix(fields[1], cgroupRoot) {
			dirs = append(dirs, fields[1])
		}
	}
	return dirs, nil
}

func enableControllers(dir string, controllers []byte) error {
	var errs []error
	for controller := range bytes.FieldsSeq(controllers) {
		// One by one: some cannot be enabled everywhere, and the kubelet says so should it need one of those.
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), append([]byte("+"), controller...), 0o644)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// enterCgroups makes the machine's cgroup the root of what it sees, in version 2.
// The calling thread must be the one that starts everything else.
func (c machineConfig) enterCgroups(mountPoint string) error {
	if !c.UnifiedCgroups {
		return unix.Mount(cgroupRoot, mountPoint, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err := os.WriteFile(filepath.Join(cgroupRoot, c.Cgroup, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", mountPoint, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	// A cgroup that passes controllers on must hold no processes itself.
	leaf := filepath.Join(mountPoint, "init")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return err
	}
	controllers, err := os.ReadFile(filepath.Join(mountPoint, "cgroup.controllers"))
	if err != nil {
		return err
	}
	return enableControllers(mountPoint, controllers)
}

// removeCgroup removes a cgroup with all below it, whose processes have ended.
func removeCgroup(ctx context.Context, dir string) error {
	if !strings.HasPrefix(dir, cgroupRoot+"/") {
		return fmt.Errorf("%s is not a cgroup", dir)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// The kernel may take a moment to see that the last process has gone.
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		var dirs []string
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return false, err
		}
		for _, dir := range slices.Backward(dirs) {
			err := os.Remove(dir)
			if errors.Is(err, unix.EBUSY) {
				return false, nil
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
		return true, nil
	})
}
