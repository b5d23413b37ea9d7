// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"moult.dev/moult/hack/image"
)

// lines are those of the chart that a release changes, and how often each file has them.
var lines = []struct {
	file, pattern string
	times         int
	replacement   func(*release) string
}{
	{"Chart.yaml", `(?m)^((?:version|appVersion): ).+$`, 2, func(r *release) string { return r.Version }},
	{"values.yaml", `(?m)^( *registry: )moult\.dev\b`, 1, func(r *release) string { return r.Registry }},
}

// writeChart writes the Helm chart as `helm package` does, which puts the time of the build into each entry.
func (r *release) writeChart(ctx context.Context) error {
	dir := filepath.Join(r.Root, "charts", "moult")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(r.log, "warning: there is no chart")
		return nil
	}
	tree, err := image.Tree(dir)
	if err != nil {
		return err
	}
	files := map[string]image.File{}
	for p, file := range tree {
		if !strings.HasPrefix(path.Base(p), ".") {
			files["/moult"+p] = file
		}
	}
	for _, line := range lines {
		content, err := os.ReadFile(filepath.Join(dir, line.file))
		if err != nil {
			return err
		}
		pattern := regexp.MustCompile(line.pattern)
		if n := len(pattern.FindAll(content, -1)); n != line.times {
			return fmt.Errorf("%s has %d lines %s, want %d", line.file, n, pattern, line.times)
		}
		files["/moult/"+line.file] = image.File{Content: pattern.ReplaceAll(content, []byte("${1}"+line.replacement(r)))}
	}
	archive, err := r.path("moult-" + r.Version + ".tgz")
	if err != nil {
		return err
	}
	return writeTarGz(ctx, archive, files, r.created)
}
