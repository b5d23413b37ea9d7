// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"context"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/config/crd"
)

// The operator ends, and so starts again, when a definition comes that was not there at its start. Any other change does not end it.
func TestEndsWhenADefinitionComes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	known := own(t, "plans")
	late := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	c := NewController(map[string]*apiextensionsv1.CustomResourceDefinition{known.Name: own(t, "plans"), "late": nil}, func() {})
	c.live = fake.NewClientBuilder().WithScheme(scheme).WithObjects(known, late).Build()
	passes := func(name string) {
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	passes(known.Name)
	if err := c.endWhenOneCame(ended); err != nil {
		t.Error(err)
	}
	passes("late")
	passes("late")
	if err := c.endWhenOneCame(t.Context()); err == nil || !strings.Contains(err.Error(), "late is there") {
		t.Error(err)
	}
}

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
