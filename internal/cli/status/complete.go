// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completePlans offers the names of the Plans that are there.
func (c *command) completePlans(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	where, err := c.scope(nil)
	if err != nil {
		return nil, none
	}
	config, err := c.config.ToRESTConfig()
	if err != nil {
		return nil, none
	}
	src, err := connect(config)
	if err != nil {
		return nil, none
	}
	list, err := src.plans.Namespace(where.namespace).List(cmd.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, none
	}
	var names []cobra.Completion
	for i := range list.Items {
		if name := list.Items[i].GetName(); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, none
}
