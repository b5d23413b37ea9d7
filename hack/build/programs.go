// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Linked are the programs that are one program, from the module test/cluster/programs. It is what it is called as.
var Linked = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubelet", "kubectl"}

// Pause is the program that keeps a pod's namespaces, for the machines' pause image.
const Pause = "pause"

// Programs builds what a cluster consists of, unless that has been built, and returns the folder that it is in: the
// programs of Linked, and Pause. Several processes may call it at once: one of them builds.
func Programs(ctx context.Context, log io.Writer) (string, error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "test", "cluster", "programs")
	if err := checkGo(); err != nil {
		return "", err
	}
	version, key, err := identify(ctx, module, filepath.Join(root, "test", "cluster", Pause))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "moult", "programs-"+version+"-"+key)
	if isBuilt(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir+".lock", log)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isBuilt(dir) {
		return dir, nil
	}
	// Clients parse the version that the API server reports.
	const variable = " -X k8s.io/component-base/version.gitVersion=%s -X k8s.io/client-go/pkg/version.gitVersion=%[1]s"
	linked := Program{
		Name: "Kubernetes " + version + ", etcd and kwok", Dir: module, Package: ".", Large: true, Output: filepath.Join(dir, "linked"), LDFlags: fmt.Sprintf(variable, version),
	}
	pause := Program{Name: Pause, Dir: root, Package: "./test/cluster/" + Pause, Output: filepath.Join(dir, Pause)}
	for _, p := range []Program{linked, pause} {
		if err := p.Build(ctx, log); err != nil {
			return "", err
		}
	}
	for _, name := range Linked {
		if err := os.Symlink("linked", filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, whole), nil, 0o644)
}

// whole is the file that says that a folder has all programs.
const whole = "whole"

func isBuilt(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, whole))
	return err == nil
}

// root finds the source tree of the project around the working directory, which for a test is its package's.
func root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "cluster", "programs", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the project's source: %s is not in it", start)
		}
	}
}

// identify returns the version of Kubernetes that the module pins, and a key that changes with whatever a build depends on.
func identify(ctx context.Context, module, pause string) (version, key string, err error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.GOOS, runtime.GOARCH, Flags)
	compiler, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return "", "", fmt.Errorf("asking go for its version, %w", err)
	}
	hash.Write(compiler)
	var sources []string
	for _, pattern := range []string{filepath.Join(module, "go.*"), filepath.Join(module, "*.go"), filepath.Join(pause, "*.go")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", "", err
		}
		sources = append(sources, found...)
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", "", err
		}
		if filepath.Base(path) == "go.mod" {
			pin := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`).FindSubmatch(data)
			if pin == nil {
				return "", "", fmt.Errorf("%s does not require k8s.io/kubernetes", path)
			}
			version = string(pin[1])
		}
		fmt.Fprintln(hash, filepath.Base(path), len(data))
		hash.Write(data)
	}
	return version, fmt.Sprintf("%x", hash.Sum(nil))[:12], nil
}

// lock takes an exclusive lock that the kernel releases should this process die.
func lock(ctx context.Context, path string, log io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for waits := false; ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, file.Close())
		}
		if !waits {
			waits = true
			fmt.Fprintln(log, "waiting for another process, which builds the cluster's programs")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		}
	}
}

const (
	mebibyte, gibibyte = 1 << 20, 1 << 30
	// A package takes about packageSize in Go's cache, and linking takes linkSize of disk and memoryNeeded.
	packageSize, linkSize = 2 * mebibyte, gibibyte / 2
	memoryNeeded          = 3 * gibibyte
)

// checkRoom refuses to begin a build if this machine lacks room to compile these packages and link a program.
func checkRoom(ctx context.Context, packages int64) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("asking go for its cache, %w", err)
	}
	cache := strings.TrimSpace(string(out))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(cache, &disk); err != nil {
		return err
	}
	needed := uint64(packages*packageSize + linkSize)
	if free := disk.Bavail * uint64(disk.Bsize); free < needed {
		return fmt.Errorf("building the cluster's programs needs %.1f GiB of disk in %s, and %.1f GiB are free", float64(needed)/gibibyte, cache, float64(free)/gibibyte)
	}
	free, ok := freeMemory()
	if ok && free < memoryNeeded {
		return fmt.Errorf("building the cluster's programs needs %d GiB of memory, and %.1f GiB are available", memoryNeeded/gibibyte, float64(free)/gibibyte)
	}
	return nil
}

// freeMemory returns the available memory in bytes, and false where that can't be known.
func freeMemory() (uint64, bool) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	_, rest, found := bytes.Cut(data, []byte("MemAvailable:"))
	var kilobytes uint64
	if _, err := fmt.Sscan(string(rest), &kilobytes); !found || err != nil {
		return 0, false
	}
	return kilobytes * 1024, true
}
