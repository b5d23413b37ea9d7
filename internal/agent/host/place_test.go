// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRunCancelled ends the context of a command that would go on, with what that has started.
func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := place{}.run(ctx, "sh", "-c", "sleep 60 & sleep 60")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}

// TestRunLeavesBehind runs a command that ends, and leaves behind one that does not.
func TestRunLeavesBehind(t *testing.T) {
	o, err := place{grace: 50 * time.Millisecond}.run(t.Context(), "sh", "-c", "echo done; sleep 3 &")
	if err != nil {
		t.Fatal(err)
	}
	if o.code != 0 || o.stdout != "done\n" {
		t.Errorf("outcome %+v", o)
	}
}

func TestRunOutput(t *testing.T) {
	o, err := place{}.run(t.Context(), "sh", "-c", "yes | head -c 200000; echo; echo last; echo a >&2; echo b >&2; exit 5")
	if err != nil {
		t.Fatal(err)
	}
	if len(o.stdout) != maxOutput || !strings.HasSuffix(o.stdout, "\nlast\n") {
		t.Errorf("%d bytes, that end in %q", len(o.stdout), o.stdout[len(o.stdout)-10:])
	}
	failing(t, o.failure(), "exit status 5: a b")
}

func TestBrief(t *testing.T) {
	long := strings.Repeat("x", maxBrief)
	for said, want := range map[string]string{
		"":                        "",
		" \n\n":                   "",
		"one\n":                   "one",
		"one\r\n  two\t three \n": "one two three",
		"far away\n" + long:       "..." + long,
		long + "y":                "..." + long[1:] + "y",
		"\xff\n":                  "?",
	} {
		if diff := cmp.Diff(want, brief(said)); diff != "" {
			t.Errorf("%q: %s", said, diff)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://p:3128")
	t.Setenv("PATH", "/nowhere")
	o, err := place{}.run(t.Context(), "sh", "-c", "echo $HTTPS_PROXY $PATH $TERM $LANG")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("http://p:3128 "+searchPath+" xterm C\n", o.stdout); diff != "" {
		t.Error(diff)
	}
}
