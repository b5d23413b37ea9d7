// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// Rollouts are those that are read.
type Rollouts struct {
	Plans        []upgradev1.Plan
	DaemonSets   []edsv1.ExtendedDaemonSet
	NodeRollouts []v1alpha1.NodeRollout
}

// Len is how many there are.
func (r *Rollouts) Len() int { return len(r.Plans) + len(r.DaemonSets) + len(r.NodeRollouts) }

// Kinds are the kinds that there are rollouts of.
func (r *Rollouts) Kinds() []*target.Kind {
	var kinds []*target.Kind
	for k, n := range []int{len(r.Plans), len(r.DaemonSets), len(r.NodeRollouts)} {
		if n > 0 {
			kinds = append(kinds, target.Rollouts[k])
		}
	}
	return kinds
}

// ReadRollouts returns the rollouts that are named, or all where there is no name. Where no kind is named, kinds that can't be listed are left out,
// and a note names them. It fails when none can be listed, and when a rollout is named and does not exist.
func (src *Source) ReadRollouts(ctx context.Context, named target.Target) (r Rollouts, err error) {
	hidden, kinds, notRead := map[*target.Kind]error{}, 0, error(nil)
	for _, k := range target.Rollouts {
		if named.Kind != nil && named.Kind != k {
			continue
		}
		kinds++
		switch err := src.readKind(ctx, &r, k, named.Name); {
		case err == nil:
		case errors.Is(err, ErrNotRead):
			notRead = err
		case named.Kind == nil && isHidden(err):
			hidden[k] = err
		default:
			return r, Explain(k, err)
		}
	}
	switch {
	case notRead != nil:
		return r, notRead
	case len(hidden) == kinds, hidden[target.Plan] != nil && r.Len() == 0:
		return r, Explain(target.Plan, hidden[target.Plan])
	case r.Len() == 0 && named.Name != "":
		return r, src.NotFound(ctx, named.Kind, named.Name)
	case len(hidden) > 0:
		src.Notes = append(src.Notes, hiddenNote(hidden))
	}
	return r, nil
}

func (src *Source) readKind(ctx context.Context, r *Rollouts, k *target.Kind, name string) (err error) {
	switch from := src.Of(k); k {
	case target.Plan:
		r.Plans, err = read[upgradev1.Plan](ctx, src, from, Named(name), k.Name, nil)
	case target.DaemonSet:
		r.DaemonSets, err = read[edsv1.ExtendedDaemonSet](ctx, src, from, Named(name), k.Name, nil)
	case target.NodeRollout:
		r.NodeRollouts, err = read[v1alpha1.NodeRollout](ctx, src, from, Named(name), k.Name, nil)
	}
	return err
}

// ReadNodes returns all nodes; nil when they may not be listed.
func (src *Source) ReadNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes, err := read(ctx, src, src.Core.Nodes(), metav1.ListOptions{}, target.Node.Name, trimNode)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing nodes, %w", err)
	case nodes == nil:
		nodes = []corev1.Node{}
	}
	return nodes, nil
}

// trimNode removes what is large and not shown.
func trimNode(n *corev1.Node) {
	n.Status.Images, n.Status.VolumesAttached, n.Status.VolumesInUse = nil, nil, nil
}

// ReadBudgets returns all NodeDisruptionBudgets. There are none where there is no such kind.
func (src *Source) ReadBudgets(ctx context.Context) ([]v1alpha1.NodeDisruptionBudget, error) {
	budgets, err := read[v1alpha1.NodeDisruptionBudget](ctx, src, src.Of(target.Budget), metav1.ListOptions{}, target.Budget.Name, nil)
	switch {
	case apierrors.IsForbidden(err):
		src.Notes = append(src.Notes, NoBudgets)
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing budgets, %w", err)
	}
	return budgets, nil
}
