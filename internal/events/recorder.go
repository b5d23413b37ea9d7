// SPDX-License-Identifier: Apache-2.0

// Package events makes Moult's Events: one constructor each, and a recorder that drops none of them.
package events

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// Event says what happened to an object.
type Event struct {
	Object  runtime.Object
	Type    string
	Reason  string
	Message string
}

// Recorder writes Events.
type Recorder struct {
	recorder    record.EventRecorder
	broadcaster record.EventBroadcaster
}

// NewRecorder writes Events with this component and host as their source. The library's spam filter and its
// aggregation of like Events are off: a rollout has one Event for each node, all of one kind on one object, and an
// operator wants each of them.
func NewRecorder(sink typedcorev1.EventInterface, scheme *runtime.Scheme, component, host string) *Recorder {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: math.MaxInt32,
		QPS:       math.MaxInt32,
		MaxEvents: math.MaxInt32,
	}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: sink})
	return &Recorder{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component, Host: host}),
	}
}

// Emit writes the Events, in the background and in order.
func (r *Recorder) Emit(all ...Event) {
	for _, e := range all {
		r.recorder.Event(e.Object, e.Type, e.Reason, e.Message)
	}
}

// Shutdown lets what was emitted be written, and stops.
func (r *Recorder) Shutdown() { r.broadcaster.Shutdown() }
