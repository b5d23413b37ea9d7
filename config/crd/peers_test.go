// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/config/crd"
)

// peers are the kinds that Moult takes over. testdata has two files for each: NAME.txt lists the fields of the peer's
// definition, and NAME.yaml is an object that uses all of them. podtemplate.txt lists the fields of spec.template.
var peers = []struct {
	name, group, kind, version, short string
	// columns are those that kubectl shows, with their paths.
	columns string
	// template says that the kind has a pod template.
	template bool
	object   any
}{
	{
		name: "plans", group: "upgrade.cattle.io", kind: "Plan", version: "v1", object: &upgradev1.Plan{},
		columns: `Image .spec.upgrade.image, Channel .spec.channel, Version .spec.version, ` +
			`Complete .status.conditions[?(@.type=='Complete')].status, Message .status.conditions[?(@.message!='')].message, ` +
			`Applying .status.applying, Age .metadata.creationTimestamp`,
	},
	{
		name: "extendeddaemonsets", group: "datadoghq.com", kind: "ExtendedDaemonSet", version: "v1alpha1", short: "eds", template: true,
		object: &edsv1.ExtendedDaemonSet{},
		columns: `desired .status.desired, current .status.current, ready .status.ready, up-to-date .status.upToDate, available .status.available, ` +
			`ignored unresponsive nodes .status.ignoredUnresponsiveNodes, status .status.state, reason .status.reason, ` +
			`active rs .status.activeReplicaSet, canary rs .status.canary.replicaSet, age .metadata.creationTimestamp`,
	},
	{
		name: "extendeddaemonsetreplicasets", group: "datadoghq.com", kind: "ExtendedDaemonSetReplicaSet", version: "v1alpha1", short: "ers", template: true,
		object: &edsv1.ExtendedDaemonSetReplicaSet{},
		columns: `status .status.status, desired .status.desired, current .status.current, ready .status.ready, available .status.available, ` +
			`ignored unresponsive nodes .status.ignoredUnresponsiveNodes, node selector .spec.selector, age .metadata.creationTimestamp`,
	},
	{
		name: "extendeddaemonsetsettings", group: "datadoghq.com", kind: "ExtendedDaemonsetSetting", version: "v1alpha1",
		object:  &edsv1.ExtendedDaemonsetSetting{},
		columns: `status .status.status, node selector .spec.nodeSelector, error .status.error, age .metadata.creationTimestamp`,
	},
}

// A field of a peer's definition has the same type, default and merge keys here. It is required here only if it is there.
func TestPeerFields(t *testing.T) {
	for _, peer := range peers {
		t.Run(peer.name, func(t *testing.T) {
			ours := fieldsOf(definition(t, peer.name+"."+peer.group).Spec.Versions[0].Schema.OpenAPIV3Schema)
			theirs := readFields(t, peer.name, "")
			if peer.template {
				maps.Copy(theirs, readFields(t, "podtemplate", "spec.template."))
			}
			for _, path := range slices.Sorted(maps.Keys(theirs)) {
				want, optional := strings.CutSuffix(theirs[path], " required")
				got, is := ours[path]
				if optional { // The peer requires the field.
					got = strings.TrimSuffix(got, " required")
				}
				if !is || got != want {
					t.Errorf("%s is %q, want %q", path, got, want)
				}
			}
			// Another default in a template would change the revision of every fleet.
			for path, facts := range ours {
				if peer.template && strings.HasPrefix(path, "spec.template") && strings.Contains(facts, "default=") && theirs[path] == "" {
					t.Errorf("%s has a default of our own: %s", path, facts)
				}
			}
		})
	}
}

// readFields reads a list of fields: the path and the facts on each line.
func readFields(t *testing.T, name, prefix string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		path, facts, _ := strings.Cut(strings.TrimSpace(line), " ")
		fields[prefix+path] = facts
	}
	return fields
}

