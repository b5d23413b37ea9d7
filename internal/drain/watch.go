// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Watcher watches the pods of selected nodes only: one list and one watch for each node. It is safe for concurrent use.
type Watcher struct {
	client  typedcorev1.CoreV1Interface
	changed func(node string)
	ended   func(*corev1.Pod)

	mu sync.Mutex
	// ctx is that of Run, and nil before.
	ctx   context.Context //nolint:containedctx // Watches outlive the calls that start them.
	nodes map[string]*podsOf
}

// podsOf are the pods of one node.
type podsOf struct {
	store    cache.Store
	informer cache.Controller
	stop     context.CancelFunc
}

// NewWatcher makes a Watcher. It calls changed when the pods of a node are first known, and after every addition, deletion
// or relevant change of a pod, and ended with each pod that is gone. The functions must not block; they may call the Watcher. The client's config must have no
// timeout, which would end each watch.
func NewWatcher(client typedcorev1.CoreV1Interface, changed func(node string), ended func(*corev1.Pod)) *Watcher {
	return &Watcher{client: client, changed: changed, ended: ended, nodes: map[string]*podsOf{}}
}

// Run watches until the context ends. It never fails: errors are retried with a backoff of up to 30 seconds. It may be called
// once.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for node, pods := range w.nodes {
		w.start(node, pods)
	}
	w.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Watch starts to watch a node's pods, unless they are watched already. Before Run it only records the node.
func (w *Watcher) Watch(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[node] != nil {
		return
	}
	pods := w.newPodsOf(node)
	w.nodes[node] = pods
	if w.ctx != nil {
		w.start(node, pods)
	}
}

// Stop ends the watch of a node, and drops its pods.
func (w *Watcher) Stop(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pods := w.nodes[node]; pods != nil {
		delete(w.nodes, node)
		pods.stop()
	}
}

// Pods returns the node's pods, including ended ones, sorted by namespace and name. They have only the fields that drains
// and health need. They are shared, and must not be changed. It returns false while they are not known.
func (w *Watcher) Pods(node string) ([]corev1.Pod, bool) {
	w.mu.Lock()
	of := w.nodes[node]
	w.mu.Unlock()
	if of == nil || !of.informer.HasSynced() {
		return nil, false
	}
	var pods []corev1.Pod
	for _, object := range of.store.List() {
		pods = append(pods, *object.(*corev1.Pod))
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, true
}

// newPodsOf returns the pods of a node, before their watch starts.
func (w *Watcher) newPodsOf(node string) *podsOf {
	pods := &podsOf{stop: func() {}}
	pods.store, pods.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(
			w.client.RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector(NodeNameField, node),
		),
		ObjectType: &corev1.Pod{},
		Transform:  trim,
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, isInInitialList bool) {
				if !isInInitialList {
					w.changed(node)
				}
			},
			UpdateFunc: func(old, now any) {
				if !equality.Semantic.DeepEqual(old, now) {
					w.changed(node)
				}
			},
			DeleteFunc: func(object any) {
				if pod, ok := object.(*corev1.Pod); ok {
					w.ended(pod)
				}
				w.changed(node)
			},
		},
	})
	return pods
}

// start starts a node's watch. The caller holds the lock.
func (w *Watcher) start(node string, pods *podsOf) {
	ctx, stop := context.WithCancel(w.ctx)
	pods.stop = stop
	go pods.informer.RunWithContext(ctx)
	go func() {
		if cache.WaitFor(ctx, "", pods.informer.HasSyncedChecker()) {
			w.changed(node)
		}
	}()
}

// trim keeps the fields of a pod that drains and health need. It drops the versions, which change with fields that do not matter.
func trim(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	TrimMeta(p)
	p.ResourceVersion, p.Generation = "", 0
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, Priority: p.Spec.Priority, Tolerations: p.Spec.Tolerations,
		Volumes: slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.EmptyDir == nil && v.Ephemeral == nil && v.PersistentVolumeClaim == nil
		}),
	}
	p.Status = corev1.PodStatus{
		Phase:                 p.Status.Phase,
		Conditions:            slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.PodReady }),
		InitContainerStatuses: trimStatuses(p.Status.InitContainerStatuses),
		ContainerStatuses:     trimStatuses(p.Status.ContainerStatuses),
	}
	return p, nil
}

// TrimMeta keeps the identity, the labels and the controller of an object, and whether a pod is static.
func TrimMeta(o metav1.Object) {
	o.SetManagedFields(nil)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return !ptr.Deref(r.Controller, false) }))
	var annotations map[string]string
	if value, ok := o.GetAnnotations()[corev1.MirrorPodAnnotationKey]; ok {
		annotations = map[string]string{corev1.MirrorPodAnnotationKey: value}
	}
	o.SetAnnotations(annotations)
}

// trimStatuses keeps the restarts, the readiness and the start time of containers.
func trimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range all {
		s := corev1.ContainerStatus{Name: all[i].Name, Ready: all[i].Ready, RestartCount: all[i].RestartCount}
		if running := all[i].State.Running; running != nil {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: running.StartedAt}
		}
		kept = append(kept, s)
	}
	return kept
}
