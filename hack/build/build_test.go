// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	failed := errors.New("exit status 1")
	for output, want := range map[string]string{
		"main.go:3:2: x@v1: Get \"https://proxy/x\": dial tcp: lookup proxy: no such host": noNetwork,
		"dial tcp 127.0.0.1:1: connect: connection refused":                                noNetwork,
		"write /cache/a: no space left on device":                                          "the disk is full",
		"go: example.com/x: compile: signal: killed":                                       "for want of memory",
		"# example.com/x\n./x.go:3:1: undefined: y":                                        "undefined: y",
	} {
		if got := explain(t.Context(), failed, output).Error(); !strings.Contains(got, want) {
			t.Errorf("%q is explained by %q, want %q", output, got, want)
		}
	}
}

// A line of any length is read, and what follows it.
func TestLongLines(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x >&2\necho >&2\necho the end >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	err := Program{Package: "."}.goCommand(t.Context(), dir, func(line string, _ bool) bool { return line != "the end" })
	if err == nil || !strings.Contains(err.Error(), "the end") {
		t.Errorf("got %v, want what go printed last", err)
	}
}
