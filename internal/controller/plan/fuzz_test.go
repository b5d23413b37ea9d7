// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// FuzzDigestField finds paths whose field is not trimmed, or depends on what is not at the path.
func FuzzDigestField(f *testing.F) {
	f.Add("spec.upgrade.image", `{"spec":{"upgrade":{"image":" x "}}}`)
	f.Add("spec.list", `{"spec":{"list":[{"b":1,"a":2}]}}`)
	f.Add("..", `{"":{"":{"":[]}}}`)
	f.Add("spec.x.y", `{"spec":{"x":"text"}}`)
	f.Fuzz(func(t *testing.T, path, text string) {
		fields := map[string]any{}
		if json.Unmarshal([]byte(text), &fields) != nil {
			return
		}
		parts := strings.Split(path, ".")
		got := digestField(fields, parts)
		if got != strings.TrimSpace(got) {
			t.Errorf("%q", got)
		}
		if _, has := fields[parts[0]]; !has && got != "" {
			t.Errorf("%q at %q", got, path)
		}
		fields["\x00beside"] = "x"
		if again := digestField(fields, parts); again != got && parts[0] != "\x00beside" {
			t.Errorf("%q became %q", got, again)
		}
	})
}

// FuzzLatestHash finds digest annotations by which one Plan costs much: a path may name the whole Plan, again and again.
func FuzzLatestHash(f *testing.F) {
	f.Add("spec.upgrade,metadata.name")
	f.Add("")
	f.Add(strings.Repeat("spec,", 1000))
	f.Fuzz(func(t *testing.T, paths string) {
		p := &upgradev1.Plan{}
		p.Annotations = map[string]string{upgradev1.AnnotationDigest: paths}
		hash, err := latestHash(p, nil)
		if many := strings.Count(paths, ",") >= maxDigestFields; many != (err != nil) || err == nil && len(hash) != 56 {
			t.Errorf("%d paths: %q, %v", strings.Count(paths, ",")+1, hash, err)
		}
	})
}

// redirecting answers each request with a status and a location.
type redirecting struct {
	code     int
	location string
}

func (a redirecting) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{"Location": {a.location}}, Body: http.NoBody, Request: r}, nil
}

// FuzzChannel finds answers of channels that are taken for a version with a path or a secret in it.
func FuzzChannel(f *testing.F) {
	f.Add(302, "https://x/releases/tag/v1.2.3")
	f.Add(302, "/a/..")
	f.Add(302, "//x/%2e%2e%2fb?token=s3cret#f")
	f.Add(301, "https://elsewhere/")
	f.Add(200, "")
	f.Add(500, "\x00")
	f.Fuzz(func(t *testing.T, code int, location string) {
		if code < 100 || code > 999 || strings.ContainsAny(location, "\r\n") {
			return // No answer has these.
		}
		client := &http.Client{Transport: redirecting{code, location}, CheckRedirect: followMove}
		got, err := resolve(t.Context(), client, "https://channel.example/v1", "", "")
		if err == nil && (got == "" || strings.Contains(got, "/")) {
			t.Errorf("%d %q: %q", code, location, got)
		}
		at, bad := url.Parse(location)
		if bad == nil && code == http.StatusFound && err == nil && location != "" && got != path.Base((&url.URL{Path: "/v1"}).ResolveReference(at).Path) {
			t.Errorf("%q: %q", location, got)
		}
		if checkVersion(munge(got)) == nil && (len(got) > 63 || strings.ContainsAny(munge(got), "+/ \n")) {
			t.Errorf("%q is a version", got)
		}
	})
}

// FuzzIsDowngrade finds versions that are lower than each other.
func FuzzIsDowngrade(f *testing.F) {
	f.Add("v1.2.3-k3s1", "v1.2.3-k3s10")
	f.Add("v1.2.3", "x")
	f.Add("1.2.3-00001", "1.2.3-1")
	f.Add("1.99999999999999999999", "1.2")
	f.Fuzz(func(t *testing.T, a, b string) {
		if isDowngrade(a, b) && isDowngrade(b, a) || isDowngrade(a, a) {
			t.Errorf("%q and %q", a, b)
		}
	})
}
