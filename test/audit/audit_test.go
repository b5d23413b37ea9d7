// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(text string) {
		t.Helper()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	read := func() (got []string) {
		t.Helper()
		err := log.Read(`"userAgent":"moult/`, func(e *Event) {
			text := e.Verb + " " + e.Resource()
			if e.Refused() {
				text += " refused"
			}
			got = append(got, text)
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}

	write(`{"stage":"ResponseComplete","verb":"patch","userAgent":"moult/dev","objectRef":{"resource":"plans","subresource":"status"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"create","userAgent":"kwok/dev","objectRef":{"resource":"pods"},"responseStatus":{"code":201}}
{"stage":"ResponseStarted","verb":"watch","userAgent":"moult/dev","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/apis","userAgent":"moult/dev","responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"patch","userAgent":"moult/dev","objectRef":{"resource":"no`)
	expect("patch plans/status", "watch nodes", "get /apis")

	write(`des"},"responseStatus":{"code":409}}` + "\n")
	write(`{"stage":"ResponseComplete","verb":"watch","userAgent":"moult/dev","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}` + "\n")
	expect("patch nodes refused")
	expect()
}
