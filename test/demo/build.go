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

// workloadImage is what workload.yaml names.
const workloadImage = "moult.dev/demo-web:dev"

// daemon is the program that a machine runs, that a Plan's image holds, and of which the workload is made.
const daemon = "demo-daemon"

func (d *demo) bin(name string) string { return filepath.Join(d.dir, "bin", name) }

// program is one to build of a package, by its name in the demo's bin.
type program struct{ name, pkg string }

// buildPrograms compiles Moult and what a kind of demo needs beside it.
func (d *demo) buildPrograms(ctx context.Context, others ...program) error {
	kubectl, err := cluster.Binaries(ctx, d.details(), "kubectl")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(d.bin(""), 0o755), os.Symlink(kubectl["kubectl"], d.bin("kubectl"))); err != nil {
		return err
	}
	programs := append([]program{
		{"moult", "./cmd/moult"}, {"moult-agent", "./cmd/moult-agent"}, {"kubectl-moult", "./cmd/kubectl-moult"},
	}, others...)
	for _, p := range programs {
		if err := image.GoBinary(ctx, d.root, p.pkg, d.bin(p.name), "-ldflags=-s -w -X main.version=demo"); err != nil {
			return err
		}
	}
	return os.Symlink("kubectl-moult", d.bin("kubectl_complete-moult"))
}

// buildOperator packs the operator and its agent.
func (d *demo) buildOperator(ctx context.Context) error {
	for name, tag := range map[string]string{"moult": image.Operator, "moult-agent": image.Agent} {
		if err := image.Build(ctx, image.Program(tag, d.bin(name), ""), d.archive(name)); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) archive(name string) string { return filepath.Join(d.dir, "images", name+".tar") }

// daemonImage is one of the daemon in this version.
func (d *demo) daemonImage(tag, v string) image.Spec {
	return image.Spec{
		Tags:       []string{tag},
		Entrypoint: []string{"/" + daemon},
		Files: map[string]image.File{
			"/" + daemon: {Source: d.bin(daemon)},
			"/VERSION":   {Content: []byte(v + "\n")},
		},
	}
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
