// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// Found are the rollouts that are read.
type Found struct {
	Plans        []upgradev1.Plan
	DaemonSets   []edsv1.ExtendedDaemonSet
	NodeRollouts []v1alpha1.NodeRollout
	// Budgets of a file, which count in place of those of their names.
	Budgets []v1alpha1.NodeDisruptionBudget
}

// ReadRollouts returns the named rollouts, or all if there is no name. If no kind is named, it leaves out kinds that can't be listed,
// and notes name them. It fails if nothing is found and Plans can't be listed, or if a named rollout does not exist.
func (src *Source) ReadRollouts(ctx context.Context, named Target) (f Found, err error) {
	var errPlans error
	kinds := Rollouts
	if named.Kind != nil {
		kinds = []*Kind{named.Kind}
	}
	for _, k := range kinds {
		switch k {
		case Plan:
			f.Plans, err = readOwn[upgradev1.Plan](ctx, src, k, Named(named.Name))
		case DaemonSet:
			f.DaemonSets, err = readOwn[edsv1.ExtendedDaemonSet](ctx, src, k, Named(named.Name))
		case NodeRollout:
			f.NodeRollouts, err = Read[v1alpha1.NodeRollout](ctx, src, k, Named(named.Name))
		}
		switch {
		case err == nil:
			continue
		case named.Kind != nil || !isHidden(err):
			return f, Explain(k, err)
		case k == Plan:
			errPlans = Explain(k, err)
		}
		src.Notes = append(src.Notes, fmt.Sprintf("%ss are not shown: %v", k.Name, Explain(k, err)))
	}
	switch {
	case len(f.Plans)+len(f.DaemonSets)+len(f.NodeRollouts) > 0:
		return f, nil
	case errPlans != nil:
		return f, errPlans
	case named.Name != "":
		return f, src.NotFound(ctx, named.Name, kinds...)
	}
	return f, nil
}

// readOwn reads objects like Read. If they may not be listed in all namespaces it reads those of src.Own, and a note says so.
func readOwn[T any](ctx context.Context, src *Source, k *Kind, o metav1.ListOptions) ([]T, error) {
	all, err := Read[T](ctx, src, k, o)
	if !apierrors.IsForbidden(err) || src.Namespace != metav1.NamespaceAll || src.Own == "" {
		return all, err
	}
	own, errOwn := ReadIn[T](ctx, src, src.Own, k, o)
	if errOwn != nil {
		return nil, err
	}
	src.Notes = append(src.Notes, fmt.Sprintf("Only %ss of namespace %s are shown: others may not be listed.", k.Name, src.Own))
	return own, nil
}

// ReadNodes returns all nodes; nil when they may not be listed.
func (src *Source) ReadNodes(ctx context.Context) ([]corev1.Node, error) {
	trim := func(n *corev1.Node) { n.Status.Images, n.Status.VolumesAttached, n.Status.VolumesInUse = nil, nil, nil } // They are large, and not shown.
	nodes, err := read(ctx, src, src.Core.Nodes(), metav1.ListOptions{}, Node.Name, trim)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing nodes, %w", err)
	}
	return nodes, nil
}

// ReadNamed returns the cluster as ReadCluster does, with the rollouts that ReadRollouts returns.
func (src *Source) ReadNamed(
	ctx context.Context, named Target, node string, skip func(*edsv1.ExtendedDaemonSet) bool, now time.Time,
) (*view.Cluster, error) {
	found, err := src.ReadRollouts(ctx, named)
	if err != nil {
		return nil, err
	}
	return src.ReadCluster(ctx, found, node, skip, now)
}

// ReadCluster returns the rollouts with the nodes, the budgets, and the pods of ExtendedDaemonSets, apart from those that skip selects. It reads the
// gates that depend on pods of one node; of all if the name is empty.
func (src *Source) ReadCluster(
	ctx context.Context, found Found, node string, skip func(*edsv1.ExtendedDaemonSet) bool, now time.Time,
) (*view.Cluster, error) {
	budgets, errBudgets := src.ReadBudgets(ctx)
	budgets = append(slices.DeleteFunc(budgets, func(b v1alpha1.NodeDisruptionBudget) bool {
		i := slices.IndexFunc(found.Budgets, func(f v1alpha1.NodeDisruptionBudget) bool { return f.Name == b.Name })
		if i >= 0 {
			found.Budgets[i].Status, found.Budgets[i].Generation = b.Status, b.Generation // It has the gates that are closed.
		}
		return i >= 0
	}), found.Budgets...)
	nodes, errNodes := src.ReadNodes(ctx)
	daemons, errDaemons := src.ReadDaemons(ctx, found.DaemonSets, skip)
	otherDaemons, otherRollouts, errOthers := src.readOthers(ctx, found)
	if err := cmp.Or(errBudgets, errNodes, errDaemons, errOthers); err != nil {
		return nil, err
	}
	cluster := view.See(found.Plans, nodes, budgets, now).NodeRollouts(found.NodeRollouts, otherRollouts...).Daemons(daemons, otherDaemons)
	if nodes == nil {
		src.Notes = append(src.Notes, NoNodes)
		return cluster, nil
	}
	cluster.OwnNode(src.ReadOperatorNode(ctx))
	return cluster, src.ReadPodGates(ctx, cluster, node)
}

// readOthers returns the ExtendedDaemonSets of the whole cluster that are at work and not shown, and all NodeRollouts: where they work, others wait.
// What can't be read is left out.
func (src *Source) readOthers(ctx context.Context, shown Found) (daemons view.Daemons, rollouts []v1alpha1.NodeRollout, err error) {
	sets, errSets := ReadIn[edsv1.ExtendedDaemonSet](ctx, src, metav1.NamespaceAll, DaemonSet, metav1.ListOptions{})
	rollouts, errRollouts := ReadIn[v1alpha1.NodeRollout](ctx, src, metav1.NamespaceAll, NodeRollout, metav1.ListOptions{})
	sets = slices.DeleteFunc(sets, func(eds edsv1.ExtendedDaemonSet) bool {
		return view.AtRest(&eds) || slices.ContainsFunc(shown.DaemonSets, func(s edsv1.ExtendedDaemonSet) bool { return s.Namespace == eds.Namespace && s.Name == eds.Name })
	})
	before := len(src.Notes)
	daemons, err = src.ReadDaemons(ctx, sets, nil)
	failed := func(err error) bool { return err != nil && !apierrors.IsNotFound(err) }
	if len(src.Notes) > before || failed(errSets) || failed(errRollouts) {
		src.Notes = append(src.Notes[:before], NoOthers)
	}
	return daemons, rollouts, err
}

// ErrNoNodes is the error of what can't be said without nodes.
var ErrNoNodes = errors.New("nodes can't be listed, and without them there is nothing to say")

// ReadBudgets returns all NodeDisruptionBudgets; none if the kind does not exist.
func (src *Source) ReadBudgets(ctx context.Context) ([]v1alpha1.NodeDisruptionBudget, error) {
	budgets, err := Read[v1alpha1.NodeDisruptionBudget](ctx, src, Budget, metav1.ListOptions{})
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
