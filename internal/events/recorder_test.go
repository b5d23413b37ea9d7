// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// sink is an API server that keeps Events, and a recorder that writes there.
type sink struct {
	*Recorder
	// stored are the Events as they are kept, in the order in which they came.
	stored []*corev1.Event
	// expired is true when the server forgets Events at once.
	expired bool
}

// newSink makes one; failing says what a write gets, by its number.
func newSink(t *testing.T, failing func(write int) error) *sink {
	t.Helper()
	usual := retry
	retry = wait.Backoff{Duration: 1, Factor: 1, Steps: usual.Steps}
	t.Cleanup(func() { retry = usual })

	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), upgradev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	c := fake.NewClientset()
	writes := 0
	c.PrependReactor("*", "events", func(a clientgotesting.Action) (bool, runtime.Object, error) {
		writes++
		if failing != nil {
			if err := failing(writes); err != nil {
				return true, nil, err
			}
		}
		e, err := s.write(a)
		return true, e, err
	})
	s.Recorder = NewRecorder(t.Context(), clocktesting.NewFakeClock(noon), c.CoreV1().Events(""), scheme, "suc", "n1")
	return s
}

func (s *sink) write(a clientgotesting.Action) (*corev1.Event, error) {
	switch a := a.(type) {
	case clientgotesting.CreateAction:
		e := a.GetObject().(*corev1.Event).DeepCopy()
		s.stored = append(s.stored, e)
		return e, nil
	case clientgotesting.PatchAction:
		i := slices.IndexFunc(s.stored, func(e *corev1.Event) bool { return e.Name == a.GetName() && e.Namespace == a.GetNamespace() })
		if i < 0 || s.expired {
			return nil, apierrors.NewNotFound(corev1.Resource("events"), a.GetName())
		}
		return s.stored[i], json.Unmarshal(a.GetPatch(), s.stored[i])
	default:
		return nil, fmt.Errorf("unexpected %T", a)
	}
}

// messages waits until all is written, and returns what the Events say.
func (s *sink) messages(t *testing.T) []string {
	t.Helper()
	s.Shutdown(t.Context())
	all := make([]string, 0, len(s.stored))
	for _, e := range s.stored {
		all = append(all, e.Message)
	}
	return all
}

