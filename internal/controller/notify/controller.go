// SPDX-License-Identifier: Apache-2.0

// Package notify sends notifications about rollouts to webhooks. No rollout waits for it.
//
//	watch      the Secret and the ConfigMap moult-notifications, and the rollouts in the caches of their controllers     setup.go
//	read       the webhooks, strictly                                                                                    config.go
//	decide     which notifications are due (package notification)
//	send       them one after the other, for each webhook on its own                                                     send.go
//	remember   what was sent, in one write to the ConfigMap
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/notification"
)

const (
	// batch is how many notifications one reconcile sends. A reconcile may take 2 minutes.
	batch = 10
	// The wait after failures doubles from the first to the last.
	firstWait, lastWait = time.Second, 10 * time.Minute
	// recordTimeout is for the record of what was sent before the operator is stopped.
	recordTimeout = 5 * time.Second
)

// Controller sends notifications.
type Controller struct {
	clock    clock.PassiveClock
	events   *events.Recorder
	options  Options
	sender   *sender
	rollouts client.Reader
	// own reads the Secret and the ConfigMap from their cache.
	own client.Client

	mu sync.Mutex
	// failures are those of webhooks that failed last, by name. A restart forgets them.
	failures map[string]*failing
	// problem is the error of the configuration that was reported.
	problem string
}

// failing is a webhook whose last request failed.
type failing struct {
	// of is how the webhook was configured. Another configuration does not wait.
	of   string
	wait time.Duration
	next time.Time
}

// Reconcile checks the configuration, or sends what is due to one webhook.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secret, configured, invalid := c.configured(ctx)
	if request == configuration {
		c.report(ctx, secret, invalid)
		return ctrl.Result{}, c.test(ctx, configured, invalid)
	}
	if configured == nil {
		return ctrl.Result{}, nil
	}
	for i := range configured.Webhooks {
		if w := &configured.Webhooks[i]; w.Name == request.Name {
			return c.notify(ctx, w, configured)
		}
	}
	return ctrl.Result{}, nil
}

// key is that of the Secret and of the ConfigMap.
func (c *Controller) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.options.Namespace, Name: notification.Name}
}

// configured reads the Secret: nil if there is none. The error is that of its content.
func (c *Controller) configured(ctx context.Context) (*corev1.Secret, *config, error) {
	var secret corev1.Secret
	switch err := c.own.Get(ctx, c.key(), &secret); {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("there is no Secret %s with the webhooks", c.key())
	case err != nil:
		return nil, nil, fmt.Errorf("reading Secret %s, %w", c.key(), err)
	}
	read, err := readConfig(secret.Data)
	return &secret, read, err
}

// report says what is wrong with the configuration, once.
func (c *Controller) report(ctx context.Context, secret *corev1.Secret, invalid error) {
	problem := ""
	if secret != nil && invalid != nil {
		problem = invalid.Error()
	}
	metrics.SetNotificationsInvalid(problem != "")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == problem {
		return
	}
	if c.problem = problem; problem != "" {
		log.FromContext(ctx).Error(invalid, "no notification is sent", "secret", c.key())
		c.events.Emit(events.NotificationsInvalid(secret, problem))
	}
}

