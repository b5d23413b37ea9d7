// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/target"
)

// Complete offers the names of the objects of these kinds that are there, for the first argument of a command. Those of the
// first kind stand for themselves, those of others with their kind before them.
func Complete(config config.Config, allNamespaces *bool, kinds ...*target.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, none
		}
		namespace, err := config.Namespace()
		if err != nil {
			return nil, none
		}
		rest, err := config.REST()
		if err != nil {
			return nil, none
		}
		client, err := metadata.NewForConfig(rest)
		if err != nil {
			return nil, none
		}
		if allNamespaces != nil && *allNamespaces {
			namespace = ""
		}
		var names []cobra.Completion
		for i, k := range kinds {
			within := ""
			if k.Namespaced {
				within = namespace
			}
			before := ""
			if i > 0 {
				before = k.Short + "/"
			}
			for _, name := range list(cmd, client, k.Resource, within) {
				if strings.HasPrefix(before+name, prefix) {
					names = append(names, before+name)
				}
			}
		}
		return names, none
	}
}

func list(cmd *cobra.Command, client metadata.Interface, of schema.GroupVersionResource, namespace string) []string {
	list, err := client.Resource(of).Namespace(namespace).List(cmd.Context(), metav1.ListOptions{})
	if err != nil {
		return nil // There is nothing to offer.
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
