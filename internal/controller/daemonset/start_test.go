// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// creating is a pod that the kubelet has been starting for this long.
func creating(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		unready(p)
		at := ago(since)
		p.CreationTimestamp, p.Status.StartTime, p.Status.Phase = at, &at, corev1.PodPending
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	}
}

// A pod that starts slowly is explained by the newest warning about it. It is read once in a while.
func TestExplainStart(t *testing.T) {
	w := newWorld(2).has("new", creating(askAfter-time.Second), 0).has("new", creating(time.Minute), 1)
	c := w.serve(t)
	asked, uid := 0, string(w.pods[1].UID)
	events := []corev1.Event{
		{Reason: "FailedMount", Message: "timed out", LastTimestamp: ago(50 * time.Second)},
		{Reason: "FailedMount", Message: "configmap \"absent\"\nnot found", LastTimestamp: ago(time.Second)},
	}
	all, _ := c.client.(client.WithWatch)
	c.live = interceptor.NewClient(all, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			of, _ := o.FieldSelector.RequiresExactMatch("involvedObject.uid")
			if kind, _ := o.FieldSelector.RequiresExactMatch("type"); o.Namespace != "ns" || of != uid || kind != corev1.EventTypeWarning {
				t.Errorf("it asks for %s, %s", o.Namespace, o.FieldSelector)
			}
			asked++
			list.(*corev1.EventList).Items = events
			return nil
		},
	})
	look := func(after time.Duration) *pass {
		t.Helper()
		p := w.begin(t, c)
		p.now = now.Add(after)
		p.Now = p.now
		p.explainStart(t.Context())
		return p
	}
	const want = `FailedMount: configmap "absent" not found`
	for range 2 {
		p := look(0)
		if got := p.State("n1").Current.State.Message; got != want || asked != 1 {
			t.Errorf("it says %q after %d questions", got, asked)
		}
		if got := p.State("n0").Current.State.Message; got != "" || !p.Wake.Equal(now.Add(time.Second)) {
			t.Errorf("of a new pod it says %q, and looks again at %s", got, p.Wake)
		}
	}
	events = nil
	w.pods = w.pods[1:]
	if got := look(askAgain).State("n1").Current.State.Message; got != "" || asked != 2 {
		t.Errorf("without a warning it says %q after %d questions", got, asked)
	}
}

// The reason of a canary that is paused because it is slow names what is absent.
func TestSlowCanaryNamesTheVolume(t *testing.T) {
	w := newWorld(2).trying().has("new", creating(3*time.Minute), 0).has("old", nil, 1)
	limit := &metav1.Duration{Duration: 2 * time.Minute}
	w.eds.Spec.Strategy.Canary.AutoPause = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{MaxSlowStartDuration: limit}
	c := w.serve(t)
	all, _ := c.client.(client.WithWatch)
	c.live = interceptor.NewClient(all, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*corev1.EventList).Items = []corev1.Event{{Reason: "FailedMount", Message: `configmap "absent" not found`}}
			return nil
		},
	})
	p := w.begin(t, c)
	p.explainStart(t.Context())
	if again, err := p.runCanary(t.Context()); again || err != nil {
		t.Fatal(again, err)
	}
	const want = `it has not started within 2m0s: FailedMount: configmap "absent" not found`
	if v := p.Canary.Verdict; !v.Paused || v.Reason != edsv1.StatusReasonSlowStartTimeoutExceeded || !strings.HasSuffix(v.Message, want) {
		t.Errorf("got %+v", v)
	}
}
