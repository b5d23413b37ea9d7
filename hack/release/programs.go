// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"strings"

	"moult.dev/moult/hack/build"
)

// plugin is the program that people have on their machines. The others run in clusters, on Linux.
const plugin = "kubectl-moult"

// program is one that was built for one platform.
type program struct {
	name, os, arch string
	// file is where it is.
	file string
}

// platform names the program's platform in names of files.
func (p program) platform() string { return p.os + "_" + p.arch }

// buildPrograms builds every program for every platform that it is for.
func (r *release) buildPrograms(ctx context.Context) error {
	for platform := range strings.SplitSeq(r.Platforms, ",") {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("platform %q is not like linux/amd64", platform)
		}
		names := []string{plugin}
		if goos == "linux" {
			names = append(names, "moult", "moult-agent")
		}
		for _, name := range names {
			p := program{name: name, os: goos, arch: arch}
			p.file = filepath.Join(r.work, p.platform(), name+suffix(goos))
			err := build.Program{
				Name:    name + " for " + platform,
				Dir:     r.Root,
				Package: "./cmd/" + name,
				Output:  p.file,
				LDFlags: "-buildid= -X main.version=" + r.Version,
				// What else of the environment chooses instructions is set to Go's defaults.
				Env: []string{"GOOS=" + goos, "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"},
			}.Build(ctx, r.log)
			if err != nil {
				return err
			}
			r.programs = append(r.programs, p)
		}
	}
	if _, err := r.local(); err != nil {
		return err
	}
	for range r.named("moult") {
		return nil
	}
	return fmt.Errorf("platforms %s have none of Linux, which images need", r.Platforms)
}

// suffix is what names of programs end with.
func suffix(goos string) string {
	if goos == "windows" {
		return ".exe"
	}
	return ""
}

// named returns the builds of one program.
func (r *release) named(name string) iter.Seq[program] {
	return func(yield func(program) bool) {
		for _, p := range r.programs {
			if p.name == name && !yield(p) {
				return
			}
		}
	}
}

// local returns the plugin that runs on this machine.
func (r *release) local() (program, error) {
	for p := range r.named(plugin) {
		if p.os == runtime.GOOS && p.arch == runtime.GOARCH {
			return p, nil
		}
	}
	return program{}, fmt.Errorf("platforms %s do not have that of this machine, %s/%s", r.Platforms, runtime.GOOS, runtime.GOARCH)
}
