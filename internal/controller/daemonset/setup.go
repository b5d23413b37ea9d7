// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/turn"
)

// indexName finds pods and revisions by the ExtendedDaemonSet that their label names, and Settings by the one that they reference.
const indexName = "extendeddaemonset"

func indexedByName(o client.Object) []string {
	if s, ok := o.(*edsv1.ExtendedDaemonsetSetting); ok {
		return []string{daemonset.ReferenceOf(s)}
	}
	return []string{o.GetLabels()[edsv1.LabelName]}
}

// CacheOptions limits the client's cache to the watched namespaces, and to PodTemplates for the cluster autoscaler.
func CacheOptions(o Options) map[client.Object]cache.ByObject {
	by := cache.ByObject{Namespaces: o.Namespaces, Transform: cache.TransformStripManagedFields()}
	resynced, forAutoscaler := by, by
	resynced.SyncPeriod, resynced.Transform = ptr.To(turn.Resync), turn.KeepLastManager
	forAutoscaler.Label = labels.SelectorFromSet(labels.Set{edsv1.AnnotationDaemonsetPod: edsv1.True})
	return map[client.Object]cache.ByObject{
		&edsv1.ExtendedDaemonSet{}: resynced, &edsv1.ExtendedDaemonSetReplicaSet{}: by, &edsv1.ExtendedDaemonsetSetting{}: by,
		&corev1.PodTemplate{}: forAutoscaler,
	}
}

// Caches are the controller's caches besides the client's. Pods has the pods with the label of an ExtendedDaemonSet. newLegacy makes a cache
// of all pods and DaemonSets of a namespace in which an ExtendedDaemonSet replaces a DaemonSet. The clients write pods, and read their own
// writes.
type Caches struct {
	Pods       cache.Cache
	daemonPods client.Client
	// podIndex has the objects of Pods by indexName, with their namespace; nil if only some namespaces are watched.
	podIndex  toolscache.Indexer
	newLegacy func(namespace string) (cache.Cache, client.Client, error)
}

// NewCaches returns the caches of pods, which keep few fields. The caller adds them to the manager. with holds the manager's scheme and
// mapper.
func NewCaches(cfg *rest.Config, o Options, with cache.Options) (c Caches, err error) {
	daemons, err := labels.Parse(edsv1.LabelName)
	if err != nil {
		return c, err
	}
	with.DefaultTransform = cache.TransformStripManagedFields()
	of := func(selector labels.Selector, namespaces map[string]cache.Config) (cache.Cache, client.Client, error) {
		with.ByObject = map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Label: selector, Namespaces: namespaces, Transform: daemonset.TrimPod},
			&appsv1.DaemonSet{}: {Namespaces: namespaces},
		}
		pods, err := cache.New(cfg, with)
		if err != nil {
			return nil, nil, fmt.Errorf("making a cache of pods, %w", err)
		}
		through, err := client.New(cfg, client.Options{
			HTTPClient: with.HTTPClient, Scheme: with.Scheme, Mapper: with.Mapper,
			Cache: &client.CacheOptions{Reader: pods, EnableReadYourWritesConsistency: ptr.To(true)},
		})
		return pods, through, err
	}
	c.newLegacy = func(namespace string) (cache.Cache, client.Client, error) {
		return of(nil, map[string]cache.Config{namespace: {}})
	}
	c.Pods, c.daemonPods, err = of(daemons, o.Namespaces)
	return c, err
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	if err := errors.Join(
		m.GetFieldIndexer().IndexField(ctx, &edsv1.ExtendedDaemonSetReplicaSet{}, indexName, indexedByName),
		m.GetFieldIndexer().IndexField(ctx, &edsv1.ExtendedDaemonsetSetting{}, indexName, indexedByName),
		m.GetFieldIndexer().IndexField(ctx, &edsv1.ExtendedDaemonSet{}, indexSelected, indexedBySelected),
	); err != nil {
		return fmt.Errorf("indexing ExtendedDaemonSets and what is theirs, %w", err)
	}
	if err := c.indexPods(ctx); err != nil {
		return fmt.Errorf("indexing pods, %w", err)
	}
	running, err := ctrl.NewControllerManagedBy(m).
		Named("extendeddaemonset.rollout").
		For(&edsv1.ExtendedDaemonSet{}, builder.WithPredicates(turn.RolloutChanged)).
		Watches(&edsv1.ExtendedDaemonSet{}, turn.Created(c.queued)).
		Watches(&edsv1.ExtendedDaemonSetReplicaSet{}, turn.Wake(c.queued, fleet.Coalesce, ofName)).
		Watches(&edsv1.ExtendedDaemonsetSetting{}, turn.Soon(ofName)).
		Watches(&corev1.Node{}, turn.Wake(c.queued, fleet.Coalesce, c.ofNode), builder.WithPredicates(turn.NodeChanged)).
		WatchesRawSource(source.Kind[client.Object](c.Pods, &corev1.Pod{}, turn.Soon(ofName))).
		WatchesRawSource(c.queued.Source(c.fleet)).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(1, c.options.Threads)}).
		Build(c)
	if err != nil {
		return err
	}
	c.legacy.start, c.legacy.watch = m.Add, running.Watch
	c.fleet.DaemonSets(func(ctx context.Context) ([]reconcile.Request, error) {
		return c.list(ctx, "", func(*edsv1.ExtendedDaemonSet) bool { return true })
	})
	return c.watchPodTemplates(m)
}

