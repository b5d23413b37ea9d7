// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// peers are ExtendedDaemonSet's own examples; a checkout alone does not have them.
const peers = "../../../shared/peers/extendeddaemonset/examples/"

func example(t *testing.T, name string) *edsv1.ExtendedDaemonSet {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(peers, name))
	if os.IsNotExist(err) {
		t.Skipf("there is no %s", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	eds := &edsv1.ExtendedDaemonSet{}
	if err := yaml.UnmarshalStrict(raw, eds); err != nil {
		t.Fatal(err)
	}
	return eds
}

// The hashes of their examples were computed with k8s.io/api v0.31.1.
func TestPeersExamples(t *testing.T) {
	for name, want := range map[string]string{
		"foo-eds_v1.yaml":           "70bbf96717fa98dfcde682f1212148f4",
		"foo-eds_v2.yaml":           "fdee880abb311fbc06f2150882ac4244",
		"foo-eds_exclude-node.yaml": "06b0587dc879d6e83de2ba1265843907",
	} {
		t.Run(name, func(t *testing.T) {
			eds := example(t, name)
			spec := Defaulted(&eds.Spec, "")
			if err := Validate(spec); err != nil {
				t.Error(err)
			}
			for _, template := range []*corev1.PodTemplateSpec{&eds.Spec.Template, &spec.Template} {
				if got := templateHash(t, template); got != want {
					t.Errorf("the hash is %s, want %s", got, want)
				}
			}
			if got := place(t, eds.Spec.Selector, eds.Spec.Template.Spec, nodeWith(nil, taint(corev1.TaintEffectNoExecute, "a", "b"))); !got.Create {
				t.Errorf("it does not belong on any node: %+v", got)
			}
		})
	}
}

// To exclude nodes by a label is a convention: the template's affinity does it.
func TestPeersExcludeNode(t *testing.T) {
	eds := example(t, "foo-eds_exclude-node.yaml")
	const label = "extendeddaemonset.datadoghq.com/exclude"
	for value, want := range map[string]bool{"foo": false, "bar": true, "": true} {
		if got := place(t, eds.Spec.Selector, eds.Spec.Template.Spec, nodeWith(map[string]string{label: value})); got.Create != want || got.Keep != want {
			t.Errorf("%s=%s: %+v", label, value, got)
		}
	}
	if got := place(t, eds.Spec.Selector, eds.Spec.Template.Spec, nodeWith(nil)); !got.Create {
		t.Errorf("without the label: %+v", got)
	}
}
