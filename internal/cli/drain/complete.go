// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
)

// complete offers the names of nodes that are not on the command line yet.
func (c *command) complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	api, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var nodes corev1.NodeList
	if err := api.List(cmd.Context(), &nodes); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range nodes.Items {
		if name := nodes.Items[i].Name; strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