// indexPods makes the index of pods, which the cache of several namespaces does not give away.
func (c *Controller) indexPods(ctx context.Context) error {
	informer, err := c.Pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	of, ok := informer.(toolscache.SharedIndexInformer)
	switch {
	case err != nil:
		return err
	case !ok:
		return c.Pods.IndexField(ctx, &corev1.Pod{}, indexName, indexedByName)
	}
	c.podIndex = of.GetIndexer()
	return of.AddIndexers(toolscache.Indexers{indexName: func(o any) ([]string, error) {
		pod, _ := o.(*corev1.Pod)
		return []string{pod.GetNamespace() + "/" + pod.GetLabels()[edsv1.LabelName]}, nil
	}})
}

// ofName returns the ExtendedDaemonSets that the labels of pods and revisions name, and the references of Settings.
func ofName(_ context.Context, objects ...client.Object) (requests []reconcile.Request) {
	for _, o := range objects {
		if name := indexedByName(o)[0]; name != "" {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	return requests
}

// ofNode returns the ExtendedDaemonSets that are valid and whose template selects a Node before or after a change, or that replace a DaemonSet.
func (c *Controller) ofNode(ctx context.Context, objects ...client.Object) (requests []reconcile.Request) {
	indexed := map[string]bool{anyNode: true}
	for _, o := range objects {
		for key, value := range o.GetLabels() {
			indexed[key+"="+value] = true
		}
	}
	for label := range indexed {
		requests = append(requests, c.listed(ctx, "", func(eds *edsv1.ExtendedDaemonSet) bool {
			selector := labels.SelectorFromSet(eds.Spec.Template.Spec.NodeSelector)
			return label == anyNode || slices.ContainsFunc(objects, func(o client.Object) bool { return selector.Matches(labels.Set(o.GetLabels())) })
		}, client.MatchingFields{indexSelected: label})...)
	}
	return requests
}

// indexSelected finds the valid ExtendedDaemonSets by one label of their templates' nodeSelector, as key=value: the first by name, because a node
// that is selected has all of them. Those that each change of a node concerns have anyNode.
const indexSelected, anyNode = "selected", "any"

func indexedBySelected(o client.Object) []string {
	eds, ok := o.(*edsv1.ExtendedDaemonSet)
	if !ok || turn.IsInvalid(eds) {
		return nil // No change of a node can mend it.
	}
	selector := eds.Spec.Template.Spec.NodeSelector
	failed := edsv1.IsConditionTrue(eds.Status.Conditions, edsv1.ConditionCanaryFailed) // Its nodes run the active revision, which may select others.
	if len(selector) == 0 || failed || eds.Annotations[edsv1.AnnotationOldDaemonset] != "" {
		return []string{anyNode}
	}
	key := slices.Min(slices.Collect(maps.Keys(selector)))
	return []string{key + "=" + selector[key]}
}

// listed is list. An error is logged.
func (c *Controller) listed(
	ctx context.Context, namespace string, wanted func(*edsv1.ExtendedDaemonSet) bool, options ...client.ListOption,
) []reconcile.Request {
	requests, err := c.list(ctx, namespace, wanted, options...)
	if err != nil {
		log.FromContext(ctx).Error(err, "ExtendedDaemonSets can't be listed")
	}
	return requests
}

func (c *Controller) list(
	ctx context.Context, namespace string, wanted func(*edsv1.ExtendedDaemonSet) bool, options ...client.ListOption,
) (requests []reconcile.Request, err error) {
	var list edsv1.ExtendedDaemonSetList
	options = append(options, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	err = c.client.List(ctx, &list, options...)
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests, err
}
