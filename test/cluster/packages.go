// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tools are the programs that machines need of this machine, whose file system they see, and the Debian packages that have them.
var tools = []struct{ name, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"ip", "iproute2"},
	{"iptables", "iptables"},
	{"nsenter", "util-linux"},
	{"busybox", "busybox-static"},
}

// cniDirs are where distributions put the network plugins.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

const cniPackage = "containernetworking-plugins"

// CanRunMachines says why no real machines are possible here, or returns nil.
func CanRunMachines() error {
	if os.Geteuid() != 0 {
		return errors.New("real machines need root")
	}
	for _, capability := range []struct {
		name string
		bit  int
	}{{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}} {
		if !hasCapability(capability.bit) {
			return fmt.Errorf("real machines need the capability %s", capability.name)
		}
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !bytes.Contains(filesystems, []byte("\toverlay\n")) {
		// Mounting one loads the module, where there are modules.
		if err := exec.Command("modprobe", "overlay").Run(); err != nil {
			return errors.New("real machines need the kernel's overlay file system")
		}
	}
	if err := checkDisk(os.TempDir()); err != nil {
		return err
	}
	if missing := missingPackages(); len(missing) > 0 {
		if _, err := exec.LookPath("apt-get"); err != nil {
			return fmt.Errorf("real machines need programs that are missing here, as in Debian's packages %s", strings.Join(missing, ", "))
		}
	}
	return nil
}

// checkDisk refuses a directory that machines cannot have their disks in.
func checkDisk(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("real machines need a state directory that is not on an overlay file system, as %s is", dir)
	}
	return nil
}

func hasCapability(bit int) bool {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), "CapEff:\t"); ok {
			mask, err := strconv.ParseUint(value, 16, 64)
			return err == nil && mask&(1<<bit) != 0
		}
	}
	return false
}

// missingPackages names the packages whose programs are not here.
func missingPackages() []string {
	var missing []string
	for _, tool := range tools {
		if findTool(tool.name) == "" && !slices.Contains(missing, tool.pkg) {
			missing = append(missing, tool.pkg)
		}
	}
	if cniDir() == "" {
		missing = append(missing, cniPackage)
	}
	return missing
}

// toolPath is where system programs are, which not every user's PATH includes.
const toolPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func findTool(name string) string {
	for _, dir := range filepath.SplitList(toolPath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func cniDir() string {
	for _, dir := range cniDirs {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir
		}
	}
	return ""
}

// InstallPackages installs what is missing, by Debian's package manager: the packages of these programs, by their names.
func InstallPackages(ctx context.Context, log io.Writer, programs map[string]string) error {
	return installPackages(ctx, log, func() (missing []string) {
		for name, pkg := range programs {
			if findTool(name) == "" {
				missing = append(missing, pkg)
			}
		}
		return missing
	})
}

func installPackages(ctx context.Context, log io.Writer, missingPackages func() []string) error {
	if len(missingPackages()) == 0 {
		return nil
	}
	reg, err := openRegistry()
	if err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(reg.dir, "packages.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(log, "installing Debian's packages %s\n", strings.Join(missing, " "))
	allow, err := denyServices()
	if err != nil {
		return err
	}
	defer allow()
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	if _, err := aptGet(ctx, install...); err == nil {
		return nil
	}
	if output, err := aptGet(ctx, "update"); err != nil {
		return fmt.Errorf("updating the package lists, %w\n%s", err, output)
	}
	if output, err := aptGet(ctx, install...); err != nil {
		return fmt.Errorf("installing packages, %w\n%s", err, output)
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd.CombinedOutput()
}

// denyServices keeps packages from starting their services while they are
// installed: each machine runs a containerd of its own, and this one needs none.
func denyServices() (allow func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() {}, nil // this machine has a policy already
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.WriteString("#!/bin/sh\nexit 101\n"); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(policy) }, nil
}
