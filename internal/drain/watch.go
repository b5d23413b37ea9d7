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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Watcher watches the pods of selected nodes only: one list and one watch for each node. It is safe for concurrent use.
type Watcher struct {
	client  typedcorev1.PodsGetter
	changed func(node string)

	mu sync.Mutex
	// run starts a watch that ends with Run's context, or when it is stopped. It is nil before Run and after it.
	run   func(watch func(context.Context)) (stop context.CancelFunc)
	nodes map[string]*podsOf
	wg    sync.WaitGroup
}

// NewWatcher makes a Watcher. It calls changed when the pods of a node are first known, and after every addition, deletion
// or relevant change of a pod. The function must not block; it may call the Watcher. The client's config must have no
// timeout, which would end each watch.
func NewWatcher(pods typedcorev1.PodsGetter, changed func(node string)) *Watcher {
	return &Watcher{client: pods, changed: changed, nodes: map[string]*podsOf{}}
}

// Run watches until the context ends, and returns when all watches have ended. It never fails: errors are retried with a
// backoff of up to 30 seconds. It may be called once.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	w.run = func(watch func(context.Context)) context.CancelFunc {
		ctx, stop := context.WithCancel(ctx)
		w.wg.Go(func() {
			defer stop()
			watch(ctx)
		})
		return stop
	}
	for name, pods := range w.nodes {
		w.start(name, pods)
	}
	w.mu.Unlock()

	<-ctx.Done()
	w.mu.Lock()
	w.run = nil
	clear(w.nodes)
	w.mu.Unlock()
	w.wg.Wait()
	return nil
}

// Watch starts to watch a node's pods, unless they are watched already. Before Run it only records the node.
func (w *Watcher) Watch(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.nodes[node]; ok {
		return
	}
	pods := &podsOf{byUID: map[types.UID]*corev1.Pod{}}
	w.nodes[node] = pods
	if w.run != nil {
		w.start(node, pods)
	}
}

// Stop ends the watch of a node, and drops its pods.
func (w *Watcher) Stop(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods, ok := w.nodes[node]
	if !ok {
		return
	}
	delete(w.nodes, node)
	if pods.stop != nil {
		pods.stop()
	}
}

// Pods returns the node's pods, including ended ones, sorted by namespace and name. They have only the fields that drains
// and health need. They are shared, and must not be changed. It returns false while they are not known.
func (w *Watcher) Pods(node string) ([]corev1.Pod, bool) {
	w.mu.Lock()
	pods, ok := w.nodes[node]
	w.mu.Unlock()
	if !ok {
		return nil, false
	}
	return pods.list()
}

// start starts a node's watch. The caller holds the lock.
func (w *Watcher) start(node string, pods *podsOf) {
	api := w.client.Pods(metav1.NamespaceAll)
	selector := fields.OneTermEqualSelector(NodeNameField, node).String()
	both := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return api.Watch(ctx, o)
		},
	}, w.client)
	reflector := cache.NewReflectorWithOptions(both, &corev1.Pod{}, pods, cache.ReflectorOptions{Name: "pods of node " + node})
	pods.stop = w.run(func(ctx context.Context) {
		pods.changed = func() {
			if ctx.Err() == nil {
				w.changed(node)
			}
		}
		reflector.RunWithContext(ctx)
	})
}

// podsOf holds the pods of one node. A reflector writes to it.
type podsOf struct {
	stop    context.CancelFunc
	changed func()

	mu     sync.Mutex
	synced bool
	byUID  map[types.UID]*corev1.Pod
}

var _ cache.ReflectorStore = (*podsOf)(nil)

func (p *podsOf) list() ([]corev1.Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return nil, false
	}
	pods := make([]corev1.Pod, 0, len(p.byUID))
	for _, pod := range p.byUID {
		pods = append(pods, *pod)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods, true
}

// Add is called for a new pod.
func (p *podsOf) Add(object any) error { return p.Update(object) }

// Update is called for a changed pod.
func (p *podsOf) Update(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		kept := trim(pod)
		p.mu.Lock()
		changed := !equality.Semantic.DeepEqual(p.byUID[pod.UID], kept)
		p.byUID[pod.UID] = kept
		p.mu.Unlock()
		p.notify(changed)
	}
	return nil
}

// Delete is called for a deleted pod.
func (p *podsOf) Delete(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		p.mu.Lock()
		_, changed := p.byUID[pod.UID]
		delete(p.byUID, pod.UID)
		p.mu.Unlock()
		p.notify(changed)
	}
	return nil
}

// Replace is called with all pods, at the beginning and after a broken watch.
func (p *podsOf) Replace(objects []any, _ string) error {
	all := make(map[types.UID]*corev1.Pod, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			all[pod.UID] = trim(pod)
		}
	}
	p.mu.Lock()
	changed := !p.synced || !equality.Semantic.DeepEqual(p.byUID, all)
	p.byUID, p.synced = all, true
	p.mu.Unlock()
	p.notify(changed)
	return nil
}

// Resync is never called.
func (p *podsOf) Resync() error { return nil }

func (p *podsOf) notify(changed bool) {
	if changed {
		p.changed()
	}
}

// trim keeps the fields of a pod that drains and health need. It drops the resourceVersion, which changes with every other
// field.
func trim(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels, CreationTimestamp: p.CreationTimestamp,
			DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{NodeName: p.Spec.NodeName, Priority: p.Spec.Priority, Tolerations: p.Spec.Tolerations},
		Status: corev1.PodStatus{
			Phase:                 p.Status.Phase,
			InitContainerStatuses: trimStatuses(p.Status.InitContainerStatuses),
			ContainerStatuses:     trimStatuses(p.Status.ContainerStatuses),
		},
	}
	if owner := metav1.GetControllerOf(p); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if value, ok := p.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		kept.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: value}
	}
	for i := range p.Spec.Volumes {
		if v := trimVolume(&p.Spec.Volumes[i]); v != nil {
			kept.Spec.Volumes = append(kept.Spec.Volumes, *v)
		}
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return kept
}

// trimVolume keeps whether a volume is local, or which claim it uses; nil for all others.
func trimVolume(v *corev1.Volume) *corev1.Volume {
	kept := &corev1.Volume{Name: v.Name}
	switch {
	case v.EmptyDir != nil:
		kept.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case v.Ephemeral != nil:
		kept.Ephemeral = &corev1.EphemeralVolumeSource{}
	case v.PersistentVolumeClaim != nil:
		kept.PersistentVolumeClaim = v.PersistentVolumeClaim
	default:
		return nil
	}
	return kept
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
