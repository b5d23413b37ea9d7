// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"moult.dev/moult/test/cluster"
)

// remove ends the demo whose state is in dir, however much of it there is.
func remove(ctx context.Context, dir string) error {
	if !there(dir) {
		fmt.Printf("There is no demo in %s.\n", dir)
		return nil
	}
	if err := stopOutside(ctx, dir); err != nil {
		return err
	}
	if err := cluster.Down(ctx, filepath.Join(dir, "cluster")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ending the cluster, %w", err)
	}
	// The marker goes last: what is interrupted can be done again.
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != marker {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}
