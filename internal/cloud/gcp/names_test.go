// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"moult.dev/moult/internal/cloud"
)

func TestNewNames(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	for base, prefix := range map[string]string{
		"pool": "pool-", "vm-###": "vm-", "vm-##[100]": "vm-", "a-": "a-",
		strings.Repeat("long-", 11) + "abc": strings.Repeat("long-", 10),
	} {
		names := newNames(base, "token", 100)
		seen := map[string]bool{}
		for _, name := range names {
			if !valid.MatchString(name) || !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, prefix+"-") || seen[name] {
				t.Errorf("%s: %s", base, name)
			}
			seen[name] = true
		}
		if !slices.Equal(names, newNames(base, "token", 100)) {
			t.Errorf("%s: other names for the same token", base)
		}
		for _, name := range newNames(base, "token2", 100) {
			if seen[name] {
				t.Errorf("%s: %s again for another token", base, name)
			}
		}
	}
}

func TestRequestID(t *testing.T) {
	valid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b, c := requestID("zones/a/b", "t"), requestID("zones/a/b", "t"), requestID("zones/a/b", "u")
	if a != b || a == c || !valid.MatchString(a) {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

func TestTemplate(t *testing.T) {
	c := &Cloud{project: "p"}
	for link, want := range map[string]string{
		"": "", "t": "projects/p/global/instanceTemplates/t",
		"global/instanceTemplates/t":                                                         "projects/p/global/instanceTemplates/t",
		"regions/r/instanceTemplates/t":                                                      "projects/p/regions/r/instanceTemplates/t",
		"projects/q/global/instanceTemplates/t":                                              "projects/q/global/instanceTemplates/t",
		"https://www.googleapis.com/compute/v1/projects/q/global/instanceTemplates/t":        "projects/q/global/instanceTemplates/t",
		"https://compute.googleapis.com/compute/v1/projects/q/regions/r/instanceTemplates/t": "projects/q/regions/r/instanceTemplates/t",
	} {
		if got := c.template(link); got != want {
			t.Errorf("%s: %s, want %s", link, got, want)
		}
	}
}

func TestRoot(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://compute.example.com":       "https://compute.example.com/compute/v1/",
		"https://proxy.example.com/google/": "https://proxy.example.com/google/compute/v1/",
		"http://127.0.0.1:8080":             "http://127.0.0.1:8080/compute/v1/",
		"http://[::1]:8080/":                "http://[::1]:8080/compute/v1/",
		"http://localhost:8080":             "http://localhost:8080/compute/v1/",
		"http://compute.example.com":        "",
		"http://127.0.0.1.example.com":      "",
		"compute.example.com":               "",
		"://":                               "",
		"ftp://127.0.0.1":                   "",
	} {
		got, err := apiRoot(endpoint)
		if got != want || (cloud.KindOf(err) == cloud.KindInvalid) != (want == "") {
			t.Errorf("%s: %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

func TestGroupOf(t *testing.T) {
	for name, want := range map[string]group{
		"zones/z/n": {location: "z", name: "n"}, "regions/r/n": {regional: true, location: "r", name: "n"},
		"": {}, "n": {}, "zones/z": {}, "zones//n": {}, "zones/z/": {}, "places/z/n": {}, "zones/z/n/m": {},
	} {
		got, ok := groupOf(name, groupName)
		if got != want || ok != (want != group{}) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
		if ok && got.String() != name {
			t.Errorf("%s became %s", name, got)
		}
	}
	for metadata, want := range map[string]group{
		"projects/123/zones/z/instanceGroupManagers/n":   {location: "z", name: "n"},
		"projects/123/regions/r/instanceGroupManagers/n": {regional: true, location: "r", name: "n"},
		"": {}, "projects/123/zones/z/instances/n": {}, "instanceGroupManagers/n": {},
	} {
		if got, ok := groupOf(metadata, groupPath); got != want || ok != (want != group{}) {
			t.Errorf("%s: %+v, %v", metadata, got, ok)
		}
	}
}
