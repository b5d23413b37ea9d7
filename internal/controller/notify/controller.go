// SPDX-License-Identifier: Apache-2.0

// Package notify sends notifications about rollouts to webhooks. No rollout waits for it.
//
//	watch      the Secret and the ConfigMap moult-notifications, and the rollouts in the caches of their controllers     setup.go
//	read       the webhooks, strictly                                                                                    config.go
//	decide     which notifications are due (package notification)
//	send       the first of them; each webhook is a request of its own, which the queue repeats                         send.go
//	record     it in the ConfigMap
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/notification"
)

// recordTimeout is for the record of what was sent before the operator is stopped.
const recordTimeout = 5 * time.Second

// Controller sends notifications.
type Controller struct {
	clock    clock.PassiveClock
	events   *events.Recorder
	options  Options
	http     *http.Client
	rollouts client.Reader
	// own reads the Secret and the ConfigMap from their cache.
	own client.Client
}

// Reconcile sends what is due to the webhook of this name. The request without a name is for the configuration and for tests.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secret, webhooks, err := c.configured(ctx)
	if request.Name == "" {
		c.report(ctx, secret, err)
		return ctrl.Result{}, c.test(ctx, webhooks, err)
	}
	if i := slices.IndexFunc(webhooks, func(w webhook) bool { return w.Name == request.Name }); i >= 0 {
		return c.notify(ctx, &webhooks[i], webhooks)
	}
	return ctrl.Result{}, nil
}

// key is that of the Secret and of the ConfigMap.
func (c *Controller) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.options.Namespace, Name: notification.Name}
}

// configured reads the Secret: nil if there is none. The error is that of its content.
func (c *Controller) configured(ctx context.Context) (*corev1.Secret, []webhook, error) {
	var secret corev1.Secret
	switch err := c.own.Get(ctx, c.key(), &secret); {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("there is no Secret %s with the webhooks", c.key())
	case err != nil:
		return nil, nil, fmt.Errorf("reading Secret %s, %w", c.key(), err)
	}
	webhooks, err := readConfig(secret.Data)
	return &secret, webhooks, err
}

// report says what is wrong with the configuration.
func (c *Controller) report(ctx context.Context, secret *corev1.Secret, invalid error) {
	isInvalid := secret != nil && invalid != nil
	metrics.SetNotificationsInvalid(isInvalid)
	if isInvalid {
		log.FromContext(ctx).Error(invalid, "no notification is sent", "secret", c.key())
		c.events.Emit(events.NotificationsInvalid(secret, invalid.Error()))
	}
}

// notify sends the first notification that is due to a webhook, and records it. The queue repeats a request that failed after a wait, which one that
// succeeded ends. A new webhook is only recorded.
func (c *Controller) notify(ctx context.Context, w *webhook, all []webhook) (again ctrl.Result, err error) {
	stored, err := c.stored(ctx)
	if err != nil {
		return again, err
	}
	rollouts, err := c.list(ctx)
	if err != nil {
		return again, err
	}
	text, known := stored.Data[notification.KeyOfWebhook+w.Name]
	due, kept := notification.Due(rollouts, strings.Fields(text), !known, w.chooses)
	if known && len(due) > 0 {
		if err := c.deliver(ctx, w, &due[0]); err != nil {
			return again, err
		}
		kept = append(kept, due[0].ID)
	}
	if !known || len(due) > 1 {
		again.RequeueAfter = time.Millisecond
	}
	slices.Sort(kept)
	return again, c.write(ctx, all, notification.KeyOfWebhook+w.Name, strings.Join(kept, " "))
}

// deliver sends a notification. One that the webhook refuses is dropped.
func (c *Controller) deliver(ctx context.Context, w *webhook, n *notification.Notification) error {
	outcome, err := c.send(ctx, w, n)
	metrics.CountNotification(w.Name, string(n.Event), outcome)
	if err != nil {
		err = fmt.Errorf("sending %s of %s to webhook %s, %w", n.Event, n.Rollout.Subject(), w.Name, err)
	}
	if outcome == outcomeRefused {
		log.FromContext(ctx).Error(err, "a notification is dropped")
		return nil
	}
	return err
}

// stored reads the ConfigMap. It is empty if there is none.
func (c *Controller) stored(ctx context.Context) (*corev1.ConfigMap, error) {
	var stored corev1.ConfigMap
	if err := c.own.Get(ctx, c.key(), &stored); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s, %w", c.key(), err)
	}
	return &stored, nil
}

// write writes a key of the ConfigMap if it changes, and removes those of webhooks that are no longer configured. What was sent is written also while
// the operator stops.
func (c *Controller) write(ctx context.Context, configured []webhook, key, value string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: notification.Name}}
	isGone := func(k, _ string) bool {
		name, isOf := strings.CutPrefix(k, notification.KeyOfWebhook)
		return isOf && len(configured) > 0 && !slices.ContainsFunc(configured, func(w webhook) bool { return w.Name == name })
	}
	change := func() error { //nolint:unparam // CreateOrPatch wants it.
		maps.DeleteFunc(stored.Data, isGone)
		stored.Data = labels.Merge(stored.Data, labels.Set{key: value})
		return nil
	}
	// Two webhooks may create it at the same time.
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsAlreadyExists, func() error {
		_, err := controllerutil.CreateOrPatch(ctx, c.own, stored, change)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s, %w", c.key(), err)
	}
	return nil
}

// test sends a test to all webhooks at once, if the ConfigMap has a new request, and writes what was found.
func (c *Controller) test(ctx context.Context, webhooks []webhook, invalid error) error {
	stored, err := c.stored(ctx)
	if err != nil {
		return err
	}
	var before notification.TestResult
	_ = json.Unmarshal([]byte(stored.Data[notification.KeyTest]), &before) // What can't be read is written again.
	result := notification.TestResult{Of: stored.Annotations[v1alpha1.AnnotationTestNotifications]}
	if result.Of == "" || result.Of == before.Of {
		return nil
	}
	if invalid != nil {
		result.Error = invalid.Error()
	}
	n := &notification.Notification{ID: "test-" + result.Of, Event: notification.Test, Time: c.clock.Now().UTC()}
	result.Webhooks = make([]notification.WebhookResult, len(webhooks))
	workqueue.ParallelizeUntil(ctx, maxWebhooks, len(webhooks), func(i int) {
		result.Webhooks[i] = notification.WebhookResult{Name: webhooks[i].Name, Result: notification.OK}
		if _, err := c.send(ctx, &webhooks[i], n); err != nil {
			result.Webhooks[i].Result = err.Error()
		}
	})
	text, _ := json.Marshal(result) // Strings always marshal.
	return c.write(ctx, webhooks, notification.KeyTest, string(text))
}
