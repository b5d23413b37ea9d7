// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// What fails is tried again more and more seldom, and not before the cloud wants it to be.
func TestTrouble(t *testing.T) {
	var x trouble
	var waits []time.Duration
	for range 9 {
		x.record(cloud.Errorf(cloud.KindQuota, "no cores"), noon)
		waits = append(waits, x.until.Sub(noon))
	}
	want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 2 * time.Minute, 2 * time.Minute,
	}
	if !slices.Equal(waits, want) || x.reason != v1alpha1.ReasonCloudQuota || x.message != "no cores" || !x.isDelayed(noon) {
		t.Errorf("%v, %+v", waits, x)
	}
	x = trouble{}
	x.record(&cloud.Error{Kind: cloud.KindThrottled, RetryAfter: time.Hour, Err: errors.New("slow down")}, noon)
	if x.until.Sub(noon) != time.Hour || x.reason != v1alpha1.ReasonCloudThrottled {
		t.Errorf("%+v", x)
	}
}

// What a cloud says of additions counts until it says something else. An answer that is about something else changes nothing.
func TestAnswered(t *testing.T) {
	s := newSet("set")
	for i, step := range []struct {
		err  error
		says string
	}{
		{cloud.Errorf(cloud.KindConflict, "busy"), ""},
		{cloud.Errorf(cloud.KindInvalid, "no such image"), "no such image"},
		{cloud.Errorf(cloud.KindThrottled, "slow down"), "no such image"},
		{errors.New("the connection was lost"), "no such image"},
		{cloud.Errorf(cloud.KindNotFound, "no such template"), "no such template"},
		{cloud.Errorf(cloud.KindQuota, "no cores"), ""},
		{cloud.Errorf(cloud.KindFailed, "no such image"), "no such image"},
		{nil, ""},
	} {
		s.recordAnswer(step.err)
		if v := s.view(nil, noon); v.Declined != step.says || v.Careful != (step.says != "") {
			t.Errorf("%d: %q", i, v.Declined)
		}
	}
}

// What was declined of one model says nothing of another.
func TestAnsweredOfAnotherModel(t *testing.T) {
	s := newSet("set")
	s.update(cloud.Set{Name: "set", Model: "1"}, nil, nil, noon)
	s.recordAnswer(cloud.Errorf(cloud.KindInvalid, "no such image"))
	for model, want := range []string{"no such image", ""} {
		s.update(cloud.Set{Name: "set", Model: strconv.Itoa(model + 1)}, nil, nil, noon)
		if v := s.view(nil, noon); v.Declined != want {
			t.Errorf("%d: %q", model+1, v.Declined)
		}
	}
}

func TestReasonOf(t *testing.T) {
	for kind, want := range map[cloud.Kind]v1alpha1.Reason{
		cloud.KindNotFound: v1alpha1.ReasonScaleSetNotFound, cloud.KindConflict: v1alpha1.ReasonScaleSetBusy, cloud.KindThrottled: v1alpha1.ReasonCloudThrottled,
		cloud.KindQuota: v1alpha1.ReasonCloudQuota, cloud.KindFull: v1alpha1.ReasonScaleSetFull, cloud.KindDenied: v1alpha1.ReasonCloudDenied,
		cloud.KindInvalid: v1alpha1.ReasonScaleSetUnfit, cloud.KindFailed: v1alpha1.ReasonCloudError, cloud.KindUnavailable: v1alpha1.ReasonCloudError,
		"": v1alpha1.ReasonCloudError,
	} {
		if got := reasonOf(kind); got != want {
			t.Errorf("%q is %s", kind, got)
		}
	}
}