// fieldsOf lists the fields of a schema: path and facts. [] is an item of a list, {} is a value of a map.
func fieldsOf(s *apiextensionsv1.JSONSchemaProps) map[string]string {
	fields := map[string]string{}
	var walk func(path string, required bool, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, required bool, s *apiextensionsv1.JSONSchemaProps) {
		facts := s.Type
		switch {
		case s.XIntOrString:
			facts = "int-or-string"
		case s.Type == "integer" && s.Format != "":
			facts = s.Format
		}
		if s.Default != nil {
			facts += " default=" + string(s.Default.Raw)
		}
		if s.XListType != nil && *s.XListType != "atomic" {
			facts += " " + *s.XListType + strings.Join(s.XListMapKeys, ",")
		}
		if s.XMapType != nil {
			facts += " " + *s.XMapType
		}
		if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
			facts += " open"
		}
		if required {
			facts += " required"
		}
		fields[path] = facts
		for name, field := range s.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), slices.Contains(s.Required, name), &field)
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(path+"[]", false, s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(path+"{}", false, s.AdditionalProperties.Schema)
		}
	}
	walk("", false, s)
	return fields
}

// An object with every field loses none when it passes through its Go type. TestAPI in test/admission stores it.
func TestPeerObjects(t *testing.T) {
	for _, peer := range peers {
		t.Run(peer.name, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/" + peer.name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			if err := yaml.UnmarshalStrict(raw, &want); err != nil {
				t.Fatal(err)
			}
			used := map[string]bool{}
			collect("", want, used)
			for path := range readFields(t, peer.name, "") {
				if !used[path] {
					t.Errorf("%s is not in testdata/%s.yaml", path, peer.name)
				}
			}

			if err := yaml.UnmarshalStrict(raw, peer.object); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(peer.object)
			if err != nil {
				t.Fatal(err)
			}
			read := map[string]any{}
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, read); diff != "" {
				t.Errorf("-written +read:\n%s", diff)
			}
		})
	}
}

// collect lists the paths of an object's fields.
func collect(path string, value any, into map[string]bool) {
	into[path] = true
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			collect(strings.TrimPrefix(path+"."+key, "."), field, into)
			collect(path+"{}", field, into)
		}
	case []any:
		for _, item := range v {
			collect(path+"[]", item, into)
		}
	}
}

// kubectl knows the kinds by the peers' names and shows the peers' columns.
func TestPeerNames(t *testing.T) {
	for _, peer := range peers {
		d := definition(t, peer.name+"."+peer.group)
		v := d.Spec.Versions[0]
		want := []any{peer.group, peer.version, peer.kind, peer.kind + "List", strings.ToLower(peer.kind), apiextensionsv1.NamespaceScoped, true, 1, true}
		names := d.Spec.Names
		got := []any{d.Spec.Group, v.Name, names.Kind, names.ListKind, names.Singular, d.Spec.Scope, v.Served, len(d.Spec.Versions), v.Subresources.Status != nil}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", peer.name, diff)
		}
		if peer.short != "" && !slices.Contains(names.ShortNames, peer.short) {
			t.Errorf("%s: the short name %s is missing", peer.name, peer.short)
		}
		var columns []string
		for _, c := range v.AdditionalPrinterColumns {
			columns = append(columns, c.Name+" "+c.JSONPath)
		}
		if diff := cmp.Diff(strings.Split(peer.columns, ", "), columns); diff != "" {
			t.Errorf("%s: columns (-want +got):\n%s", peer.name, diff)
		}
	}
}

// `kubectl apply` keeps a copy of the definition in an annotation. All annotations together have at most 256 KiB. Half of
// that leaves room for fields that Kubernetes adds to pods.
func TestDefinitionsCanBeApplied(t *testing.T) {
	for _, peer := range peers {
		raw, err := json.Marshal(definition(t, peer.name+"."+peer.group))
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 128*1024 {
			t.Errorf("%s has %d bytes", peer.name, len(raw))
		}
	}
}

var definitions = sync.OnceValues(crd.Definitions)

func definition(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// `kubectl get moult` lists what people write, but not the settings and revisions of ExtendedDaemonSets.
func TestCategory(t *testing.T) {
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, d := range all {
		if slices.Contains(d.Spec.Names.Categories, "moult") {
			listed = append(listed, d.Spec.Names.Kind)
		}
	}
	want := []string{"ExtendedDaemonSet", "NodeDisruptionBudget", "NodeRollout", "Plan"}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
