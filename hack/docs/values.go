// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Values returns the page of the chart's values: each with its default and its comment.
func Values(values []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return "", fmt.Errorf("reading values.yaml, %w", err)
	}
	var b strings.Builder
	b.WriteString("# Helm values\n\nValues of the chart `charts/moult`. [Install](../start/install.md) shows how to use it.\n\n| value | default | meaning |\n|---|---|---|\n")
	if len(doc.Content) > 0 {
		value(&b, "", doc.Content[0])
	}
	return b.String(), nil
}

func value(b *strings.Builder, path string, n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i], n.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		about := comment(key.HeadComment, key.LineComment, v.LineComment)
		if v.Kind == yaml.MappingNode && len(v.Content) > 0 {
			if about != "" {
				fmt.Fprintf(b, "| **`%s`** | | %s |\n", name, about)
			}
			value(b, name, v)
			continue
		}
		plain := *v
		plain.HeadComment, plain.LineComment, plain.FootComment = "", "", ""
		plain.Style |= yaml.FlowStyle
		text, err := yaml.Marshal(&plain)
		if err != nil {
			text = []byte(v.Value)
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, escape(strings.TrimSpace(string(text))), about)
	}
}

// comment returns comments as one text. A blank line ends what belongs to the value.
func comment(all ...string) string {
	var parts []string
	for _, c := range all {
		if i := strings.LastIndex(c, "\n\n"); i >= 0 {
			c = c[i:]
		}
		for line := range strings.Lines(c) {
			if line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "#")); line != "" {
				parts = append(parts, line)
			}
		}
	}
	return escape(strings.Join(parts, " "))
}
