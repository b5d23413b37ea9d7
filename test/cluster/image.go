// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"

	"moult.dev/moult/hack/build"
	"moult.dev/moult/hack/image"
)

// ShellImage is an image on every machine that has a shell and the usual commands.
const ShellImage = image.Busybox

// standardImages writes the images that every machine has and returns their paths.
func (s *supervisor) standardImages(ctx context.Context) ([]string, error) {
	dir := filepath.Join(s.spec.Dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	shell, err := image.Shell(ctx, findTool("busybox"))
	if err != nil {
		return nil, err
	}
	shell.Env = []string{"PATH=" + toolPath}
	pause := image.Spec{
		Tags:       []string{pauseImage},
		Files:      map[string]image.File{"/pause": {Source: filepath.Join(s.spec.Programs, build.Pause)}},
		Entrypoint: []string{"/pause"},
	}
	var paths []string
	for name, spec := range map[string]image.Spec{"pause.tar": pause, "shell.tar": shell} {
		file := filepath.Join(dir, name)
		if err := image.Build(ctx, spec, file); err != nil {
			return nil, err
		}
		paths = append(paths, file)
	}
	return paths, nil
}
