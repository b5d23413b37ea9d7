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

// versions are the lines of a Chart.yaml that name a version of Moult.
var versions = regexp.MustCompile(`(?m)^(version|appVersion):.*$`)

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
	chart, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	if n := len(versions.FindAll(chart, -1)); n != 2 {
		return fmt.Errorf("Chart.yaml has %d lines of version and appVersion, want 2", n)
	}
	chart = versions.ReplaceAll(chart, []byte("${1}: "+r.Version))
	files["/moult/Chart.yaml"] = image.File{Content: chart}
	archive, err := r.path("moult-" + r.Version + ".tgz")
	if err != nil {
		return err
	}
	return writeTarGz(ctx, archive, files, r.created)
}
