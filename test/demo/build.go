// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

// versions of the demo: what is there at first, what examples/plan.yaml brings, and one to try.
var versions = []string{"v1.0.0", "v1.1.0", "v1.2.0"}

// The images that examples/plan.yaml and workload.yaml name.
const (
	upgradeImage  = "moult.dev/demo-upgrade"
	workloadImage = "moult.dev/demo-web:dev"
)

// daemon is the program that a machine runs, and that a Plan's image holds.
const daemon = "demo-daemon"

func (d *demo) bin(name string) string { return filepath.Join(d.dir, "bin", name) }

// build compiles what the demo needs, and packs it into images.
func (d *demo) build(ctx context.Context) error {
	kubectl, err := cluster.Binaries(ctx, d.details(), "kubectl")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(d.bin(""), 0o755), os.Symlink(kubectl["kubectl"], d.bin("kubectl"))); err != nil {
		return err
	}
	for _, p := range []struct{ name, pkg string }{
		{"moult", "./cmd/moult"}, {"kubectl-moult", "./cmd/kubectl-moult"}, {daemon, "./test/demo/upgrade"},
	} {
		if err := image.GoBinary(ctx, d.root, p.pkg, d.bin(p.name), "-ldflags=-s -w -X main.version=demo"); err != nil {
			return err
		}
	}
	if err := os.Symlink("kubectl-moult", d.bin("kubectl_complete-moult")); err != nil {
		return err
	}
	if d.machines == 0 {
		return nil
	}
	if err := image.Build(ctx, image.Program(image.Operator, d.bin("moult"), ""), d.archive("moult")); err != nil {
		return err
	}
	for _, v := range versions[1:] {
		if err := image.Build(ctx, d.version(v), d.archive(v)); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) archive(name string) string { return filepath.Join(d.dir, "images", name+".tar") }

func (d *demo) images() []string {
	return []string{d.archive("moult"), d.archive(versions[1]), d.archive(versions[2])}
}

// version is the image that brings a machine to this version. The workload is made of it too.
func (d *demo) version(v string) image.Spec {
	spec := image.Spec{
		Tags:       []string{upgradeImage + ":" + v},
		Entrypoint: []string{"/" + daemon},
		Files: map[string]image.File{
			"/" + daemon: {Source: d.bin(daemon)},
			"/VERSION":   {Content: []byte(v + "\n")},
		},
	}
	if v == versions[1] {
		spec.Tags = append(spec.Tags, workloadImage)
	}
	return spec
}

// kubectl runs kubectl on the demo's cluster and shows what it says.
func (d *demo) kubectl(ctx context.Context, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, d.bin("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.cluster.Kubeconfig())
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running kubectl %q, %w\n%s", args, err, out.Bytes())
	}
	return nil
}

// The marker says that a directory is a demo's, and may be removed.
const marker = "moult-demo"

func there(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, marker))
	return err == nil
}

// claim makes the directory, or takes an empty one.
func claim(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s has something else in it: choose another directory with --dir", dir)
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, marker), nil, 0o644))
}
