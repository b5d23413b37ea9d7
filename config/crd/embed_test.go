// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/config/crd"
)

// etcdLimit is the largest request that the API server's storage takes by default.
const etcdLimit = 1.5 * 1024 * 1024

func TestDefinitions(t *testing.T) {
	all, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range all {
		file := d.Spec.Group + "_" + d.Spec.Names.Plural + ".yaml"
		got = append(got, file)
		t.Run(file, func(t *testing.T) {
			if want := d.Spec.Names.Plural + "." + d.Spec.Group; d.Name != want {
				t.Errorf("name is %q, want %q", d.Name, want)
			}
			stored := 0
			for _, v := range d.Spec.Versions {
				if v.Storage {
					stored++
				}
				if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
					t.Fatalf("version %s has no schema", v.Name)
				}
				fields := v.Schema.OpenAPIV3Schema.Properties
				found := formatted("spec", ptr.To(fields["spec"]))
				if readOneByOne := d.Spec.Names.Kind == "Plan" || d.Spec.Names.Kind == "NodeRollout"; !readOneByOne {
					found = append(found, formatted("status", ptr.To(fields["status"]))...)
				}
				for _, field := range found {
					t.Errorf("%s is a string with a format: the API server also admits lists there, and they keep the operator from reading any object", field)
				}
			}
			if stored != 1 {
				t.Errorf("%d versions are stored, want 1", stored)
			}
			if size := len(mustMarshal(t, d)); size > etcdLimit {
				t.Errorf("%d bytes do not fit into etcd", size)
			}
		})
	}
	// What `kubectl apply -k` installs is what the program carries.
	raw, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(raw, &kustomization); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kustomization.Resources, got); diff != "" {
		t.Errorf("kustomization.yaml and the embedded files differ (-kustomization +embedded):\n%s", diff)
	}
}

// formatted returns the paths of the strings that have a format.
func formatted(path string, s *apiextensionsv1.JSONSchemaProps) (found []string) {
	if s.Type == "string" && s.Format != "" {
		found = append(found, path)
	}
	for name, field := range s.Properties {
		found = append(found, formatted(path+"."+name, &field)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		found = append(found, formatted(path+"[]", s.Items.Schema)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		found = append(found, formatted(path+"{}", s.AdditionalProperties.Schema)...)
	}
	return found
}

func mustMarshal(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) []byte {
	t.Helper()
	raw, err := yaml.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
