// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// numbered is n lines, of which some are replaced, or dropped where the text is empty.
func numbered(n int, changed map[int]string) side {
	var text bytes.Buffer
	for i := range n {
		if line, ok := changed[i+1]; !ok {
			fmt.Fprintf(&text, "line %d\n", i+1)
		} else if line != "" {
			text.WriteString(line + "\n")
		}
	}
	return side{name: "side", text: text.Bytes()}
}

// TestUnified compares with diff -u, where there is one.
func TestUnified(t *testing.T) {
	program, err := exec.LookPath("diff")
	if err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct{ a, b side }{
		"first line":         {numbered(9, nil), numbered(9, map[int]string{1: "x"})},
		"last line":          {numbered(9, nil), numbered(9, map[int]string{9: "x"})},
		"two hunks":          {numbered(30, nil), numbered(30, map[int]string{5: "x", 25: "y"})},
		"two that touch":     {numbered(30, nil), numbered(30, map[int]string{5: "x", 12: "y"})},
		"two that just part": {numbered(30, nil), numbered(30, map[int]string{5: "x", 13: "y"})},
		"less":               {numbered(30, nil), numbered(30, map[int]string{5: "", 6: "", 20: ""})},
		"more":               {numbered(30, map[int]string{5: "", 6: "", 20: ""}), numbered(30, nil)},
		"all":                {numbered(3, nil), numbered(3, map[int]string{1: "x", 2: "y", 3: "z"})},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var files []string
			for i, s := range []side{tc.a, tc.b} {
				files = append(files, filepath.Join(dir, fmt.Sprint(i)))
				if err := os.WriteFile(files[i], s.text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), program, "-u", files[0], files[1]).Output()
			if err == nil || len(out) == 0 {
				t.Skip("this diff knows no -u")
			}
			want := strings.SplitN(string(out), "\n", 3)[2]
			diff, err := unified(tc.a, tc.b)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.SplitN(string(diff), "\n", 3)
			if got[0] != "--- side (active)" || got[1] != "+++ side (canary)" {
				t.Errorf("it begins with %q, %q", got[0], got[1])
			}
			if diff := cmp.Diff(want, got[2]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestShow shows a difference by the programs that there are.
func TestShowDiff(t *testing.T) {
	a, b := numbered(2, nil), numbered(2, map[int]string{2: "x"})
	const first = "Diffing between side (active) and side (canary)\n"
	differs := first + "--- side (active)\n+++ side (canary)\n@@ -1,2 +1,2 @@\n line 1\n-line 2\n+x\n"
	for name, tc := range map[string]struct {
		script   string // of a program called diff; none where it is empty
		external string
		b        side
		want     string
		err      string
	}{
		"no difference":             {b: a, want: first + "There is no difference.\n"},
		"no diff":                   {b: b, want: differs},
		"a diff without -y":         {script: "echo unknown option >&2; exit 2", b: b, want: differs},
		"diff":                      {script: `echo "$@" | sed "s|/[^ ]*/||g"; exit 1`, b: b, want: first + "-y --color=never active-side.yaml canary-side.yaml\n"},
		"another program":           {script: `echo called; cat "$2"; exit 1`, external: "diff -x", b: b, want: first + "called\nline 1\nline 2\n"},
		"another that exits with 0": {script: `echo same`, external: "diff -x", b: b, want: first + "same\n"},
		"another that fails":        {script: `echo broken; exit 3`, external: "diff", b: b, want: first, err: `running $KUBECTL_EXTERNAL_DIFF ["diff"`},
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
