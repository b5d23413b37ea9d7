// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
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

// The wait after failures doubles from the first to the last.
const firstWait, lastWait = time.Second, 10 * time.Minute

// Options of the controller.
type Options struct {
	// Namespace is the operator's.
	Namespace string
	// Kinds are those that are carried out.
	Kinds []string
	// Cluster is a UUID that identifies the cluster.
	Cluster   string
	Transport http.RoundTripper
}

// NewController returns a controller of notifications; SetupWithManager makes it run.
func NewController(clk clock.PassiveClock, recorder *events.Recorder, o Options) *Controller {
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Controller{clock: clk, events: recorder, options: o, http: &http.Client{Transport: o.Transport, Timeout: timeout, CheckRedirect: noRedirect}}
}

// SetupWithManager makes the manager run this controller, and a cache of one Secret and one ConfigMap. Without the right to read them nothing is
// sent.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	only := fields.OneTermEqualSelector("metadata.name", notification.Name)
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		err := m.GetAPIReader().List(ctx, list, client.InNamespace(c.options.Namespace), client.MatchingFieldsSelector{Selector: only})
		if apierrors.IsForbidden(err) {
			log.FromContext(ctx).Info("there are no notifications, because the operator may not read their Secret and ConfigMap", "name", notification.Name)
			return nil
		}
	}
	own, err := cluster.New(m.GetConfig(), func(o *cluster.Options) {
		o.HTTPClient, o.Scheme = m.GetHTTPClient(), m.GetScheme()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return m.GetRESTMapper(), nil }
		o.Cache.DefaultNamespaces = map[string]cache.Config{c.options.Namespace: {FieldSelector: only, Transform: cache.TransformStripManagedFields()}}
		o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}
	})
	if err != nil {
		return fmt.Errorf("making a cache, %w", err)
	}
	c.own, c.rollouts = own.GetClient(), m.GetClient()
	b := ctrl.NewControllerManagedBy(m).
		Named("notify.webhook").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: maxWebhooks + 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstWait, lastWait),
		}).
		WatchesRawSource(source.Kind[client.Object](own.GetCache(), &corev1.Secret{}, turn.Soon(c.all))).
		WatchesRawSource(source.Kind[client.Object](own.GetCache(), &corev1.ConfigMap{}, turn.Soon(c.all), predicate.AnnotationChangedPredicate{}))
	for _, kind := range c.options.Kinds {
		b = b.WatchesRawSource(source.Kind[client.Object](m.GetCache(), object(kind), turn.Soon(c.ofRollout)))
	}
	if err := m.Add(own); err != nil {
		return err
	}
	return b.Complete(c)
}

// all returns the request for the configuration, and one for each webhook.
func (c *Controller) all(ctx context.Context, _ ...client.Object) []reconcile.Request {
	requests := []reconcile.Request{{}}
	_, webhooks, _ := c.configured(ctx) // An error is reported for the first request.
	for i := range webhooks {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: webhooks[i].Name}})
	}
	return requests
}

// ofRollout returns the requests for a change of a rollout: none if it has the notifications that it had.
func (c *Controller) ofRollout(ctx context.Context, objects ...client.Object) []reconcile.Request {
	if len(objects) == 2 && equality.Semantic.DeepEqual(rolloutOf(objects[0]).History, rolloutOf(objects[1]).History) {
		return nil // The configuration need not be read.
	}
	requests := c.all(ctx)[1:]
	if len(requests) == 0 || len(objects) == 2 && slices.Equal(idsOf(objects[0]), idsOf(objects[1])) {
		return nil
	}
	return requests
}

func idsOf(o client.Object) (ids []string) {
	_, ids = notification.Due([]notification.Rollout{rolloutOf(o)}, nil, false, func(*notification.Notification) bool { return false })
	return ids
}

// gvks are the kinds that caches hold undecoded.
var gvks = map[string]schema.GroupVersionKind{"Plan": upgradev1.GroupVersion.WithKind("Plan"), turn.Kind: turn.GroupVersionKind}

// object returns an empty rollout, as the cache holds its kind.
func object(kind string) client.Object {
	if gvk, undecoded := gvks[kind]; undecoded {
		return turn.Undecoded(gvk)
	}
	return &edsv1.ExtendedDaemonSet{}
}

// rolloutOf returns what notifications need of a rollout.
func rolloutOf(o client.Object) notification.Rollout {
	r := notification.Rollout{Kind: "ExtendedDaemonSet", Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	switch o := o.(type) {
	case *unstructured.Unstructured:
		var status struct {
			History []v1alpha1.Run
		}
		_ = turn.ReadField(o, "status", &status) // What can't be read is no run.
		r.Kind, r.History = o.GetKind(), status.History
	case *edsv1.ExtendedDaemonSet:
		r.History = o.Status.History
	}
	return r
}

// list returns all rollouts.
func (c *Controller) list(ctx context.Context) (all []notification.Rollout, err error) {
	for _, kind := range c.options.Kinds {
		var list client.ObjectList = &edsv1.ExtendedDaemonSetList{}
		if gvk, undecoded := gvks[kind]; undecoded {
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(gvk)
			list = objects
		}
		err := c.rollouts.List(ctx, list, client.UnsafeDisableDeepCopy)
		err = errors.Join(err, meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, rolloutOf(o.(client.Object)))
			return nil
		}))
		if err != nil {
			return nil, fmt.Errorf("listing rollouts of kind %s, %w", kind, err)
		}
	}
	return all, nil
}
