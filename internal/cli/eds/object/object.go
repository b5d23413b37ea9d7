// SPDX-License-Identifier: Apache-2.0

// Package object reads and writes ExtendedDaemonSets and their revisions, the ExtendedDaemonSetReplicaSets, for `kubectl eds`.
package object

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// Client reads and writes the objects of one namespace.
type Client struct{ *source.Source }

// Connect makes a client for the cluster and the namespace of the command line.
func Connect(cluster config.Config) (*Client, error) {
	src, err := source.Connect(cluster)
	return &Client{src}, err
}

// Write is how the API server records the plugin's writes.
var Write = metav1.PatchOptions{FieldManager: "kubectl-eds"}

// Complete gives a command what all have whose one argument is the name of an ExtendedDaemonSet.
func Complete(cluster config.Config, cmd *cobra.Command, run func(ctx context.Context, c *Client, name string) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = oneName
	}
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = source.Complete(cluster, nil, target.DaemonSet)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := Name(target.DaemonSet, args[0])
		if err != nil {
			return err
		}
		client, err := Connect(cluster)
		if err != nil {
			return err
		}
		return run(cmd.Context(), client, name)
	}
	return cmd
}

func oneName(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("the extendeddaemonset name is required")
	case 1:
		return nil
	}
	return errors.New("only one extendeddaemonset name is allowed")
}

// Name reads a name from a command line: NAME, or KIND/NAME.
func Name(k *target.Kind, arg string) (string, error) {
	named, err := target.Parse(arg, k)
	return named.Name, err
}

// DaemonSet reads an ExtendedDaemonSet.
func (c *Client) DaemonSet(ctx context.Context, name string) (*edsv1.ExtendedDaemonSet, error) {
	u, err := c.Get(ctx, target.DaemonSet, name)
	if err != nil {
		return nil, err
	}
	return source.As[edsv1.ExtendedDaemonSet](u), nil
}

// Revision reads an ExtendedDaemonSetReplicaSet.
func (c *Client) Revision(ctx context.Context, name string) (*edsv1.ExtendedDaemonSetReplicaSet, error) {
	u, err := c.Get(ctx, target.ReplicaSet, name)
	if err != nil {
		return nil, err
	}
	return source.As[edsv1.ExtendedDaemonSetReplicaSet](u), nil
}

// Revisions are the ExtendedDaemonSetReplicaSets of an ExtendedDaemonSet, the oldest first. One without an owner belongs to it by its label.
func (c *Client) Revisions(ctx context.Context, eds *edsv1.ExtendedDaemonSet) ([]edsv1.ExtendedDaemonSetReplicaSet, error) {
	o := metav1.ListOptions{LabelSelector: labels.Set{edsv1.LabelName: eds.Name}.String()}
	all, err := source.List[edsv1.ExtendedDaemonSetReplicaSet](ctx, c.Of(target.ReplicaSet), o)
	if err != nil {
		return nil, source.Explain(target.ReplicaSet, err)
	}
	all = slices.DeleteFunc(all, func(ers edsv1.ExtendedDaemonSetReplicaSet) bool {
		owner := metav1.GetControllerOf(&ers)
		return owner != nil && owner.UID != eds.UID
	})
	slices.SortFunc(all, func(a, b edsv1.ExtendedDaemonSetReplicaSet) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}