// notify sends what is due to a webhook, and remembers it.
func (c *Controller) notify(ctx context.Context, w *webhook, configured *config) (ctrl.Result, error) {
	if wait := c.waits(w); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	var stored corev1.ConfigMap
	if err := c.own.Get(ctx, c.key(), &stored); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading ConfigMap %s, %w", c.key(), err)
	}
	var memory notification.Memory
	text := stored.Data[notification.KeyOfWebhook+w.Name]
	if err := json.Unmarshal([]byte(text), &memory); text != "" && err != nil {
		return ctrl.Result{}, fmt.Errorf("reading what was sent to webhook %s (remove its key of ConfigMap %s), %w", w.Name, c.key(), err)
	}
	if memory.Since.IsZero() {
		memory.Since = metav1.Time{Time: c.clock.Now()}
		if err := c.remember(ctx, &stored, w, &memory, configured); err != nil {
			return ctrl.Result{}, err
		}
	}
	rollouts, err := c.list(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	all := notification.Of(rollouts)
	done, more, wait := c.sendAll(ctx, w, memory.Due(all))
	if before := len(memory.Sent); len(done) > 0 || before > 0 {
		if memory.Add(all, done...); len(done) > 0 || len(memory.Sent) < before {
			err = c.remember(ctx, &stored, w, &memory, configured)
		}
	}
	if more && wait == 0 {
		wait = time.Millisecond
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// sendAll sends a batch. It returns what need not be sent again, whether more is due, and how long to wait after a failure.
func (c *Controller) sendAll(ctx context.Context, w *webhook, due []notification.Notification) (done []notification.Notification, more bool, wait time.Duration) {
	requests := 0
	for i := range due {
		n := &due[i]
		if w.chooses(n) {
			if requests++; requests > batch || ctx.Err() != nil {
				return done, true, 0
			}
			refused, err := c.sender.send(ctx, w, n)
			outcome := "sent"
			switch {
			case refused:
				outcome = "refused"
			case err != nil:
				outcome = "failed"
			}
			metrics.CountNotification(w.Name, string(n.Event), outcome)
			wait = c.failed(w, err != nil && !refused)
			if err != nil {
				log.FromContext(ctx).Error(err, "a notification is not taken", "webhook", w.Name, "event", n.Event, "rollout", n.Rollout.Subject(),
					"outcome", outcome, "wait", wait)
			}
			if wait > 0 {
				return done, true, wait
			}
		}
		done = append(done, *n)
	}
	return done, false, 0
}

// waits returns how long a webhook that failed gets no request.
func (c *Controller) waits(w *webhook) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.failures[w.Name]; f != nil && f.of == w.identity() {
		return f.next.Sub(c.clock.Now())
	}
	return 0
}

// failed notes whether a request failed, and returns how long to wait then.
func (c *Controller) failed(w *webhook, failed bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !failed {
		delete(c.failures, w.Name)
		return 0
	}
	f := c.failures[w.Name]
	if f == nil || f.of != w.identity() {
		f = &failing{of: w.identity(), wait: firstWait / 2}
		c.failures[w.Name] = f
	}
	f.wait = min(2*f.wait, lastWait)
	f.next = c.clock.Now().Add(f.wait)
	return f.wait
}

// remember writes the memory of a webhook, and removes those of webhooks that are no longer configured.
func (c *Controller) remember(ctx context.Context, stored *corev1.ConfigMap, w *webhook, memory *notification.Memory, configured *config) error {
	text, err := json.Marshal(memory)
	if err != nil {
		return fmt.Errorf("encoding what was sent, %w", err)
	}
	data := map[string]any{}
	for key := range stored.Data {
		data[key] = nil
	}
	delete(data, notification.KeyTest)
	for i := range configured.Webhooks {
		delete(data, notification.KeyOfWebhook+configured.Webhooks[i].Name)
	}
	data[notification.KeyOfWebhook+w.Name] = string(text)
	return c.write(ctx, data)
}

// write patches keys of the ConfigMap, and creates it if it is not there. What was sent is written also while the operator stops.
func (c *Controller) write(ctx context.Context, data map[string]any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("encoding a patch, %w", err)
	}
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: notification.Name}}
	}
	err = c.own.Patch(ctx, object(), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		if err = c.own.Create(ctx, object()); err == nil || apierrors.IsAlreadyExists(err) {
			err = c.own.Patch(ctx, object(), client.RawPatch(types.MergePatchType, patch))
		}
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s, %w", c.key(), err)
	}
	return nil
}

// test sends a test to all webhooks at once, if the ConfigMap has a new request, and writes what was found.
func (c *Controller) test(ctx context.Context, configured *config, invalid error) error {
	var stored corev1.ConfigMap
	if err := c.own.Get(ctx, c.key(), &stored); err != nil {
		return client.IgnoreNotFound(err)
	}
	result := notification.TestResult{}
	_ = json.Unmarshal([]byte(stored.Data[notification.KeyTest]), &result) // What can't be read is written again.
	of := stored.Annotations[v1alpha1.AnnotationTestNotifications]
	if of == "" || of == result.Of {
		return nil
	}
	result = notification.TestResult{Of: of}
	if invalid != nil {
		result.Error = invalid.Error()
	} else {
		result.Webhooks = c.testAll(ctx, configured, &notification.Notification{ID: "test-" + of, Event: notification.Test, Time: c.clock.Now().UTC()})
	}
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encoding a result, %w", err)
	}
	return c.write(ctx, map[string]any{notification.KeyTest: string(text)})
}

func (c *Controller) testAll(ctx context.Context, configured *config, n *notification.Notification) []notification.WebhookResult {
	results := make([]notification.WebhookResult, len(configured.Webhooks))
	var all sync.WaitGroup
	for i := range configured.Webhooks {
		all.Go(func() {
			w := &configured.Webhooks[i]
			results[i] = notification.WebhookResult{Name: w.Name, Result: notification.OK}
			if _, err := c.sender.send(ctx, w, n); err != nil {
				results[i].Result = err.Error()
			}
		})
	}
	all.Wait()
	return results
}
