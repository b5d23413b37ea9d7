// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestShow shows a difference by the programs that there are.
func TestShowDiff(t *testing.T) {
	a, b := side{"side", []byte("line 1\nline 2\n")}, side{"side", []byte("line 1\nx\n")}
	const first = "Diffing between side (active) and side (canary)\n"
	for name, tc := range map[string]struct {
		script   string // of a program called diff; none where it is empty
		external string
		b        side
		want     string
		err      string
	}{
		"no difference":             {b: a, want: first + "There is no difference.\n"},
		"no diff":                   {b: b, want: first, err: `running ["diff" "-y" "--color=never"]`},
		"a diff without -y":         {script: "echo unknown option >&2; exit 2", b: b, want: first, err: "($KUBECTL_EXTERNAL_DIFF may name another program), exit status 2: unknown option"},
		"diff":                      {script: `echo "$@" | sed "s|/[^ ]*/||g"; exit 1`, b: b, want: first + "-y --color=never active-side.yaml canary-side.yaml\n"},
		"another program":           {script: `echo called; cat "$2"; exit 1`, external: "diff -x", b: b, want: first + "called\nline 1\nline 2\n"},
		"another that exits with 0": {script: `echo same`, external: "diff -x", b: b, want: first + "same\n"},
		"another that fails":        {script: `echo broken; exit 3`, external: "diff", b: b, want: first, err: `running ["diff"`},
		"another that is not here":  {external: "no-such-diff", b: b, want: first, err: "no-such-diff"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir+string(os.PathListSeparator)+"/nowhere")
			t.Setenv("TMPDIR", dir)
			t.Setenv(external, tc.external)
			if tc.script != "" {
				script := "#!/bin/sh\nPATH=/bin:/usr/bin\n" + tc.script + "\n"
				if err := os.WriteFile(filepath.Join(dir, "diff"), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			c := &command{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}
			err := c.showDiff(t.Context(), a, tc.b)
			if err == nil && tc.err != "" || err != nil && (tc.err == "" || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Error(diff)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "kubectl-eds-diff-*")); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		})
	}
}
