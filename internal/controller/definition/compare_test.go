// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/config/crd"
)

// own returns the definition of these objects that this program was built with.
func own(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Spec.Names.Plural == plural {
			return d
		}
	}
	t.Fatalf("there is no definition of %s", plural)
	return nil
}

// peers returns a peer's definition of the same objects, as far as the status goes: the fields that config/crd/testdata lists.
func peers(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile("../../../config/crd/testdata/" + plural + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		path, _, _ := strings.Cut(line, " ")
		fields[path] = true
	}
	var keep func(path string, s *apiextensionsv1.JSONSchemaProps)
	keep = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for name, field := range s.Properties {
			if at := path + "." + name; fields[at] {
				keep(at, &field)
			} else {
				delete(s.Properties, name)
			}
		}
		if s.Items != nil {
			keep(path+"[]", s.Items.Schema)
		}
	}
	d := own(t, plural)
	status := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	keep("status", &status)
	return d
}

func TestCompare(t *testing.T) {
	type version = apiextensionsv1.CustomResourceDefinitionVersion
	const sets = "extendeddaemonsets"
	change := func(how func(*version)) *apiextensionsv1.CustomResourceDefinition {
		d := peers(t, sets)
		how(&d.Spec.Versions[0])
		return d
	}
	old := peers(t, sets)
	old.Spec.PreserveUnknownFields = true
	for name, tc := range map[string]struct {
		plural string
		have   *apiextensionsv1.CustomResourceDefinition
		want   string
	}{
		"its own":            {sets, own(t, sets), ""},
		"a peer's":           {sets, peers(t, sets), "lacks status.approval, status.history, status.observedGeneration, status.updating, status.waiting, status.wave, so"},
		"a peer's revisions": {"extendeddaemonsetreplicasets", peers(t, "extendeddaemonsetreplicasets"), ""},
		"a peer's settings":  {"extendeddaemonsetsettings", peers(t, "extendeddaemonsetsettings"), ""},
		"a peer's Plans": {
			"plans", peers(t, "plans"),
			"lacks status.approval, status.conditions[].observedGeneration, status.counts, status.failed, status.history, status.lastComplete, status.observedGeneration, status.rolledBack, status.turnSeconds, " +
				"status.updating, status.waiting, status.wave, so",
		},
		"another version":    {sets, change(func(v *version) { v.Name = "v1" }), "lacks version v1alpha1, so"},
		"not served":         {sets, change(func(v *version) { v.Served = false }), "lacks version v1alpha1, so"},
		"one from before v1": {sets, old, ""},
		"one that keeps all": {sets, change(func(v *version) {
			v.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: ptr.To(true)}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := compare(own(t, tc.plural), tc.have)
			if (err == nil) != (tc.want == "") {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if err != nil && (!strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "CustomResourceDefinition "+tc.have.Name+" lacks ")) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
