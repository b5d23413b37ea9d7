// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"path/filepath"

	"moult.dev/moult/hack/build"
)

// Binaries returns the path of each named program, after building what clusters consist of unless that has been built.
// Progress goes to log. Several processes may call it at once: one of them builds.
func Binaries(ctx context.Context, log io.Writer, names ...string) (map[string]string, error) {
	dir, err := build.Programs(ctx, log)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, name := range names {
		paths[name] = filepath.Join(dir, name)
	}
	return paths, nil
}
