// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// parts are what ExtendedDaemonSets consist of, by watches.
type parts struct {
	revisions, settings, pods cache.SharedIndexInformer
}

// all are the informers.
func (p *parts) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{p.revisions, p.settings, p.pods}
}

// lookAtParts adds to ExtendedDaemonSets what they consist of, where there is need of it and it is to be seen; else there is to see
// what their statuses list. It is false while that is still being read. One that takes over from a DaemonSet has pods that are not
// watched.
func (f *feed) lookAtParts(d *view.Daemons) (notes []string, complete bool) {
	restless := func(eds edsv1.ExtendedDaemonSet) bool { return !view.AtRest(&eds) }
	if !slices.ContainsFunc(d.Sets, restless) {
		return nil, true
	}
	if f.parts == nil {
		if err := f.watchParts(); err != nil {
			return []string{err.Error()}, true
		}
	}
	for _, i := range f.parts.all() {
		if f.denied[i] != nil {
			return []string{source.NoPodsSeen}, true
		}
	}
	for _, i := range f.parts.all() {
		if !i.HasSynced() {
			return nil, f.trouble != nil
		}
	}
	d.Revisions = stored[edsv1.ExtendedDaemonSetReplicaSet](f.parts.revisions)
	d.Settings = stored[edsv1.ExtendedDaemonsetSetting](f.parts.settings)
	d.Pods = map[types.NamespacedName]view.DaemonPods{}
	for i := range d.Sets {
		if eds := &d.Sets[i]; restless(*eds) && eds.Annotations[edsv1.AnnotationOldDaemonset] == "" {
			d.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}] = view.DaemonPods{}
		}
	}
	for _, p := range stored[corev1.Pod](f.parts.pods) {
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[edsv1.LabelName]}
		if of, ok := d.Pods[key]; ok {
			of.Items = append(of.Items, p)
			d.Pods[key] = of
		}
	}
	return nil, true
}

// watchParts begins to watch.
func (f *feed) watchParts() error {
	p, within := &parts{}, f.where.Namespace
	selector := edsv1.LabelName
	if f.where.Name != "" {
		selector += "=" + f.where.Name
	}
	var err error
	if p.revisions, err = f.watch(&unstructured.Unstructured{}, custom(f.src.Revisions(within), source.Scope{}), decoded[edsv1.ExtendedDaemonSetReplicaSet]); err != nil {
		return err
	}
	if p.settings, err = f.watch(&unstructured.Unstructured{}, custom(f.src.Settings(within), source.Scope{}), decoded[edsv1.ExtendedDaemonsetSetting]); err != nil {
		return err
	}
	if p.pods, err = f.watch(&corev1.Pod{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return f.src.Core.Pods(within).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return f.src.Core.Pods(within).Watch(ctx, o)
		},
	}, view.TrimPod); err != nil {
		return err
	}
	f.parts = p
	for _, i := range p.all() {
		f.begin(i)
	}
	return nil
}

// decoded makes an object of what the API sent.
func decoded[T any](object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		return source.Decoded[T](u), nil
	}
	return object, nil
}
