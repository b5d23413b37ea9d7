// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Missing lists what the definition in a cluster lacks of the wanted one: its version, or fields by their paths. part limits it to a property of
// the schema, such as status; "" is the whole.
func Missing(want, have *apiextensionsv1.CustomResourceDefinition, part string) []string {
	if have.Spec.PreserveUnknownFields {
		return nil
	}
	version := &want.Spec.Versions[0]
	for i := range have.Spec.Versions {
		if v := &have.Spec.Versions[i]; v.Name == version.Name && v.Served && v.Schema != nil {
			wanted := *version.Schema.OpenAPIV3Schema
			if part != "" {
				wanted.Properties = map[string]apiextensionsv1.JSONSchemaProps{part: wanted.Properties[part]}
			}
			return missing("", &wanted, v.Schema.OpenAPIV3Schema)
		}
	}
	return []string{"version " + version.Name}
}

// missing lists the fields of a schema that another one drops, by their paths. It does not list what is below a dropped field.
func missing(path string, want, have *apiextensionsv1.JSONSchemaProps) (lacks []string) {
	if keeps := have.XPreserveUnknownFields; keeps != nil && *keeps {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(want.Properties)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		field, has := have.Properties[name]
		if !has {
			lacks = append(lacks, at)
			continue
		}
		wanted := want.Properties[name]
		lacks = append(lacks, missing(at, &wanted, &field)...)
	}
	if want.Items != nil && want.Items.Schema != nil && have.Items != nil && have.Items.Schema != nil {
		lacks = append(lacks, missing(path+"[]", want.Items.Schema, have.Items.Schema)...)
	}
	return lacks
}
