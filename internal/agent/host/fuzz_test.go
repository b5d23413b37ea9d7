// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answering answers every request with this body.
type answering struct {
	code int
	body string
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(strings.NewReader(a.body)), Header: http.Header{}, Request: r}, nil
}

// FuzzUpdateAPI finds answers from which a version is read that nothing has staged, or an error that is long.
func FuzzUpdateAPI(f *testing.F) {
	f.Add(200, `{"update_state":"Staged","chosen_update":{"version":"1.2.3"},"staging_partition":{"image":{"version":"1.2.3"}},`+
		`"most_recent_command":{"cmd_type":"refresh","cmd_status":"Success","timestamp":"t"}}`)
	f.Add(200, `{"update_state":"Idle","staging_partition":null,"most_recent_command":{"cmd_status":"Failed","stderr":"\u0000\ud800 x"},"version_id":"1.2.3"}`)
	f.Add(200, `null`)
	f.Add(404, ``)
	f.Add(423, strings.Repeat("busy ", 1000))
	f.Fuzz(func(t *testing.T, code int, body string) {
		const bound = 2 * maxBrief
		a := &UpdateAPI{client: &http.Client{Transport: answering{code, body}}, requestLimit: time.Minute}
		status, err := a.status(t.Context())
		if answer, ok := errors.AsType[*answerError](err); ok && (code/100 == 2 || len(answer.text) > bound) {
			t.Errorf("%d: %d bytes of error", code, len(answer.text))
		}
		if status == nil {
			t.Fatal("no status")
		}
		if staged := status.staged(); staged != "" && status.State != stateStaged && status.State != stateReady {
			t.Errorf("%s is staged in the state %s", staged, status.State)
		}
		if why := status.Last.failure(); why != nil && status.Last.Stderr != "" && len(why.Error()) > bound {
			t.Errorf("%d bytes of error", len(why.Error()))
		}
		if version, err := a.Version(t.Context()); err == nil && version == "" {
			t.Error("a version is empty")
		}
	})
}

// FuzzLastVersion finds output of updog from which something is read that is no version.
func FuzzLastVersion(f *testing.F) {
	for _, text := range []string{"aws-k8s-1.15 1.20.3 (v0.0)", "Starting update to 1.2.3\nUpdate applied: x v1.2.4-rc.1+b\n", "", "\n1.2.3\r\n", "1.2", "v1.2.3v"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		version := lastVersion(text)
		if version == "" {
			return
		}
		if !strings.Contains(text, version) || len(strings.Fields(version)) != 1 {
			t.Errorf("%q is read from %q", version, text)
		}
		if again := lastVersion(version); again != version {
			t.Errorf("%q is read as %q", version, again)
		}
	})
}

// FuzzOSRelease finds files from which a version of several lines or none is read.
func FuzzOSRelease(f *testing.F) {
	for _, text := range []string{"VERSION_ID=1.20.3\n", `VERSION_ID="1.2"`, "A=b\nVERSION_ID='x'\r\n", "VERSION_ID=", "", "VERSION_ID\n", "\x00VERSION_ID=1"} {
		f.Add(text)
	}
	u := NewUpdog("", "")
	f.Fuzz(func(t *testing.T, text string) {
		u.release = filepath.Join(t.TempDir(), "os-release")
		write(t, u.release, text)
		version, err := u.Version(t.Context())
		if has := strings.Contains(text, "VERSION_ID="); err == nil && !has || strings.Contains(version, "\n") || !strings.Contains(text, version) {
			t.Errorf("%q is read from %q, %v", version, text, err)
		}
	})
}

// FuzzBrief finds output that is not shortened to one line.
func FuzzBrief(f *testing.F) {
	f.Add("a\nb")
	f.Add(strings.Repeat("\xff é", maxBrief))
	f.Fuzz(func(t *testing.T, text string) {
		if got := brief(text); len(got) > maxBrief+3 || strings.ContainsAny(got, "\n\r\t") || brief(got) != got && len(got) <= maxBrief {
			t.Errorf("%q became %q", text, got)
		}
	})
}
