// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// compare says what a definition in the cluster lacks of the status in the definition that this program was built with, or returns nil.
func compare(want, have *apiextensionsv1.CustomResourceDefinition) error {
	version := &want.Spec.Versions[0]
	lacks := []string{"version " + version.Name}
	for i := range have.Spec.Versions {
		if v := &have.Spec.Versions[i]; v.Name == version.Name && v.Served && v.Schema != nil {
			status := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"status": version.Schema.OpenAPIV3Schema.Properties["status"],
			}}
			lacks = missing("", &status, v.Schema.OpenAPIV3Schema)
		}
	}
	if len(lacks) == 0 || have.Spec.PreserveUnknownFields {
		return nil
	}
	return fmt.Errorf("CustomResourceDefinition %s lacks %s, so the API server drops what the operator stores there: "+
		"apply config/crd of this version of Moult, and let nothing replace it", want.Name, strings.Join(lacks, ", "))
}

// missing lists the fields of a schema that another one drops, by their paths. It does not list what is below a dropped field.
func missing(path string, want, have *apiextensionsv1.JSONSchemaProps) (lacks []string) {
	if ptr.Deref(have.XPreserveUnknownFields, false) {
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
