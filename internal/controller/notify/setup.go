// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/notification"
	"moult.dev/moult/internal/turn"
)

// Options of the controller.
type Options struct {
	// Namespace is the operator's, and PlanNamespace that of the Plans that are carried out.
	Namespace, PlanNamespace string
	// Kinds are those that are carried out.
	Kinds []string
	// Cluster is a UUID that identifies the cluster.
	Cluster   string
	Transport http.RoundTripper
}

// NewController returns a controller of notifications; SetupWithManager makes it run.
func NewController(clk clock.PassiveClock, recorder *events.Recorder, o Options) *Controller {
	return &Controller{clock: clk, events: recorder, options: o, sender: newSender(o.Transport, o.Cluster), failures: map[string]*failing{}}
}

// SetupWithManager makes the manager run this controller, and a cache of one Secret and one ConfigMap. Without the right to read them nothing is
// sent.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	in, named := client.InNamespace(c.options.Namespace), client.MatchingFields{"metadata.name": notification.Name}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		if err := m.GetAPIReader().List(ctx, list, in, named); apierrors.IsForbidden(err) {
			log.FromContext(ctx).Info("there are no notifications, because the operator may not read their Secret and ConfigMap", "name", notification.Name)
			return nil
		}
	}
	only := cache.ByObject{
		Namespaces: map[string]cache.Config{c.options.Namespace: {}}, Field: fields.OneTermEqualSelector("metadata.name", notification.Name),
		Transform: cache.TransformStripManagedFields(),
	}
	own, err := cache.New(m.GetConfig(), cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: only, &corev1.ConfigMap{}: only},
	})
	if err != nil {
		return fmt.Errorf("making a cache, %w", err)
	}
	if c.own, err = client.New(m.GetConfig(), client.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: own, EnableReadYourWritesConsistency: ptr.To(true)},
	}); err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	c.rollouts = m.GetClient()
	b := ctrl.NewControllerManagedBy(m).
		Named("notify.webhook").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxWebhooks + 1}).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Secret{}, turn.Soon(c.configAndAll))).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.ConfigMap{}, turn.Soon(c.configAndAll), predicate.AnnotationChangedPredicate{}))
	for _, kind := range c.options.Kinds {
		b = b.WatchesRawSource(source.Kind[client.Object](m.GetCache(), object(kind), turn.Soon(c.ofRollout)))
	}
	if err := m.Add(own); err != nil {
		return err
	}
	return b.Complete(c)
}

// configuration is the request to check the configuration. Others have the name of a webhook.
var configuration = reconcile.Request{}

// configAndAll returns the requests for the configuration and all webhooks.
func (c *Controller) configAndAll(ctx context.Context, _ ...client.Object) []reconcile.Request {
	return append(c.all(ctx), configuration)
}

// all returns a request for each webhook.
func (c *Controller) all(ctx context.Context) (requests []reconcile.Request) {
	if _, webhooks, _ := c.configured(ctx); webhooks != nil {
		for i := range webhooks.Webhooks {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: webhooks.Webhooks[i].Name}})
		}
	}
	return requests
}

// ofRollout returns the requests for a change of a rollout: none if it has the notifications that it had.
func (c *Controller) ofRollout(ctx context.Context, objects ...client.Object) []reconcile.Request {
	requests := c.all(ctx)
	if len(requests) == 0 || len(objects) == 2 && slices.Equal(idsOf(objects[0]), idsOf(objects[1])) {
		return nil
	}
	return requests
}

func idsOf(o client.Object) (ids []string) {
	for _, n := range notification.Of([]notification.Rollout{rolloutOf(o)}) {
		ids = append(ids, n.ID)
	}
	return ids
}

// gvks are the kinds that caches hold undecoded.
var gvks = map[string]schema.GroupVersionKind{"Plan": upgradev1.GroupVersion.WithKind("Plan"), turn.Kind: turn.GroupVersionKind}

// object returns an empty rollout, as the cache holds its kind.
func object(kind string) client.Object {
	gvk, undecoded := gvks[kind]
	if !undecoded {
		return &edsv1.ExtendedDaemonSet{}
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

// rolloutOf returns what notifications need of a rollout.
func rolloutOf(o client.Object) notification.Rollout {
	r := notification.Rollout{Kind: "ExtendedDaemonSet", Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	switch o := o.(type) {
	case *unstructured.Unstructured:
		var status struct {
			History []v1alpha1.Run `json:"history"`
		}
		turn.DecodeStatus(o, &status)
		r.Kind, r.History = o.GetKind(), status.History
	case *edsv1.ExtendedDaemonSet:
		r.History = o.Status.History
	}
	return r
}

// list returns all rollouts.
func (c *Controller) list(ctx context.Context) (all []notification.Rollout, err error) {
	for _, kind := range c.options.Kinds {
		gvk, undecoded := gvks[kind]
		if undecoded {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			namespace := ""
			if kind == "Plan" {
				namespace = c.options.PlanNamespace
			}
			err = c.rollouts.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
			for i := range list.Items {
				all = append(all, rolloutOf(&list.Items[i]))
			}
		} else {
			var list edsv1.ExtendedDaemonSetList
			err = c.rollouts.List(ctx, &list, client.UnsafeDisableDeepCopy)
			for i := range list.Items {
				all = append(all, rolloutOf(&list.Items[i]))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("listing rollouts of kind %s, %w", kind, err)
		}
	}
	return all, nil
}
