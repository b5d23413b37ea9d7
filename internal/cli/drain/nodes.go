// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// target is a node that the command line names.
type target = corev1.Node

// nodes reads the nodes that the command line names. Nothing is done if one of them is missing.
func (c *command) nodes(ctx context.Context, args []string) (client.Client, []target, error) {
	names, err := nodeNames(args)
	if err != nil {
		return nil, nil, err
	}
	api, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 0 {
		nodes, err := c.selected(ctx, api)
		return api, nodes, err
	}
	nodes := make([]target, len(names))
	for i, name := range names {
		if err := api.Get(ctx, client.ObjectKey{Name: name}, &nodes[i]); err != nil {
			return nil, nil, fmt.Errorf("reading node %s, %w", name, err)
		}
	}
	return api, nodes, nil
}

func (c *command) selected(ctx context.Context, api client.Client) ([]target, error) {
	selector, err := labels.Parse(c.selector)
	if err != nil {
		return nil, fmt.Errorf("reading --selector, %w", err)
	}
	var nodes []target
	opts := client.ListOptions{LabelSelector: selector, Limit: c.chunk}
	for {
		var page corev1.NodeList
		if err := api.List(ctx, &page, &opts); err != nil {
			return nil, fmt.Errorf("listing nodes, %w", err)
		}
		nodes = append(nodes, page.Items...)
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
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
		name := arg
		if kind, rest, ok := strings.Cut(arg, "/"); ok {
			switch strings.ToLower(kind) {
			case "node", "nodes", "no":
				name = rest
			default:
				return nil, fmt.Errorf("reading %q, expected a node", arg)
			}
		}
		if strings.Contains(name, "/") {
			return nil, fmt.Errorf("reading %q, a node's name has no slash", arg)
		}
		if name == "" {
			return nil, errors.New("reading the names of nodes, one is empty")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