// A set is looked at each check period, and sooner while something is under way or has just changed.
func TestDue(t *testing.T) {
	var operations []v1alpha1.CloudOperation
	adding := func(since, took time.Duration) func(*set) {
		return func(s *set) {
			operations = []v1alpha1.CloudOperation{{Kind: v1alpha1.CloudOperationAdd, Sent: true, Since: metav1.Time{Time: noon.Add(-since)}}}
			s.took[v1alpha1.CloudOperationAdd] = took
		}
	}
	for name, tc := range map[string]struct {
		change func(*set)
		busy   bool
		want   time.Duration
	}{
		"idle":                  {func(*set) {}, false, 5 * time.Minute},
		"busy":                  {func(*set) {}, true, lookBusy},
		"stale":                 {func(s *set) { s.stale = true }, false, lookChanged},
		"changed by others":     {func(s *set) { s.Busy = "it is updating" }, true, lookChanged},
		"an operation":          {adding(4*time.Second, 0), true, 500 * time.Millisecond},
		"just sent":             {adding(-3*time.Second, 0), true, 3*time.Second + lookEnding},
		"before it can end":     {adding(time.Second, 5*time.Second), true, 3500 * time.Millisecond},
		"before it may be over": {adding(10*time.Second, time.Minute), true, lookBusy},
		"can't be looked at":    {func(s *set) { s.looking.record(errors.New("down"), noon) }, true, time.Second},
		"short check periods":   {func(s *set) { s.LookedAt = noon.Add(-5*time.Minute + time.Second) }, true, -5*time.Minute + time.Second + lookBusy},
	} {
		s := newSet("pool")
		s.LookedAt, operations = noon, nil
		tc.change(s)
		if got := s.due(operations, tc.busy, 5*time.Minute).Sub(noon); got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestResolve(t *testing.T) {
	bad := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for name, tc := range map[string]struct {
		change    func(*v1alpha1.NodeRolloutSpec)
		malformed error
		want      string
	}{
		"fine":          {},
		"malformed":     {malformed: errors.New("it can't be read"), want: "it can't be read"},
		"no such surge": {change: func(s *v1alpha1.NodeRolloutSpec) { s.Replacement.Surge = ptr.To(intstr.FromString("x")) }, want: `spec.replacement.surge: "x" is neither a count nor a percentage from 0% to 100%`},
		"nodes":         {change: func(s *v1alpha1.NodeRolloutSpec) { s.NodeSelector = bad }, want: `spec.nodeSelector is invalid, "Near" is not a valid label selector operator`},
		"pods that are looked": {change: func(s *v1alpha1.NodeRolloutSpec) {
			s.Health = &v1alpha1.NodeHealth{Pods: []v1alpha1.StablePods{{Selector: bad}}}
		}, want: `spec.health.pods[0].selector is invalid, "Near" is not a valid label selector operator`},
	} {
		r := &v1alpha1.NodeRollout{Spec: v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{}}}
		if tc.change != nil {
			tc.change(&r.Spec)
		}
		w, err := resolve(r, tc.malformed)
		if got := text(err); got != tc.want || w.ready != (tc.want == "") {
			t.Errorf("%s: %s", name, got)
		}
		if tc.want == "" && (w.rules.Surge.N != 1 || w.rules.Timeout != defaultTimeout || !w.rules.Drains || w.checkPeriod != defaultCheckPeriod) {
			t.Errorf("%s: %+v", name, w.rules)
		}
	}
}

// A strategy that can't be understood begins nothing, and turns go on.
func TestResolveStrategy(t *testing.T) {
	r := &v1alpha1.NodeRollout{Spec: v1alpha1.NodeRolloutSpec{
		Replacement: &v1alpha1.Replacement{},
		Strategy:    &v1alpha1.Strategy{Windows: []v1alpha1.Window{{Schedule: "never", Duration: metav1.Duration{Duration: time.Hour}}}},
	}}
	if w, err := resolve(r, nil); err == nil || !w.ready {
		t.Errorf("ready is %v: %v", w.ready, err)
	}
}

// What an addition has made so far is told while it goes on, and not where the cloud may take it away again.
func TestAddedSoFar(t *testing.T) {
	for _, overprovisions := range []bool{false, true} {
		s := newSet("set")
		s.Added["token"] = []string{"m-new"}
		s.update(cloud.Set{Name: "set", Overprovisions: overprovisions}, nil, nil, noon)
		if got := s.view(nil, noon).Added["token"]; (len(got) > 0) == overprovisions {
			t.Errorf("overprovisions %v: %v", overprovisions, got)
		}
	}
}

// A deleted set is read less and less often.
func TestReadsOfADeletedSet(t *testing.T) {
	s, at := newSet("set"), noon
	var waits []time.Duration
	for range 4 {
		s.markUnread(cloud.Errorf(cloud.KindNotFound, "no such set"), nil, at)
		waits = append(waits, s.looking.until.Sub(at))
		at = at.Add(goneAfter)
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}; !slices.Equal(waits, want) || !s.Deleted {
		t.Errorf("%v, %+v", waits, s)
	}
}

// A library that panics at an answer of a cloud is a cloud that can't be read.
func TestCallsRecover(t *testing.T) {
	var none *cloud.Set
	got, err := call(t.Context(), passOf(t, v1alpha1.NodeRolloutStatus{}), "Describe", func(context.Context) (int, error) { return none.Capacity, nil })
	if want := "reading the answer of the cloud, runtime error: "; got != 0 || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %d, %v", got, err)
	}
	if cloud.KindOf(err) != cloud.KindUnavailable {
		t.Errorf("it is %s", cloud.KindOf(err))
	}
}
