// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

import (
	"os"
	"path/filepath"
	"testing"

	"moult.dev/moult/hack/image"
)

// mostDisk is what the program may take at most, in bytes. The clients of three clouds have tens of thousands of methods, of which it
// calls a few: it is twice as large once anything in it finds methods by their names, because the linker keeps them all then.
const mostDisk = 70e6

func TestProgramIsLean(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "moult")
	if err := image.GoBinary(t.Context(), ".", ".", binary, "-ldflags=-s -w"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the program is %.1f MB", float64(info.Size())/1e6)
	if info.Size() > mostDisk {
		t.Errorf("it must be no more than %.0f MB: go build -ldflags=-dumpdep says what is marked ReflectMethod, and who leads there", mostDisk/1e6)
	}
}
