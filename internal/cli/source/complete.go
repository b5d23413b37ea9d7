// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/target"
)

// Complete offers the names of the objects of these kinds, for the first argument of a command. Those of the first kind are offered as they
// are, those of others as kind/NAME.
func Complete(cluster config.Config, allNamespaces *bool, kinds ...*target.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		namespace, errNamespace := cluster.Namespace()
		rest, errREST := cluster.REST()
		if len(args) > 0 || errNamespace != nil || errREST != nil {
			return nil, none
		}
		client, err := metadata.NewForConfig(rest)
		if err != nil {
			return nil, none
		}
		for i, k := range kinds {
			within, before := "", ""
			if k.Namespaced && (allNamespaces == nil || !*allNamespaces) {
				within = namespace
			}
			if i > 0 {
				before = k.Short + "/"
			}
			list, err := client.Resource(k.Resource).Namespace(within).List(cmd.Context(), metav1.ListOptions{})
			if err != nil {
				continue
			}
			for j := range list.Items {
				if name := before + list.Items[j].Name; strings.HasPrefix(name, prefix) {
					names = append(names, name)
				}
			}
		}
		return names, none
	}
}
