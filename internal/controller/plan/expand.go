// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces $(NAME) by its value as Kubernetes does in a container's arguments: $$ is a literal $, and an unknown name stays as it is.
func expand(text string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := values[strings.TrimSuffix(strings.TrimPrefix(found, "$("), ")")]; ok {
			return value
		}
		return found
	})
}
