// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

func TestFinish(t *testing.T) {
	const definition = `
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: ours
        properties:
          spec:
            description: ours
            properties:
              paused: {type: boolean, description: ours, default: false}
              maxUnavailable: {x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: self != ''}]}
              template:
                description: ours
                properties:
                  metadata: {type: object, description: theirs}
                  spec:
                    description: theirs
                    properties:
                      description: {type: string, description: a field of that name, default: theirs}
                      containers:
                        items:
                          properties:
                            ports: {items: {properties: {protocol: {default: TCP}, other: {default: TCP}}}}
                            limits: {additionalProperties: {x-kubernetes-int-or-string: true, pattern: theirs, description: theirs}}
                            probe: {properties: {port: {x-kubernetes-int-or-string: true}}}
`
	done, err := Finish([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	var got schema
	if err := yaml.Unmarshal(done, &got); err != nil {
		t.Fatal(err)
	}
	spec := below(got["spec"].(schema)["versions"].([]any)[0].(schema), "schema", "openAPIV3Schema", "properties", "spec")
	meta := below(spec, "properties", "template", "properties")
	if below(meta, "metadata", "properties", "creationTimestamp")["nullable"] != true {
		t.Errorf("metadata is %v", meta["metadata"])
	}
	delete(meta, "metadata")
	var want schema
	if err := yaml.Unmarshal([]byte(`
description: ours
properties:
  paused: {type: boolean, description: ours, default: false}
  maxUnavailable: {x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: self != ''}]}
  template:
    description: ours
    properties:
      spec:
        properties:
          description: {type: string}
          containers:
            items:
              properties:
                ports: {items: {properties: {protocol: {default: TCP}, other: {}}}}
                limits: {additionalProperties: {x-kubernetes-int-or-string: true, pattern: "`+quantity+`", maxLength: 64}}
                probe: {properties: {port: {x-kubernetes-int-or-string: true, minimum: -2147483648, maximum: 2147483647}}}
`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What the patterns take can be read back, and what is in use is taken.
func TestPatterns(t *testing.T) {
	pattern := regexp.MustCompile(quantity)
	for _, text := range []string{
		"0", "1", "100m", "1.5", "1.", ".5", "+1", "-1", "1Gi", "1.5Gi", "128Mi", "1k", "1e3", "1E3", "1e-3", "1e+3", "1e999", "1e-999", "5u", "9n", "1M",
		"99999999999999999999", "99999999999999999999Ei",
	} {
		if !pattern.MatchString(text) {
			t.Errorf("%s is refused", text)
		}
		if _, err := resource.ParseQuantity(text); err != nil {
			t.Errorf("%s can't be read: %v", text, err)
		}
	}
	for _, text := range []string{"", ".", "m", "1 Gi", "1gi", "1e", "1e1.5", "1e.5", "1e99999999999999999999", "one", "1\n"} {
		if pattern.MatchString(text) {
			t.Errorf("%q is taken", text)
		}
	}

	times := regexp.MustCompile(timePattern)
	for _, text := range []string{
		"2026-11-21T17:09:42Z", "2026-11-21T17:09:42.5Z", "2026-11-21T17:09:42+01:00", "2026-11-21T17:09:42-23:59", "0001-01-01T00:00:00Z",
	} {
		if !times.MatchString(text) {
			t.Errorf("%s is refused", text)
		}
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			t.Errorf("%s can't be read: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "now", "2026-11-21", "2026-11-21t17:09:42z", "2026-11-21T17:09:42", "2026-11-21 17:09:42Z", "2026-11-21T17:09:42+25:00",
	} {
		if times.MatchString(text) {
			t.Errorf("%q is taken", text)
		}
	}
}
