// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
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

// ReadRollouts returns the rollouts that are named, or all where there is no name. Where no kind is named, kinds that cannot be seen are
// left out, as long as there is something to show. It fails when a rollout is named and is not there.
func (src *Source) ReadRollouts(ctx context.Context, named target.Target) (Rollouts, error) {
	r, hidden, err := src.readKinds(ctx, named, "")
	if err != nil {
		return r, err
	}
	if err := hidden[target.Plan]; err != nil && r.Len() == 0 {
		return r, Explain(target.Plan, err)
	}
	if r.Len() == 0 && named.Name != "" {
		return r, src.NotFound(ctx, named.Kind, named.Name)
	}
	return r, nil
}

// ReadAllRollouts returns the rollouts of all namespaces, or where these may not be listed, of one.
func (src *Source) ReadAllRollouts(ctx context.Context) (Rollouts, error) {
	everywhere := &Source{Client: src.Client}
	r, _, err := everywhere.readKinds(ctx, target.Target{}, src.Namespace)
	src.Notes = append(src.Notes, everywhere.Notes...)
	return r, err
}

// readKinds reads the kinds that are meant. Kinds that cannot be seen are left out, if none is named, and if any can be seen.
func (src *Source) readKinds(ctx context.Context, named target.Target, instead string) (r Rollouts, hidden map[*target.Kind]error, err error) {
	hidden = map[*target.Kind]error{}
	kinds := 0
	for _, k := range target.Rollouts {
		if !named.Means(k) {
			continue
		}
		kinds++
		err := src.readKind(ctx, &r, k, src.Namespace, named.Name)
		if apierrors.IsForbidden(err) && k.Namespaced && instead != "" {
			if err = src.readKind(ctx, &r, k, instead, named.Name); err == nil {
				const note = "%ss of all namespaces can't be listed: only those of namespace %s are looked at."
				src.Notes = append(src.Notes, fmt.Sprintf(note, k.Name, instead))
			}
		}
		switch {
		case err == nil:
		case named.Kind == nil && isHidden(err):
			hidden[k] = err
		default:
			return r, nil, Explain(k, err)
		}
	}
	switch {
	case len(hidden) == kinds:
		return r, nil, Explain(target.Plan, hidden[target.Plan])
	case len(hidden) > 0:
		src.Notes = append(src.Notes, Hidden(hidden))
	}
	return r, hidden, nil
}

func (src *Source) readKind(ctx context.Context, r *Rollouts, k *target.Kind, namespace, name string) (err error) {
	switch from := src.In(namespace, k); k {
	case target.Plan:
		r.Plans, err = List[upgradev1.Plan](ctx, from, Named(name))
	case target.DaemonSet:
		r.DaemonSets, err = List[edsv1.ExtendedDaemonSet](ctx, from, Named(name))
	case target.NodeRollout:
		r.NodeRollouts, err = List[v1alpha1.NodeRollout](ctx, from, Named(name))
	}
	return err
}

// ReadNodes returns all nodes; nil when they may not be listed.
func (src *Source) ReadNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes, err := List[corev1.Node](ctx, src.Core.Nodes(), metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing nodes, %w", err)
	}
	return nodes, nil
}

// ReadBudgets returns all NodeDisruptionBudgets. There are none where there is no such kind.
func (src *Source) ReadBudgets(ctx context.Context) ([]v1alpha1.NodeDisruptionBudget, error) {
	budgets, err := List[v1alpha1.NodeDisruptionBudget](ctx, src.Of(target.Budget), metav1.ListOptions{})
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
