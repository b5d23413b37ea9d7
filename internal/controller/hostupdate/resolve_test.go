// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
)

func TestResolve(t *testing.T) {
	bad := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for name, tc := range map[string]struct {
		change    func(*v1alpha1.NodeRolloutSpec)
		malformed error
		want      string
		// goesOn is whether turns go on all the same.
		goesOn bool
	}{
		"fine":                         {},
		"malformed":                    {malformed: errors.New("the NodeRollout can't be read: x"), want: "the NodeRollout can't be read: x"},
		"nothing to be done":           {change: func(s *v1alpha1.NodeRolloutSpec) { s.HostUpdate = nil }, want: "spec.hostUpdate must be given: {} brings hosts to the newest version that they have to offer"},
		"nodes that can't be selected": {change: func(s *v1alpha1.NodeRolloutSpec) { s.NodeSelector = bad }, want: `spec.nodeSelector is invalid, "Near" is not a valid label selector operator`},
		"pods that can't be selected":  {change: func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{PodSelector: &bad} }, want: `spec.drain.podSelector is invalid, "Near" is not a valid label selector operator`},
		"health that can't be selected": {change: func(s *v1alpha1.NodeRolloutSpec) {
			s.Health = &v1alpha1.NodeHealth{Pods: []v1alpha1.StablePods{{}, {Selector: bad}}}
		}, want: `spec.health.pods[1].selector is invalid, "Near" is not a valid label selector operator`},
		"a strategy that can't be read": {change: func(s *v1alpha1.NodeRolloutSpec) {
			s.Strategy = &v1alpha1.Strategy{Windows: []v1alpha1.Window{{Schedule: "now"}}}
		}, want: "spec.strategy.windows[0]", goesOn: true},
		"a strategy that can't be read, and a drain": {change: func(s *v1alpha1.NodeRolloutSpec) {
			s.Strategy = &v1alpha1.Strategy{Windows: []v1alpha1.Window{{Schedule: "now"}}}
			s.Drain = &v1alpha1.NodeDrain{PodSelector: &bad}
		}, want: "spec.drain.podSelector is invalid"},
	} {
		r := newRollout()
		if tc.change != nil {
			tc.change(&r.Spec)
		}
		w, err := hostupdate.NewWorld(r, tc.malformed)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (tc.want == "" || len(got) < len(tc.want) || got[:len(tc.want)] != tc.want) || w.Ready != (err == nil || tc.goesOn) {
			t.Errorf("%s: %v, and says %q", name, w.Ready, got)
		}
	}
}

func TestTaintOutdated(t *testing.T) {
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "noderollout.outdated.moult.dev/os", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	wants := newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Strategy = &v1alpha1.Strategy{TaintOutdated: true} })
	for name, tc := range map[string]struct {
		rollout *v1alpha1.NodeRollout
		node    *corev1.Node
		want    nodeturn.Step
	}{
		"outdated":                       {wants, old("stabilize,stabilize,ready true"), nodeturn.StepTaint},
		"outdated, and tainted":          {wants, old("stabilize,stabilize,ready true", tainted), nodeturn.StepNone},
		"updated":                        {wants, newNode(words("stabilize,stabilize,ready false")), nodeturn.StepNone},
		"updated, and tainted":           {wants, newNode(words("stabilize,stabilize,ready false"), tainted), nodeturn.StepUntaint},
		"opted out, and tainted":         {wants, old("stabilize,stabilize,ready true", tainted, labelled(v1alpha1.LabelNodeRollout("os"), v1alpha1.LabelNodeRolloutDisabled)), nodeturn.StepUntaint},
		"not labelled, and tainted":      {wants, newNode(unlabelledNode, tainted), nodeturn.StepUntaint},
		"no one asks for it, and it was": {newRollout(), old("stabilize,stabilize,ready true", tainted), nodeturn.StepUntaint},
		"no one asks for it":             {newRollout(), old("stabilize,stabilize,ready true"), nodeturn.StepNone},
	} {
		if got, _ := judged(t, tc.rollout.DeepCopy(), tc.node); got == nil || got.Step != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The versions and the revision follow from all hosts that count.
func TestSurvey(t *testing.T) {
	host := func(name, version, target string) *corev1.Node {
		n := newNode(words("stabilize,stabilize,ready false"), runs(version), func(n *corev1.Node) { n.Name = name })
		if target != "" {
			words("stabilize,stabilize,ready true")(n)
			offers(target)(n)
		}
		return n
	}
	hidden := host("x", "9.0.0", "9.1.0")
	hidden.Labels[v1alpha1.LabelNodeRollout("os")] = v1alpha1.LabelNodeRolloutDisabled
	w := newWorld(t, newRollout(func(r *v1alpha1.NodeRollout) {
		r.Status.Releases = []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Hour)}, {Version: "0.9.0", Since: ago(2 * time.Hour)}}
	}))
	sees(w, host("a", "1.0.0", "1.1.0"), host("b", "1.0.0", "1.2.0"), host("c", "1.1.0", ""), hidden)
	wantReleases := []v1alpha1.HostRelease{{Version: "1.2.0", Since: metav1.Time{Time: now}}, {Version: "1.1.0", Since: ago(time.Hour)}}
	if diff := cmp.Diff(wantReleases, w.Releases); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 2}, {Version: "1.1.0", Nodes: 1}}, w.Versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	var many []*corev1.Node
	for i := range 30 {
		many = append(many, host(fmt.Sprintf("m%d", i), fmt.Sprintf("1.0.%d", i), fmt.Sprintf("2.0.%d", i)))
	}
	w = newWorld(t, newRollout())
	if sees(w, many...); len(w.Releases) != v1alpha1.MaxListedReleases || w.Releases[0].Version != "2.0.29" {
		t.Errorf("of many releases there are %d: %v", len(w.Releases), w.Releases)
	}
	if len(w.Versions) > v1alpha1.MaxListedReleases {
		t.Errorf("of many versions there are %d", len(w.Versions))
	}
}
