// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// module is the path of the module that this package belongs to. Its source tree
// is where the modules to build are found.
const module = "moult.dev/moult"

// binary is one program of the cluster: where its source is and how it is linked.
type binary struct {
	name string
	// dir is the module it is built from, relative to this package.
	dir string
	// pkg is the package to build, in that module.
	pkg string
	// pin is the requirement in that module's go.mod which gives its version.
	pin string
	// stamp lists the variables that take the version at link time. Clients
	// parse what the API server reports, so it has to be right.
	stamp []string
}

func kubernetesBinary(name string) binary {
	return binary{
		name: name,
		dir:  "modules/kubernetes",
		pkg:  "k8s.io/kubernetes/cmd/" + name,
		pin:  "k8s.io/kubernetes",
		stamp: []string{
			"k8s.io/component-base/version.gitVersion",
			"k8s.io/client-go/pkg/version.gitVersion",
		},
	}
}

// binaries lists every program, in the order they are built in: what a cluster
// of simulated nodes needs comes first.
var binaries = []binary{
	{name: "etcd", dir: "modules/etcd", pkg: "go.etcd.io/etcd/server/v3", pin: "go.etcd.io/etcd/server/v3"},
	kubernetesBinary("kube-apiserver"),
	kubernetesBinary("kube-controller-manager"),
	kubernetesBinary("kube-scheduler"),
	{name: "kwok", dir: "modules/kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", pin: "sigs.k8s.io/kwok"},
	kubernetesBinary("kubelet"),
	kubernetesBinary("kubectl"),
	{name: "pause", dir: "pause", pkg: "."},
}

var (
	controlPlaneBinaries = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
	machineBinaries      = []string{"kubelet", "pause"}
)

// Binaries returns the path of each named program, or of all when none is named,
// after building those that the cache does not hold. Progress goes to log.
// Several processes may call it at once: each program is built by one of them.
func Binaries(ctx context.Context, log io.Writer, names ...string) (map[string]string, error) {
	root, err := sourceRoot(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	goVersion, err := goVersion(ctx)
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string)
	for _, b := range binaries {
		if len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		path, err := b.ensure(ctx, filepath.Join(root, "test", "cluster", b.dir), cache, goVersion, log)
		if err != nil {
			return nil, fmt.Errorf("building %s, %w", b.name, err)
		}
		paths[b.name] = path
	}
	return paths, nil
}

// LinkBinaries puts a symbolic link to every program into dir, which is what
// envtest wants to find in KUBEBUILDER_ASSETS.
func LinkBinaries(ctx context.Context, log io.Writer, dir string) error {
	paths, err := Binaries(ctx, log)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, path := range paths {
		// Renamed into place, so that a command that runs it meanwhile always finds one.
		link := filepath.Join(dir, name)
		next := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Symlink(path, next); err != nil {
			return err
		}
		if err := os.Rename(next, link); err != nil {
			return err
		}
	}
	return nil
}

// ensure returns the path of the built program in the cache.
func (b binary) ensure(ctx context.Context, source, cache, goVersion string, log io.Writer) (string, error) {
	version, key, err := b.key(source, goVersion)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, fmt.Sprintf("%s-%s", filepath.Base(b.dir), key), b.name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // built by another process while this one waited
	}
	return path, b.build(ctx, source, path, version, log)
}

// build compiles the program and moves it into place when it is whole.
func (b binary) build(ctx context.Context, source, path, version string, log io.Writer) error {
	partial := path + ".partial"
	defer os.Remove(partial)
	flags := "-s -w"
	for _, variable := range b.stamp {
		flags += fmt.Sprintf(" -X %s=%s", variable, version)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", partial, b.pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	title := strings.TrimSpace(b.name + " " + version)
	done := progress(log, "building "+title)
	err := cmd.Run()
	done()
	if err != nil {
		return fmt.Errorf("running %s in %s, %w\n%s", cmd, source, err, output.Bytes())
	}
	return os.Rename(partial, path)
}

// key returns the version pinned by the module in source, and a key that changes
// with everything the build depends on.
func (b binary) key(source, goVersion string) (version, key string, err error) {
	hash := sha256.New()
	fmt.Fprintln(hash, goVersion, b.stamp)
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := entry.Name()
		if name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name == "go.mod" && b.pin != "" {
			pin := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(b.pin) + ` (v\S+)`).FindSubmatch(data)
			if pin == nil {
				return fmt.Errorf("%s does not require %s", path, b.pin)
			}
			version = string(pin[1])
		}
		fmt.Fprintln(hash, name, len(data))
		hash.Write(data)
		return nil
	})
	if err != nil {
		return "", "", err
	}
	key = hex.EncodeToString(hash.Sum(nil))[:12]
	if version != "" {
		key = version + "-" + key
	}
	return version, key, nil
}

// cacheDir is where built programs are kept between runs.
func cacheDir() (string, error) {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "moult"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache", "moult"), nil
}

// sourceRoot finds the module's source tree around the working directory, which
// for a test is its package's.
func sourceRoot(ctx context.Context) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+module+"\n") {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	// Another module may depend on this one.
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("finding the source of %s from the working directory, %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOHOSTOS", "GOHOSTARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking the go command for its version, %w", err)
	}
	return strings.Join(strings.Fields(string(out)), " "), nil
}

// progress reports a long step: now, every ten seconds, and when done is called.
func progress(log io.Writer, what string) (done func()) {
	started := time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	fmt.Fprintf(log, "%s ...\n", what)
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(log, "%s ... %.0fs\n", what, time.Since(started).Seconds())
			case <-stop:
				fmt.Fprintf(log, "%s ... done in %.1fs\n", what, time.Since(started).Seconds())
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
