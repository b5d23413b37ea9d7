// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/feed"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

// objects are what a live view is made of, kept up to date by watches.
type objects struct {
	*feed.Feed
	src          *source.Source
	named        target.Target
	plans        *feed.Objects[upgradev1.Plan]
	daemonSets   *feed.Objects[edsv1.ExtendedDaemonSet]
	nodeRollouts *feed.Objects[v1alpha1.NodeRollout]
	nodes        *feed.Objects[corev1.Node]
	budgets      *feed.Objects[v1alpha1.NodeDisruptionBudget]
	// What belongs to ExtendedDaemonSets is watched once one of them is not at rest.
	revisions *feed.Objects[edsv1.ExtendedDaemonSetReplicaSet]
	settings  *feed.Objects[edsv1.ExtendedDaemonsetSetting]
	pods      *feed.Objects[corev1.Pod]
}

func watchObjects(src *source.Source, named target.Target) (*objects, error) {
	o := &objects{Feed: feed.New(src.Client), src: src, named: named}
	var errs [5]error
	if named.Means(target.Plan) {
		o.plans, errs[0] = watchRollouts[upgradev1.Plan](o, target.Plan)
	}
	if named.Means(target.DaemonSet) {
		o.daemonSets, errs[1] = watchRollouts[edsv1.ExtendedDaemonSet](o, target.DaemonSet)
	}
	if named.Means(target.NodeRollout) {
		o.nodeRollouts, errs[2] = watchRollouts[v1alpha1.NodeRollout](o, target.NodeRollout)
	}
	o.nodes, errs[3] = feed.Add[corev1.Node](o.Feed, src.Core.Nodes(), feed.Options{Optional: true, Trim: trimNode})
	o.budgets, errs[4] = feed.Add[v1alpha1.NodeDisruptionBudget](o.Feed, src.Of(target.Budget), feed.Options{Optional: true})
	return o, errors.Join(errs[:]...)
}

func watchRollouts[T any](o *objects, k *target.Kind) (*feed.Objects[T], error) {
	return feed.Add[T](o.Feed, o.src.Of(k), feed.Options{
		FieldSelector: source.Named(o.named.Name).FieldSelector, Optional: true,
		Explain: func(err error) error { return source.Explain(k, err) },
	})
}

// rollouts returns what can be seen. It fails when that is too little.
func (o *objects) rollouts() (source.Rollouts, error) {
	r := source.Rollouts{Plans: o.plans.All(), DaemonSets: o.daemonSets.All(), NodeRollouts: o.nodeRollouts.All()}
	hidden := map[*target.Kind]error{}
	for k, err := range map[*target.Kind]error{
		target.Plan: o.plans.Denied(), target.DaemonSet: o.daemonSets.Denied(), target.NodeRollout: o.nodeRollouts.Denied(),
	} {
		if err != nil {
			hidden[k] = err
		}
	}
	if err := hidden[target.Plan]; err != nil && r.Len() == 0 {
		return r, err
	}
	if err := hidden[o.named.Kind]; err != nil {
		return r, err
	}
	if len(hidden) > 0 {
		o.src.Notes = append(o.src.Notes, source.Hidden(hidden))
	}
	return r, nil
}

// look returns how many rollouts there are and what can be seen, with notes on the rest. It is nil while something is still to be read.
func (o *objects) look(now time.Time) (*view.Cluster, int, error) {
	o.src.Notes = nil
	if err := o.Trouble(); err != nil {
		o.src.Notes = append(o.src.Notes, "What is shown may be out of date: "+err.Error())
	}
	r, err := o.rollouts()
	if err != nil {
		return nil, 0, err
	}
	daemons, complete, err := o.daemons(r.DaemonSets)
	if err != nil || !complete {
		return nil, 0, err
	}
	if apierrors.IsForbidden(o.budgets.Denied()) {
		o.src.Notes = append(o.src.Notes, source.NoBudgets)
	}
	nodes := o.nodes.All()
	if o.nodes.Denied() != nil {
		o.src.Notes = append(o.src.Notes, source.NoNodes)
		nodes = nil
	}
	return view.See(r.Plans, nodes, o.budgets.All(), now).Daemons(daemons).NodeRollouts(r.NodeRollouts), r.Len(), nil
}

// daemons adds to ExtendedDaemonSets their revisions, settings and pods, when one of them is not at rest and they can be seen. It is false
// while these are still to be read. Pods of a DaemonSet that is taken over are not watched.
func (o *objects) daemons(sets []edsv1.ExtendedDaemonSet) (d view.Daemons, complete bool, err error) {
	d.Sets = sets
	if !slices.ContainsFunc(sets, func(eds edsv1.ExtendedDaemonSet) bool { return !view.AtRest(&eds) }) {
		return d, true, nil
	}
	if o.pods == nil {
		return d, false, o.watchDaemons()
	}
	if o.revisions.Denied() != nil || o.settings.Denied() != nil || o.pods.Denied() != nil {
		o.src.Notes = append(o.src.Notes, source.NoPodsSeen)
		return d, true, nil //nolint:nilerr // The note says it.
	}
	if !o.revisions.IsKnown() || !o.settings.IsKnown() || !o.pods.IsKnown() {
		return d, true, nil // There is trouble, which is noted.
	}
	d.Revisions, d.Settings, d.Pods = o.revisions.All(), o.settings.All(), map[types.NamespacedName]view.DaemonPods{}
	for i := range sets {
		if eds := &sets[i]; !view.AtRest(eds) && eds.Annotations[edsv1.AnnotationOldDaemonset] == "" {
			d.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}] = view.DaemonPods{}
		}
	}
	for _, p := range o.pods.All() {
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[edsv1.LabelName]}
		if pods, ok := d.Pods[key]; ok {
			pods.Items = append(pods.Items, p)
			d.Pods[key] = pods
		}
	}
	return d, true, nil
}

func (o *objects) watchDaemons() error {
	selector := edsv1.LabelName
	if o.named.Name != "" {
		selector += "=" + o.named.Name
	}
	var errs [3]error
	optional := feed.Options{Optional: true}
	o.revisions, errs[0] = feed.Add[edsv1.ExtendedDaemonSetReplicaSet](o.Feed, o.src.Of(target.ReplicaSet), optional)
	o.settings, errs[1] = feed.Add[edsv1.ExtendedDaemonsetSetting](o.Feed, o.src.Of(target.Setting), optional)
	o.pods, errs[2] = feed.Add[corev1.Pod](o.Feed, o.src.Core.Pods(o.src.Namespace), feed.Options{
		LabelSelector: selector, Optional: true, Trim: view.TrimPod,
	})
	return errors.Join(errs[:]...)
}

// trimNode keeps of a Node what is shown, and what the view looks at.
func trimNode(object any) (any, error) {
	n := object.(*corev1.Node)
	maps.DeleteFunc(n.Annotations, func(key, value string) bool { return !isShown(key, value) })
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints, ProviderID: n.Spec.ProviderID}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	n.Status = corev1.NodeStatus{
		Conditions: n.Status.Conditions, NodeInfo: corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID, OSImage: n.Status.NodeInfo.OSImage},
	}
	return n, nil
}

// isShown reports whether an annotation of a Node matters here: one of Moult or of a host's agent, one for daemons, or one with the value for
// which a reboot may wait.
func isShown(key, value string) bool {
	if value == "true" || strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, edsv1.AnnotationResourcesPrefix) {
		return true
	}
	return slices.ContainsFunc(v1alpha1.HostProtocols, func(p v1alpha1.HostProtocol) bool {
		return slices.Contains([]string{p.Wanted, p.Active, p.State, p.Update}, key)
	})
}
