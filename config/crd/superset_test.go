// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/config/crd"
)

// peer is what system-upgrade-controller installs; a checkout alone does not have it. Relative to the root it is
// ../shared/peers/system-upgrade-controller/crds/plans.yaml.
const peer = "../../../shared/peers/system-upgrade-controller/crds/plans.yaml"

// Whatever system-upgrade-controller's Plan takes and shows, ours takes and shows too.
func TestPlanIsSuperset(t *testing.T) {
	raw, err := os.ReadFile(peer)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("there is no %s", peer)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, theirs); err != nil {
		t.Fatal(err)
	}
	ours := definition(t, theirs.Name)

	if theirs.Spec.Group != ours.Spec.Group || theirs.Spec.Scope != ours.Spec.Scope {
		t.Errorf("group and scope are %s, %s; want %s, %s", ours.Spec.Group, ours.Spec.Scope, theirs.Spec.Group, theirs.Spec.Scope)
	}
	names := ours.Spec.Names
	names.ShortNames, names.Categories = nil, nil // More of these harm nobody.
	if diff := cmp.Diff(theirs.Spec.Names, names); diff != "" {
		t.Errorf("names (-theirs +ours):\n%s", diff)
	}
	if ours.Spec.Conversion != nil && ours.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("conversion is %s", ours.Spec.Conversion.Strategy)
	}
	for _, v := range theirs.Spec.Versions {
		i := slices.IndexFunc(ours.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == v.Name })
		if i < 0 {
			t.Errorf("there is no version %s", v.Name)
			continue
		}
		o := ours.Spec.Versions[i]
		if v.Served != o.Served || v.Storage != o.Storage {
			t.Errorf("%s is served and stored: %v, %v; want %v, %v", v.Name, o.Served, o.Storage, v.Served, v.Storage)
		}
		if diff := cmp.Diff(v.Subresources, o.Subresources); diff != "" {
			t.Errorf("%s, subresources (-theirs +ours):\n%s", v.Name, diff)
		}
		age := apiextensionsv1.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}
		if diff := cmp.Diff(append(slices.Clone(v.AdditionalPrinterColumns), age), o.AdditionalPrinterColumns); diff != "" {
			t.Errorf("%s, columns (-theirs and Age, +ours):\n%s", v.Name, diff)
		}
		fields := 0
		for _, problem := range narrower(v.Name, v.Schema.OpenAPIV3Schema, o.Schema.OpenAPIV3Schema, &fields) {
			t.Error(problem)
		}
		if fields < 200 {
			t.Errorf("compared %d fields only", fields)
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
		problems = append(problems, at+": the range is narrower")
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
