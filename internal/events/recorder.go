// SPDX-License-Identifier: Apache-2.0

// Package events makes Moult's Events: one constructor for each, and a recorder that does not filter them.
package events

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Event is about an object.
type Event struct {
	Object  runtime.Object
	Type    string
	Reason  string
	Message string
}

// The types of Events.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// fixed returns the constructor of an Event whose message never changes.
func fixed[O runtime.Object](kind, reason, message string) func(O) Event {
	return func(object O) Event { return Event{object, kind, reason, message} }
}

// saying returns the constructor of an Event whose message contains one text.
func saying[O runtime.Object](kind, reason, format string) func(O, string) Event {
	return func(object O, text string) Event { return Event{object, kind, reason, fmt.Sprintf(format, text)} }
}

// maxNamed is how many nodes an Event names.
const maxNamed = 10

// computed returns the constructor of an Event whose message is made from the object.
func computed[O runtime.Object](kind, reason string, message func(O) string) func(O) Event {
	return func(object O) Event { return Event{object, kind, reason, message(object)} }
}

// about returns the constructor of an Event whose message is made from the object and another value.
func about[O runtime.Object, T any](kind, reason string, message func(O, T) string) func(O, T) Event {
	return func(object O, other T) Event { return Event{object, kind, reason, message(object, other)} }
}

// Naming returns the Event about an object, with the names of nodes at its end.
func (e Event) Naming(object runtime.Object, nodes []string) Event {
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	return Event{object, e.Type, e.Reason, e.Message + some(nodes)}
}

// some returns the first nodes, and how many more there are.
func some(nodes []string) string {
	if len(nodes) <= maxNamed {
		return strings.Join(nodes, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:maxNamed], ","), len(nodes)-maxNamed)
}

// Recorder writes Events in the background, one after the other. It drops only Events that can't be written. A rollout has one
// Event for each node, all of one kind on one object, and an operator needs all of them. The library's recorder would filter
// them as spam, or drop them when its queue is full. Only the library's memory of repeated Events is used here.
type Recorder struct {
	clock      clock.Clock
	events     typedcorev1.EventInterface
	scheme     *runtime.Scheme
	source     corev1.EventSource
	correlator *record.EventCorrelator

	// queue holds each Event once, because each is another object.
	queue workqueue.TypedInterface[*corev1.Event]
	done  chan struct{}

	mu   sync.Mutex
	last int64 // the number in the last Event's name
}

// An Event that can't be written is retried for 100 s, which is longer than an API server takes to restart.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 10}

// NewRecorder starts a recorder with this component and host as the source of its Events. It runs until Shutdown, also after ctx ends.
func NewRecorder(ctx context.Context, clk clock.Clock, events typedcorev1.EventInterface, scheme *runtime.Scheme, component, host string) *Recorder {
	r := &Recorder{
		clock: clk, events: events, scheme: scheme,
		source: corev1.EventSource{Component: component, Host: host},
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: math.MaxInt32, QPS: math.MaxInt32, MaxEvents: math.MaxInt32,
		}),
		queue: workqueue.NewTyped[*corev1.Event](), done: make(chan struct{}),
	}
	go r.run(context.WithoutCancel(ctx))
	return r
}

// Emit queues the Events, which are written in order.
func (r *Recorder) Emit(all ...Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range all {
		object, err := reference.GetReference(r.scheme, e.Object)
		if err != nil {
			log.Log.Error(err, "an event has no object", "reason", e.Reason, "message", e.Message)
			continue
		}
		now := metav1.Time{Time: r.clock.Now()}
		r.last = max(r.last+1, now.UnixNano())
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", object.Name, r.last), Namespace: cmp.Or(object.Namespace, metav1.NamespaceDefault)},
			InvolvedObject: *object,
			Source:         r.source, ReportingController: r.source.Component,
			Type: e.Type, Reason: e.Reason, Message: e.Message,
			FirstTimestamp: now, LastTimestamp: now, Count: 1,
		}
		if on, ok := e.Object.(onNodeOf); ok {
			event.Related, _ = reference.GetReference(r.scheme, on.rollout)
		}
		r.queue.Add(event)
	}
}

// Shutdown returns when all emitted Events are written, or when ctx ends.
func (r *Recorder) Shutdown(ctx context.Context) {
	r.queue.ShutDown()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

func (r *Recorder) run(ctx context.Context) {
	defer close(r.done)
	for e, closed := r.queue.Get(); !closed; e, closed = r.queue.Get() {
		r.write(ctx, e)
		r.queue.Done(e)
	}
}

func (r *Recorder) write(ctx context.Context, e *corev1.Event) {
	var written *corev1.Event
	var last error
	result := &record.EventCorrelateResult{Event: e}
	if e.Related == nil { // The Event of a turn about its Node is not repeated, and the correlator would remember each for long.
		result, last = r.correlator.EventCorrelate(e)
	}
	if last == nil {
		_ = wait.ExponentialBackoffWithContext(ctx, retry, func(ctx context.Context) (bool, error) {
			written, last = r.send(ctx, result)
			return last == nil || isFinal(last), nil
		})
	}
	if last != nil {
		log.Log.Error(last, "an event can't be written", "reason", e.Reason, "message", e.Message)
		return
	}
	if e.Related == nil {
		r.correlator.UpdateState(written)
	}
}

// isFinal reports whether the API server would refuse the same request again.
func isFinal(err error) bool {
	answered := apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	passing := apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
	return answered && !passing
}

// send raises the count of a stored Event that repeats, and creates others.
func (r *Recorder) send(ctx context.Context, result *record.EventCorrelateResult) (*corev1.Event, error) {
	if result.Event.Count > 1 {
		written, err := r.events.PatchWithEventNamespaceWithContext(ctx, result.Event, result.Patch)
		if !apierrors.IsNotFound(err) {
			return written, err
		}
		result.Event.ResourceVersion = "" // The stored Event has expired.
	}
	written, err := r.events.CreateWithEventNamespaceWithContext(ctx, result.Event)
	if apierrors.IsAlreadyExists(err) {
		return result.Event, nil // An earlier attempt succeeded.
	}
	return written, err
}

// onNode returns the constructor of an Event about the node that the controller runs on.
func onNode(kind, reason, what string) func(node, name string) Event {
	return func(node, name string) Event { return Event{newNode(node), kind, reason, name + what} }
}

// newNode returns a Node for a reference. As in the kubelet's own Events, the uid is the node's name, because kubectl describe finds it by that.
func newNode(name string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
	}
}

var (
	// ControllerStarting: the controller is about to start on this node.
	ControllerStarting = onNode(normal, "Starting", " is starting")
	// ControllerStarted: the controller watches.
	ControllerStarted = onNode(normal, "Started", " has started")
)

// ControllerStartFailed: the controller could not start.
func ControllerStartFailed(node, name string, err error) Event {
	return onNode(warning, "StartFailed", " could not start: "+err.Error())(node, name)
}
