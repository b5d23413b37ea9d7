// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/view"
)

// What belongs to ExtendedDaemonSets.
var (
	revisions = edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets")
	settings  = edsv1.GroupVersion.WithResource("extendeddaemonsetsettings")
)

// Revisions are the ExtendedDaemonSetReplicaSets of a namespace, or of all where it is empty.
func (src *Source) Revisions(namespace string) dynamic.ResourceInterface {
	return src.Client.Resource(revisions).Namespace(namespace)
}

// Settings are the ExtendedDaemonsetSettings of a namespace, or of all where it is empty.
func (src *Source) Settings(namespace string) dynamic.ResourceInterface {
	return src.Client.Resource(settings).Namespace(namespace)
}

// Reach says which pods of an ExtendedDaemonSet are read.
type Reach int

// Which pods are read.
const (
	NoPods Reach = iota
	// PodsOnNode are those on the node that is asked about.
	PodsOnNode
	AllPods
)

// Unrest reads the pods of those ExtendedDaemonSets that have something to do.
func Unrest(eds *edsv1.ExtendedDaemonSet) Reach {
	if view.AtRest(eds) {
		return NoPods
	}
	return AllPods
}

// NoPodsSeen is said to those who may see ExtendedDaemonSets but not what belongs to them.
const NoPodsSeen = "Pods, revisions and settings of ExtendedDaemonSets can't all be listed: only the nodes that a status lists are shown."

// ReadDaemons returns ExtendedDaemonSets with what belongs to them, as far as their pods are asked for. Where it can't be listed, a note
// says so, and there are none.
func (src *Source) ReadDaemons(ctx context.Context, sets []edsv1.ExtendedDaemonSet, node string, reach func(*edsv1.ExtendedDaemonSet) Reach) (view.Daemons, string, error) {
	d := view.Daemons{Sets: sets}
	var looked []*edsv1.ExtendedDaemonSet
	namespaces := map[string]bool{}
	for i := range sets {
		if reach(&sets[i]) != NoPods {
			looked = append(looked, &sets[i])
			namespaces[sets[i].Namespace] = true
		}
	}
	if len(looked) == 0 {
		return d, "", nil
	}
	where := Scope{}
	if len(namespaces) == 1 {
		where.Namespace = looked[0].Namespace
	}
	var err error
	if d.Revisions, err = read(ctx, src.Revisions(where.Namespace), where, Decoded[edsv1.ExtendedDaemonSetReplicaSet]); err == nil {
		d.Settings, err = read(ctx, src.Settings(where.Namespace), where, Decoded[edsv1.ExtendedDaemonsetSetting])
	}
	d.Pods = map[types.NamespacedName]view.DaemonPods{}
	for _, eds := range looked {
		if err != nil {
			break
		}
		var pods view.DaemonPods
		if pods, err = src.podsOf(ctx, eds, node, reach(eds)); err == nil {
			d.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}] = pods
		}
	}
	switch {
	case err == nil:
		return d, "", nil
	case unseen(err):
		return view.Daemons{Sets: sets}, NoPodsSeen, nil
	}
	return d, "", fmt.Errorf("reading what belongs to ExtendedDaemonSets, %w", err)
}

// podsOf are the pods of an ExtendedDaemonSet, and of the DaemonSet that it takes over from.
func (src *Source) podsOf(ctx context.Context, eds *edsv1.ExtendedDaemonSet, node string, reach Reach) (view.DaemonPods, error) {
	o := metav1.ListOptions{LabelSelector: edsv1.LabelName + "=" + eds.Name}
	if reach == PodsOnNode {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	pods := view.DaemonPods{Partial: reach == PodsOnNode}
	err := src.eachPod(ctx, eds.Namespace, o, func(p *corev1.Pod) { pods.Items = append(pods.Items, *p) })
	if err != nil || eds.Annotations[edsv1.AnnotationOldDaemonset] == "" {
		return pods, err
	}
	o.LabelSelector = "!" + edsv1.LabelName
	err = src.eachPod(ctx, eds.Namespace, o, func(p *corev1.Pod) {
		if view.TakesOver(eds, p) {
			pods.Items = append(pods.Items, *p)
		}
	})
	return pods, err
}

// readPodsOn returns the pods of all namespaces that are on a node, or where none is named all there are.
func (src *Source) readPodsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	var o metav1.ListOptions
	if node != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	err := src.eachPod(ctx, metav1.NamespaceAll, o, func(p *corev1.Pod) { pods = append(pods, *p) })
	if err != nil {
		return nil, fmt.Errorf("listing pods, %w", err)
	}
	return pods, nil
}

func (src *Source) eachPod(ctx context.Context, namespace string, o metav1.ListOptions, do func(*corev1.Pod)) error {
	o.Limit = page
	for {
		list, err := src.Core.Pods(namespace).List(ctx, o)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if _, err := view.TrimPod(&list.Items[i]); err != nil {
				return err
			}
			do(&list.Items[i])
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}

// Decoded is an object in its type; what can't be read of it stays empty.
func Decoded[T any](u *unstructured.Unstructured) *T {
	into := new(T)
	decode(u, into)
	return into
}
