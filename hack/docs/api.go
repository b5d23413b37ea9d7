// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// known are fields whose schema is Kubernetes' own. Their fields are not listed.
var known = map[string]string{
	"conditions": "list of conditions", "envFrom": "list of Kubernetes' EnvFromSource", "envs": "list of Kubernetes' EnvVar",
	"imagePullSecrets": "list of references to Secrets", "resources": "Kubernetes' ResourceRequirements", "securityContext": "Kubernetes' SecurityContext",
	"template": "Kubernetes' PodTemplateSpec", "tolerations": "list of Kubernetes' Toleration",
}

// API returns the page of a kind.
func API(definition []byte) (kind, page string, err error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(definition, &crd); err != nil {
		return "", "", fmt.Errorf("reading a CustomResourceDefinition, %w", err)
	}
	names, v := crd.Spec.Names, crd.Spec.Versions[0]
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", names.Kind, prose(v.Schema.OpenAPIV3Schema.Description))
	fmt.Fprintf(&b, "| | |\n|---|---|\n| apiVersion | `%s/%s` |\n| kind | `%s` |\n| scope | %s |\n", crd.Spec.Group, v.Name, names.Kind, crd.Spec.Scope)
	if len(names.ShortNames) > 0 {
		fmt.Fprintf(&b, "| short names | %s |\n", codes(names.ShortNames))
	}
	if len(names.Categories) > 0 {
		fmt.Fprintf(&b, "| categories | %s |\n", codes(names.Categories))
	}
	if columns := v.AdditionalPrinterColumns; len(columns) > 0 {
		var shown []string
		for _, c := range columns {
			name := "`" + c.Name + "`"
			if c.Priority > 0 {
				name += " (with `-o wide`)"
			}
			shown = append(shown, name)
		}
		fmt.Fprintf(&b, "| columns | %s |\n", strings.Join(shown, ", "))
	}
	for _, part := range []string{"spec", "status"} {
		if s, ok := v.Schema.OpenAPIV3Schema.Properties[part]; ok {
			object(&b, part, &s)
		}
	}
	return names.Kind, b.String(), nil
}

// object writes the table of an object's fields, and then those of the objects in it.
func object(b *strings.Builder, path string, s *apiextensionsv1.JSONSchemaProps) {
	fmt.Fprintf(b, "\n## %s\n\n", path)
	if text := prose(s.Description); text != "" {
		fmt.Fprintf(b, "%s\n\n", text)
	}
	for _, rule := range s.XValidations {
		fmt.Fprintf(b, "- %s.\n", escape(strings.TrimSuffix(rule.Message, ".")))
	}
	if len(s.XValidations) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	type inner struct {
		path   string
		schema *apiextensionsv1.JSONSchemaProps
	}
	var below []inner
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		kind, of, suffix := typeOf(name, &field)
		if of != nil {
			p := path + "." + name + suffix
			kind = fmt.Sprintf("[%s](#%s)", kind, anchor(p))
			below = append(below, inner{p, of})
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, kind, meaning(&field, slices.Contains(s.Required, name), of == nil))
	}
	for _, i := range below {
		object(b, i.path, i.schema)
	}
}

// typeOf returns the type of a field in words, and of an object, or a list of objects, the schema that has a table of its own.
func typeOf(name string, s *apiextensionsv1.JSONSchemaProps) (kind string, of *apiextensionsv1.JSONSchemaProps, suffix string) {
	if text, ok := known[name]; ok && (name != "conditions" || transits(s)) {
		return text, nil, ""
	}
	_, labels := s.Properties["matchLabels"]
	switch {
	case s.XIntOrString:
		return "integer or string", nil, ""
	case labels:
		return "label selector", nil, ""
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		kind, of, suffix = typeOf("", s.Items.Schema)
		return "list of " + kind, of, "[]" + suffix
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		kind, of, suffix = typeOf("", s.AdditionalProperties.Schema)
		return "map of " + kind, of, "{}" + suffix
	case s.Type == "object" && len(s.Properties) > 0:
		return "object", s, ""
	case s.Format != "" && s.Type == "string":
		return s.Format, nil, ""
	}
	return s.Type, nil, ""
}

// transits reports whether a list is of conditions of an object.
func transits(s *apiextensionsv1.JSONSchemaProps) bool {
	if s.Items == nil || s.Items.Schema == nil {
		return false
	}
	_, found := s.Items.Schema.Properties["lastTransitionTime"]
	return found
}

// meaning returns the description of a field with its bounds.
func meaning(s *apiextensionsv1.JSONSchemaProps, required, rules bool) string {
	parts := []string{}
	if required {
		parts = append(parts, "Required.")
	}
	if text := escape(prose(s.Description)); text != "" {
		parts = append(parts, text)
	}
	if s.Default != nil && !strings.Contains(s.Description, "Default") {
		parts = append(parts, fmt.Sprintf("Default: `%s`.", strings.Trim(string(s.Default.Raw), `"`)))
	}
	values := s
	if s.Items != nil && s.Items.Schema != nil {
		values = s.Items.Schema
	}
	if len(values.Enum) > 0 {
		var of []string
		for _, e := range values.Enum {
			of = append(of, strings.Trim(string(e.Raw), `"`))
		}
		parts = append(parts, "One of "+codes(of)+".")
	}
	for _, bound := range []struct {
		text  string
		value *int64
	}{{"At most %d characters.", s.MaxLength}, {"At most %d items.", s.MaxItems}, {"At least %d items.", s.MinItems}} {
		if bound.value != nil && (bound.text[3] == 'm' || *bound.value > 1) {
			parts = append(parts, fmt.Sprintf(bound.text, *bound.value))
		}
	}
	if s.Minimum != nil {
		parts = append(parts, fmt.Sprintf("At least %g.", *s.Minimum))
	}
	if s.Maximum != nil {
		parts = append(parts, fmt.Sprintf("At most %g.", *s.Maximum))
	}
	if rules {
		for _, rule := range s.XValidations {
			if rule.Message != "" {
				parts = append(parts, "Rule: "+escape(strings.TrimSuffix(rule.Message, "."))+".")
			}
		}
	}
	return strings.Join(parts, " ")
}
