// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/config/crd"
)

// shared holds what the peers install; a checkout alone does not have it. Relative to the root it is ../shared/peers.
const shared = "../../../shared/peers/"

// peers are the definitions that ours take the place of.
var peers = []struct {
	file string
	// fields is how many there are at least to compare.
	fields int
	// columns are what ours show, from what theirs do.
	columns func(theirs []apiextensionsv1.CustomResourceColumnDefinition) []apiextensionsv1.CustomResourceColumnDefinition
	// excused are patterns of the places where ours are narrower. Each refuses only what could never have worked, and each is found.
	excused []string
}{
	{
		file: "system-upgrade-controller/crds/plans.yaml", fields: 200,
		columns: func(theirs []apiextensionsv1.CustomResourceColumnDefinition) []apiextensionsv1.CustomResourceColumnDefinition {
			return append(theirs, apiextensionsv1.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"})
		},
	},
	{
		file: "extendeddaemonset/crds/datadoghq.com_extendeddaemonsets.yaml", fields: 1000,
		columns: func(theirs []apiextensionsv1.CustomResourceColumnDefinition) []apiextensionsv1.CustomResourceColumnDefinition {
			for i, c := range theirs {
				if c.JSONPath == ".status.ignoredunresponsivenodes" { // There is no such field: the column was always blank.
					theirs[i].JSONPath = ".status.ignoredUnresponsiveNodes"
				}
			}
			return theirs
		},
		excused: append([]string{
			// The rules of these fields need a bound, and no duration, count, percentage or key of a label is as long.
			`spec.strategy.reconcileFrequency: the greatest length is narrower: 64`,
			`spec.strategy.canary.(duration|noRestartsDuration|replicas): the greatest length is narrower: 64`,
			`spec.strategy.canary.autoFail.(canaryTimeout|maxRestartsDuration): the greatest length is narrower: 64`,
			`spec.strategy.canary.autoPause.maxSlowStartDuration: the greatest length is narrower: 64`,
			`spec.strategy.canary.nodeAntiAffinityKeys: the greatest number of items is narrower: 64`,
			`spec.strategy.canary.nodeAntiAffinityKeys\[]: the greatest length is narrower: 317`,
			`spec.strategy.rollingUpdate.(maxPodSchedulerFailure|maxUnavailable|slowStartAdditiveIncrease): the greatest length is narrower: 64`,
			`spec.strategy.rollingUpdate.slowStartIntervalDuration: the greatest length is narrower: 64`,
		}, undecodable...),
	},
	{
		file: "extendeddaemonset/crds/datadoghq.com_extendeddaemonsetreplicasets.yaml", fields: 1000,
		excused: undecodable,
	},
	{
		file: "extendeddaemonset/crds/datadoghq.com_extendeddaemonsetsettings.yaml", fields: 25,
		excused: []string{`spec.containers\[].resources.(limits|requests){}: the pattern is .*`},
	},
}

// undecodable is what Go can't read back from a template that is stored: ExtendedDaemonSet stops at the first such object.
var undecodable = []string{
	`spec.template.metadata.(creation|deletion)Timestamp: the pattern is .*`,
	`spec.template.metadata.deletionTimestamp: the format is date-time, theirs is `,
	`spec.template.spec.*.port: the range is narrower: -2147483648 to 2147483647`,
	`spec.template.spec.*.(limits{}|requests{}|overhead{}|divisor|sizeLimit): the pattern is .*`,
}

func parsePeer(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile(shared + file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("there is no %s", shared+file)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Whatever the peers' kinds take and show, ours take and show too.
func TestSuperset(t *testing.T) {
	for _, peer := range peers {
		t.Run(path.Base(peer.file), func(t *testing.T) {
			theirs := parsePeer(t, peer.file)
			ours := definition(t, theirs.Name)
			if theirs.Spec.Group != ours.Spec.Group || theirs.Spec.Scope != ours.Spec.Scope {
				t.Errorf("group and scope are %s, %s; want %s, %s", ours.Spec.Group, ours.Spec.Scope, theirs.Spec.Group, theirs.Spec.Scope)
			}
			names := ours.Spec.Names
			for _, short := range theirs.Spec.Names.ShortNames {
				if !slices.Contains(names.ShortNames, short) {
					t.Errorf("the short name %s is missing", short)
				}
			}
			names.ShortNames, names.Categories = theirs.Spec.Names.ShortNames, nil // More of these harm nobody.
			if diff := cmp.Diff(theirs.Spec.Names, names); diff != "" {
				t.Errorf("names (-theirs +ours):\n%s", diff)
			}
			if ours.Spec.Conversion != nil && ours.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
				t.Errorf("conversion is %s", ours.Spec.Conversion.Strategy)
			}
			used := map[string]bool{}
			for _, v := range theirs.Spec.Versions {
				o := version(t, ours, v.Name)
				if v.Served != o.Served || v.Storage != o.Storage {
					t.Errorf("%s is served and stored: %v, %v; want %v, %v", v.Name, o.Served, o.Storage, v.Served, v.Storage)
				}
				if diff := cmp.Diff(v.Subresources, o.Subresources); diff != "" {
					t.Errorf("%s, subresources (-theirs +ours):\n%s", v.Name, diff)
				}
				columns := slices.Clone(v.AdditionalPrinterColumns)
				if peer.columns != nil {
					columns = peer.columns(columns)
				}
				if diff := cmp.Diff(columns, o.AdditionalPrinterColumns); diff != "" {
					t.Errorf("%s, columns (-wanted +ours):\n%s", v.Name, diff)
				}
				fields := 0
				for _, problem := range narrower(v.Name, v.Schema.OpenAPIV3Schema, o.Schema.OpenAPIV3Schema, &fields) {
					i := slices.IndexFunc(peer.excused, func(pattern string) bool {
						return regexp.MustCompile(`^` + v.Name + `\.` + pattern + `$`).MatchString(problem)
					})
					if i < 0 {
						t.Error(problem)
						continue
					}
					used[peer.excused[i]] = true
				}
				if fields < peer.fields {
					t.Errorf("compared %d fields only", fields)
				}
			}
			for _, pattern := range peer.excused {
				if !used[pattern] {
					t.Errorf("excused, and not there: %s", pattern)
				}
			}
		})
	}
}

// A default that ExtendedDaemonSet's definition does not have would change templates, and with them the revision of every fleet.
func TestTemplatesHaveNoOtherDefaults(t *testing.T) {
	for _, peer := range peers[1:3] {
		t.Run(path.Base(peer.file), func(t *testing.T) {
			theirs := parsePeer(t, peer.file)
			defaults := func(d *apiextensionsv1.CustomResourceDefinition) map[string]string {
				found := map[string]string{}
				spec := version(t, d, "v1alpha1").Schema.OpenAPIV3Schema.Properties["spec"]
				collectDefaults("spec", &spec, found)
				return found
			}
			want := defaults(theirs)
			if len(want) < 30 {
				t.Errorf("theirs has %d defaults only", len(want))
			}
			if diff := cmp.Diff(want, defaults(definition(t, theirs.Name))); diff != "" {
				t.Errorf("-theirs +ours:\n%s", diff)
			}
		})
	}
}

func collectDefaults(at string, s *apiextensionsv1.JSONSchemaProps, found map[string]string) {
	if s.Default != nil {
		found[at] = string(s.Default.Raw)
	}
	for name, field := range s.Properties {
		collectDefaults(at+"."+name, &field, found)
	}
	if s.Items != nil && s.Items.Schema != nil {
		collectDefaults(at+"[]", s.Items.Schema, found)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		collectDefaults(at+"{}", s.AdditionalProperties.Schema, found)
	}
}

// An object that has every field of a peer's definition loses none when it is stored by ours.
func TestNothingIsPruned(t *testing.T) {
	for _, peer := range peers {
		t.Run(path.Base(peer.file), func(t *testing.T) {
			theirs := parsePeer(t, peer.file)
			ours := definition(t, theirs.Name)
			for _, v := range theirs.Spec.Versions {
				full, ok := sample(v.Schema.OpenAPIV3Schema).(map[string]any)
				if !ok || full["spec"] == nil || full["status"] == nil {
					t.Fatalf("no sample: %v", full)
				}
				pruned := runtime.DeepCopyJSON(full)
				pruning.Prune(pruned, structural(t, version(t, ours, v.Name)), true)
				if diff := cmp.Diff(full, pruned); diff != "" {
					t.Errorf("-full +pruned:\n%s", diff)
				}
			}
		})
	}
}

// sample is a value with every field of a schema.
func sample(s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case s.XIntOrString:
		return int64(1)
	case s.Type == "object":
		fields := map[string]any{}
		for name, field := range s.Properties {
			fields[name] = sample(&field)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			fields["key"] = sample(s.AdditionalProperties.Schema)
		}
		return fields
	case s.Type == "array":
		return []any{sample(s.Items.Schema)}
	case s.Type == "integer", s.Type == "number":
		return int64(1)
	case s.Type == "boolean":
		return true
	default:
		return "text"
	}
}

func structural(t *testing.T, v *apiextensionsv1.CustomResourceDefinitionVersion) *schema.Structural {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// `kubectl apply` keeps a copy of what it applies in an annotation; all annotations together may have annotationsLimit bytes. Half
// of that leaves room for what Kubernetes adds to pods.
func TestDefinitionsCanBeApplied(t *testing.T) {
	const annotationsLimit = 256 * 1024
	for _, name := range []string{"extendeddaemonsets", "extendeddaemonsetreplicasets", "extendeddaemonsetsettings"} {
		raw, err := json.Marshal(definition(t, name+".datadoghq.com"))
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > annotationsLimit/2 {
			t.Errorf("%s has %d bytes", name, len(raw))
		}
	}
}

func definition(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return all[i]
}

func version(t *testing.T, d *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("%s has no version %s", d.Name, name)
	}
	return &d.Spec.Versions[i]
}

// narrower says where one schema is narrower than another, or takes its values for something else. Rules in CEL are not
// looked at: each of ours refuses what could never have worked.
func narrower(at string, theirs, ours *apiextensionsv1.JSONSchemaProps, fields *int) []string {
	*fields++
	var problems []string
	differ := func(what string, theirs, ours any) {
		problems = append(problems, fmt.Sprintf("%s: %s is %v, theirs is %v", at, what, ours, theirs))
	}
	text := func(j *apiextensionsv1.JSON) string {
		if j == nil {
			return ""
		}
		return string(j.Raw)
	}
	list := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	if theirs.Type != ours.Type {
		differ("the type", theirs.Type, ours.Type)
	}
	if theirs.Format != ours.Format {
		differ("the format", theirs.Format, ours.Format)
	}
	if text(theirs.Default) != text(ours.Default) {
		differ("the default", text(theirs.Default), text(ours.Default))
	}
	if theirs.Nullable && !ours.Nullable {
		differ("null", "allowed", "refused")
	}
	if theirs.XIntOrString != ours.XIntOrString || len(theirs.AnyOf) != len(ours.AnyOf) {
		differ("int or string", theirs.XIntOrString, ours.XIntOrString)
	}
	if isTrue(theirs.XPreserveUnknownFields) && !isTrue(ours.XPreserveUnknownFields) {
		differ("unknown fields", "kept", "pruned")
	}
	if theirs.XEmbeddedResource != ours.XEmbeddedResource {
		differ("an embedded resource", theirs.XEmbeddedResource, ours.XEmbeddedResource)
	}
	// The kind of a list matters to server-side apply. Theirs without one is atomic, which may be said.
	if a, b := list(theirs.XListType), list(ours.XListType); a != b && (a != "" || b != "atomic") {
		differ("the kind of list", a, b)
	}
	if !slices.Equal(theirs.XListMapKeys, ours.XListMapKeys) {
		differ("the keys of the list", theirs.XListMapKeys, ours.XListMapKeys)
	}
	if a, b := list(theirs.XMapType), list(ours.XMapType); a != b {
		differ("the kind of map", a, b)
	}
	for _, field := range ours.Required {
		if !slices.Contains(theirs.Required, field) {
			differ(field, "optional", "required")
		}
	}
	if len(ours.Enum) > 0 {
		if len(theirs.Enum) == 0 {
			differ("the value", "free", "enumerated")
		}
		for i := range theirs.Enum {
			if !slices.ContainsFunc(ours.Enum, func(o apiextensionsv1.JSON) bool { return string(o.Raw) == string(theirs.Enum[i].Raw) }) {
				differ("the value "+string(theirs.Enum[i].Raw), "taken", "refused")
			}
		}
	}
	for _, bound := range []struct {
		what         string
		theirs, ours *int64
		narrower     func(a, b int64) bool
	}{
		{"the least length", theirs.MinLength, ours.MinLength, greater},
		{"the least number of items", theirs.MinItems, ours.MinItems, greater},
		{"the least number of keys", theirs.MinProperties, ours.MinProperties, greater},
		{"the greatest length", theirs.MaxLength, ours.MaxLength, less},
		{"the greatest number of items", theirs.MaxItems, ours.MaxItems, less},
		{"the greatest number of keys", theirs.MaxProperties, ours.MaxProperties, less},
	} {
		if bound.ours != nil && (bound.theirs == nil || bound.narrower(*bound.ours, *bound.theirs)) {
			problems = append(problems, fmt.Sprintf("%s: %s is narrower: %d", at, bound.what, *bound.ours))
		}
	}
	if ours.Pattern != "" && ours.Pattern != theirs.Pattern {
		differ("the pattern", theirs.Pattern, ours.Pattern)
	}
	if ours.Minimum != nil && (theirs.Minimum == nil || *ours.Minimum > *theirs.Minimum) || ours.Maximum != nil && (theirs.Maximum == nil || *ours.Maximum < *theirs.Maximum) {
		problems = append(problems, fmt.Sprintf("%s: the range is narrower: %s to %s", at, number(ours.Minimum), number(ours.Maximum)))
	}

	for _, name := range slices.Sorted(maps.Keys(theirs.Properties)) {
		field := theirs.Properties[name]
		mine, ok := ours.Properties[name]
		if !ok {
			problems = append(problems, at+"."+name+" is missing")
			continue
		}
		problems = append(problems, narrower(at+"."+name, &field, &mine, fields)...)
	}
	switch {
	case theirs.Items == nil && ours.Items == nil:
	case theirs.Items == nil || ours.Items == nil || theirs.Items.Schema == nil || ours.Items.Schema == nil:
		problems = append(problems, at+" is a list in one only")
	default:
		problems = append(problems, narrower(at+"[]", theirs.Items.Schema, ours.Items.Schema, fields)...)
	}
	switch {
	case theirs.AdditionalProperties == nil && ours.AdditionalProperties == nil:
	case theirs.AdditionalProperties == nil || ours.AdditionalProperties == nil || theirs.AdditionalProperties.Schema == nil || ours.AdditionalProperties.Schema == nil:
		problems = append(problems, at+" is a map in one only")
	default:
		problems = append(problems, narrower(at+"{}", theirs.AdditionalProperties.Schema, ours.AdditionalProperties.Schema, fields)...)
	}
	return problems
}

func isTrue(b *bool) bool { return b != nil && *b }

func number(f *float64) string {
	if f == nil {
		return "any"
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

func greater(a, b int64) bool { return a > b }

func less(a, b int64) bool { return a < b }

// What the comparison finds: each of these schemas is narrower than what it is compared with, or of another kind.
func TestNarrower(t *testing.T) {
	parse := func(text string) *apiextensionsv1.JSONSchemaProps {
		s := &apiextensionsv1.JSONSchemaProps{}
		if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return s
	}
	for _, tc := range []struct {
		theirs, ours string
		want         int
	}{
		{`{type: string}`, `{type: string}`, 0},
		{`{type: string}`, `{type: string, description: x}`, 0},
		{`{type: string, minLength: 3}`, `{type: string}`, 0},
		{`{type: array, minItems: 1}`, `{type: array, minItems: 1, x-kubernetes-list-type: atomic}`, 0},
		{`{type: object, required: [a], properties: {a: {type: string}}}`, `{type: object, properties: {a: {type: string}, b: {type: string}}}`, 0},
		{`{enum: [a]}`, `{enum: [a, b]}`, 0},
		{`{maxLength: 3}`, `{maxLength: 4}`, 0},

		{`{type: string}`, `{type: integer}`, 1},
		{`{format: int64}`, `{format: int32}`, 1},
		{`{default: ""}`, `{}`, 1},
		{`{}`, `{default: 1}`, 1},
		{`{nullable: true}`, `{}`, 1},
		{`{x-kubernetes-int-or-string: true}`, `{}`, 1},
		{`{x-kubernetes-preserve-unknown-fields: true}`, `{}`, 1},
		{`{x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type]}`, `{x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name]}`, 1},
		{`{}`, `{x-kubernetes-list-type: set}`, 1},
		{`{x-kubernetes-list-type: atomic}`, `{}`, 1},
		{`{x-kubernetes-map-type: atomic}`, `{}`, 1},
		{`{}`, `{required: [a]}`, 1},
		{`{enum: [a, b]}`, `{enum: [a]}`, 1},
		{`{}`, `{enum: [a]}`, 1},
		{`{}`, `{minLength: 1}`, 1},
		{`{minItems: 1}`, `{minItems: 2}`, 1},
		{`{}`, `{maxItems: 2}`, 1},
		{`{maxLength: 3}`, `{maxLength: 2}`, 1},
		{`{}`, `{pattern: a}`, 1},
		{`{}`, `{minimum: 0}`, 1},
		{`{maximum: 3}`, `{maximum: 2}`, 1},
		{`{properties: {a: {type: string}}}`, `{properties: {b: {type: string}}}`, 1},
		{`{properties: {a: {properties: {b: {type: string}}}}}`, `{properties: {a: {properties: {b: {type: integer}}}}}`, 1},
		{`{items: {type: string}}`, `{items: {type: integer}}`, 1},
		{`{items: {type: string}}`, `{}`, 1},
		{`{additionalProperties: {type: string}}`, `{additionalProperties: {type: integer}}`, 1},
		{`{additionalProperties: {type: string}}`, `{}`, 1},
	} {
		fields := 0
		if got := narrower("x", parse(tc.theirs), parse(tc.ours), &fields); len(got) != tc.want {
			t.Errorf("%s and %s: got %v", tc.theirs, tc.ours, got)
		}
	}
}
