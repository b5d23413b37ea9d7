// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/cli/target"
)

// nodes reads the nodes that the command line names. Nothing is done if one of them is missing.
func (c *command) nodes(ctx context.Context, args []string) (client.Client, []corev1.Node, error) {
	names, err := nodeNames(args)
	if err != nil {
		return nil, nil, err
	}
	api, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 0 {
		nodes, err := c.selectNodes(ctx, api)
		return api, nodes, err
	}
	nodes := make([]corev1.Node, len(names))
	for i, name := range names {
		if err := api.Get(ctx, client.ObjectKey{Name: name}, &nodes[i]); err != nil {
			return nil, nil, fmt.Errorf("reading node %s, %w", name, err)
		}
	}
	return api, nodes, nil
}

func (c *command) selectNodes(ctx context.Context, api client.Client) ([]corev1.Node, error) {
	selector, err := labels.Parse(c.selector)
	if err != nil {
		return nil, fmt.Errorf("reading --selector, %w", err)
	}
	var nodes []corev1.Node
	options := client.ListOptions{LabelSelector: selector, Limit: c.chunk}
	for more := true; more; more = options.Continue != "" {
		var page corev1.NodeList
		if err := api.List(ctx, &page, &options); err != nil {
			return nil, fmt.Errorf("listing nodes, %w", err)
		}
		nodes, options.Continue = append(nodes, page.Items...), page.Continue
	}
	if len(nodes) == 0 {
		fmt.Fprintf(c.ErrOut, "no node has the labels %s\n", c.selector)
	}
	return nodes, nil
}

// nodeNames reads names as kubectl does: "x", "node/x", "nodes/x" and "no/x" are the same.
func nodeNames(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		node, err := target.Parse(arg, target.Node)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, node.Name) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}