func TestRecorderLosesNone(t *testing.T) {
	const nodes = 3000
	s := newSink(t, nil)
	var want []string
	for i := range nodes {
		e := NodeUpdated(fmt.Sprintf("node-%04d", i), newPlan(), "Plan/system-upgrade/k3s", fmt.Sprintf("v%d", i), time.Minute)
		want = append(want, e.Message)
		s.Emit(e)
	}
	if diff := cmp.Diff(want, s.messages(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	names := map[string]bool{}
	for _, e := range s.stored {
		names[e.Name] = true
	}
	if len(names) != nodes {
		t.Errorf("%d names for %d Events", len(names), nodes)
	}
}

func TestRecorderWrites(t *testing.T) {
	s := newSink(t, nil)
	s.Emit(PlanJobFailed(newPlan(), "it broke"), ControllerStarted("n1", "suc"), NodeUpdated("n2", newPlan(), "Plan/system-upgrade/k3s", "v2", 90*time.Second))
	at := metav1.NewTime(noon)
	number := fmt.Sprintf("%x", noon.UnixNano())
	want := []*corev1.Event{
		{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "system-upgrade", Name: "k3s." + number},
			InvolvedObject: corev1.ObjectReference{APIVersion: "upgrade.cattle.io/v1", Kind: "Plan", Namespace: "system-upgrade", Name: "k3s", UID: "u1"},
			Type:           "Warning", Reason: "JobFailed", Message: "it broke",
		},
		{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "n1." + fmt.Sprintf("%x", noon.UnixNano()+1)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1"},
			Type:           "Normal", Reason: "Started", Message: "suc has started",
		},
		{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "n2." + fmt.Sprintf("%x", noon.UnixNano()+2)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n2", UID: "n2"},
			Related:        &corev1.ObjectReference{APIVersion: "upgrade.cattle.io/v1", Kind: "Plan", Namespace: "system-upgrade", Name: "k3s", UID: "u1"},
			Type:           "Normal", Reason: "NodeUpdated", Message: "Updated to v2 by Plan/system-upgrade/k3s in 1m30s",
		},
	}
	for _, w := range want {
		w.Source, w.ReportingController = corev1.EventSource{Component: "suc", Host: "n1"}, "suc"
		w.FirstTimestamp, w.LastTimestamp, w.Count = at, at, 1
	}
	s.Shutdown(t.Context())
	if diff := cmp.Diff(want, s.stored); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecorderCountsWhatRepeats(t *testing.T) {
	s := newSink(t, nil)
	for range 3 {
		s.Emit(PlanJobFailed(newPlan(), "it broke"))
	}
	s.Emit(PlanJobFailed(newPlan(), "it broke otherwise"))
	if diff := cmp.Diff([]string{"it broke", "it broke otherwise"}, s.messages(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := s.stored[0].Count; got != 3 {
		t.Errorf("counted %d times", got)
	}
}

func TestRecorderTriesAgain(t *testing.T) {
	events := schema.GroupResource{Resource: "events"}
	for name, tc := range map[string]struct {
		err    error
		writes int // how many get it
		want   []string
	}{
		"the network":                 {errors.New("connection refused"), 5, []string{"first", "second"}},
		"a server that restarts":      {apierrors.NewServiceUnavailable("wait"), 5, []string{"first", "second"}},
		"a server that has too much":  {apierrors.NewTooManyRequests("wait", 1), 5, []string{"first", "second"}},
		"a server that breaks":        {apierrors.NewInternalError(errors.New("oops")), 5, []string{"first", "second"}},
		"a server that takes long":    {apierrors.NewTimeoutError("wait", 1), 5, []string{"first", "second"}},
		"a refusal stays one":         {apierrors.NewForbidden(events, "x", errors.New("no")), 1, []string{"second"}},
		"an Event that is not valid":  {apierrors.NewBadRequest("no"), 1, []string{"second"}},
		"it does not try for ever":    {errors.New("connection refused"), 10, []string{"second"}},
		"one that is there was tried": {apierrors.NewAlreadyExists(events, "x"), 1, []string{"second"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, func(write int) error {
				if write <= tc.writes {
					return tc.err
				}
				return nil
			})
			s.Emit(PlanJobFailed(newPlan(), "first"), PlanJobFailed(newPlan(), "second"))
			if diff := cmp.Diff(tc.want, s.messages(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is stored may expire before it repeats.
func TestRecorderRepeatsWhatHasExpired(t *testing.T) {
	s := newSink(t, nil)
	s.expired = true
	s.Emit(PlanJobFailed(newPlan(), "it broke"))
	s.Emit(PlanJobFailed(newPlan(), "it broke"))
	if diff := cmp.Diff([]string{"it broke", "it broke"}, s.messages(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An API server that never answers does not hold up the end.
func TestRecorderShutdown(t *testing.T) {
	answer := make(chan struct{})
	s := newSink(t, func(int) error { <-answer; return nil })
	s.Emit(PlanJobFailed(newPlan(), "it broke"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Shutdown(ctx)
	close(answer)
	if diff := cmp.Diff([]string{"it broke"}, s.messages(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An object of an unknown kind has no reference; that harms no other Event.
func TestRecorderSkipsWhatHasNoObject(t *testing.T) {
	s := newSink(t, nil)
	s.Emit(Event{Object: &batchv1.Job{}, Type: "Normal", Reason: "X", Message: "lost"}, PlanJobFailed(newPlan(), "it broke"))
	if diff := cmp.Diff([]string{"it broke"}, s.messages(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
