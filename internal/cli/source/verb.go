// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

// allNamespaces is the flag of commands that show objects of all namespaces.
const allNamespaces = "all-namespaces"

// AddAllNamespaces adds -A, which Verb respects.
func AddAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolP(allNamespaces, "A", false, "Show those of all namespaces.")
}

// Verb sets up a command whose argument names an object of these kinds. Without kinds it takes no argument; without an argument, the target
// is empty.
func Verb(cluster Config, cmd *cobra.Command, kinds []*Kind, run func(context.Context, *Source, Target) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cobra.ExactArgs(min(len(kinds), 1))
	}
	cmd.ValidArgsFunction = Complete(cluster, kinds...)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		var named Target
		if len(args) > 0 {
			if named, err = Parse(args[0], kinds...); err != nil {
				return err
			}
		}
		src, err := Connect(cluster)
		if err != nil {
			return err
		}
		if all, _ := cmd.Flags().GetBool(allNamespaces); all {
			src.Namespace = ""
		}
		return run(cmd.Context(), src, named)
	}
	return cmd
}

// VerbOn is Verb for a command that needs the object itself.
func VerbOn(cluster Config, cmd *cobra.Command, kinds []*Kind, run func(context.Context, *Source, Object) error) *cobra.Command {
	return Verb(cluster, cmd, kinds, func(ctx context.Context, src *Source, named Target) error {
		o, err := src.Find(ctx, named, kinds...)
		if err != nil {
			return err
		}
		return run(ctx, src, o)
	})
}

// Complete offers the names of objects of these kinds for a command's first argument: NAME for the first kind,
// kind/NAME for others.
func Complete(cluster Config, kinds ...*Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		config, namespace, err := cluster.Load()
		if len(args) > 0 || err != nil {
			return nil, none
		}
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, none
		}
		if all, _ := cmd.Flags().GetBool(allNamespaces); all {
			namespace = ""
		}
		for i, k := range kinds {
			var objects metadata.ResourceInterface = client.Resource(k.Resource)
			if k.Namespaced {
				objects = client.Resource(k.Resource).Namespace(namespace)
			}
			// What can't be listed is not offered.
			_ = Each(cmd.Context(), objects, metav1.ListOptions{}, func(o *metav1.PartialObjectMetadata) {
				name := o.Name
				if i > 0 {
					name = k.Short(name)
				}
				if strings.HasPrefix(name, prefix) {
					names = append(names, name)
				}
			})
		}
		return names, none
	}
}
