// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
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
