// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// annotate sets annotations of a node, by pairs of key and value.
func (b *bench) annotate(name string, pairs ...string) {
	b.t.Helper()
	values := make([]string, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		values = append(values, fmt.Sprintf("%q:%q", pairs[i], pairs[i+1]))
	}
	b.patchNode(name, `{"metadata":{"annotations":{`+strings.Join(values, ",")+`}}}`)
}

func (b *bench) patchNode(name, body string) {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-" + name}}
	if err := b.Patch(context.WithoutCancel(b.t.Context()), n, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Error(err)
	}
}

// reaches waits until a node's line has this in it.
func (b *bench) reaches(name, part string) {
	b.t.Helper()
	b.eventually(name+" reaches "+part, func() string {
		if l := line(b.get(b.id + "-" + name)); !strings.Contains(l, part) {
			return l
		}
		return ""
	})
}

// mishaps are what people, agents and other rollouts do to hosts and their Nodes in the middle of a turn, or while it waits.
func mishaps(b *bench) {
	b.operator(nil)
	b.pods(func(p *corev1.Pod) bool { return p.Labels["stays"] != "" })
	hooked := func(s *v1alpha1.NodeRolloutSpec) {
		s.HostUpdate.Hooks = &v1alpha1.RebootHooks{BeforeReboot: []string{"x"}}
	}
	quick := func(s *v1alpha1.NodeRolloutSpec) { s.HostUpdate.RebootTimeout = duration(20 * time.Second) }

	b.sub("a rollout that had skipped the node lets go of it in another's turn", func(b *bench) {
		b.node("n", "1.0.0", "1.1.0")
		b.agents()
		b.pod("pod", "n", b.labels(map[string]string{"stays": "yes"}))
		skips := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-skips"}, Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, HostUpdate: &v1alpha1.HostUpdate{},
			Drain: &v1alpha1.NodeDrain{Force: true, Timeout: duration(time.Second), OnTimeout: "Skip"},
		}}
		b.temporary(skips)
		b.reaches("n", string(v1alpha1.ReasonDrainTimeout))
		b.rollout(hooked, func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Disabled: true} })
		b.reaches("n", "before-reboot")
		if err := b.Delete(b.t.Context(), skips); err != nil {
			b.t.Fatal(err)
		}
		b.eventually("it has let go", func() string {
			if l := line(b.get(b.id + "-n")); strings.Contains(l, string(v1alpha1.ReasonDrainTimeout)) {
				return l
			}
			return ""
		})
		if l := line(b.get(b.id + "-n")); l != "perform-update,perform-update,ready true before-reboot claimed" {
			b.t.Errorf("it has taken the other's word away: %s", l)
		}
	})
	b.sub("the label of the host's interface changes after the order to reboot", func(b *bench) {
		m, other := b.node("n", "1.0.0", "1.1.0"), v1alpha1.HostProtocols[1].InterfaceLabel
		stop := b.agent(m)
		b.rollout(quick, hooked)
		b.reaches("n", "before-reboot")
		stop()
		b.annotate("n", "x", "true")
		b.reaches("n", "reboot-update,perform-update,ready true unschedulable exclude-from-external-load-balancers rebooting")
		b.patchNode("n", fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:"1.0.0"}}}`, bottlerocket.InterfaceLabel, other))
		b.reaches("n", string(v1alpha1.ReasonNotRebooted))
		if wanted, there := b.get(b.id + "-n").Annotations[bottlerocket.Wanted]; there {
			b.t.Errorf("an agent would find %s when the label is as it was", wanted)
		}
	})
	b.sub("somebody reboots the host before it is told to", func(b *bench) {
		m := b.node("n", "1.0.0", "1.1.0")
		b.agents()
		b.rollout(hooked)
		b.reaches("n", "before-reboot")
		m.boot()
		b.kubelet(m)
		b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
		if m.count("reboot") != 0 {
			b.t.Error("it was told to reboot all the same")
		}
	})
	b.sub("somebody takes the claim away of a node that a person has cordoned", func(b *bench) {
		up := make(chan struct{})
		b.node("n", "1.0.0", "1.1.0", func(m *machine) { m.meanwhile = func() { <-up } })
		b.patchNode("n", `{"spec":{"unschedulable":true}}`)
		b.agents()
		b.rollout()
		b.reaches("n", "reboot-update,reboot-update,busy")
		b.patchNode("n", `{"metadata":{"annotations":{"moult.dev/claims":null}}}`)
		b.reaches("n", "rebooting")
		close(up)
		b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
		b.reaches("n", "stabilize,stabilize,ready false unschedulable")
	})
	b.sub("an agent says what no agent says", func(b *bench) {
		m := b.node("n", "1.0.0", "1.1.0")
		b.agents()
		b.rollout(hooked)
		b.reaches("n", "before-reboot")
		b.annotate("n", bottlerocket.State, "up-to-date")
		b.annotate("n", "x", "true")
		b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
		if n := m.count("reboot"); n != 1 {
			b.t.Errorf("it was told to reboot %d times", n)
		}
	})
	b.sub("an agent says that all is well and the host has not rebooted", func(b *bench) {
		b.node("n", "1.0.0", "1.1.0")
		b.rollout(quick)
		says := func(wanted, update, runs string) {
			b.t.Helper()
			b.reaches("n", wanted+",")
			b.annotate("n", bottlerocket.Active, wanted, bottlerocket.State, "ready", bottlerocket.Update, update,
				v1alpha1.AnnotationHostTarget, "1.1.0", v1alpha1.AnnotationHostVersion, runs)
		}
		says("stabilize", "true", "1.0.0")
		says("prepare-update", "true", "1.0.0")
		says("perform-update", "true", "1.0.0")
		says("reboot-update", "true", "1.1.0")
		b.reaches("n", string(v1alpha1.ReasonNotRebooted))
		says("stabilize", "false", "1.1.0")
		b.becomes(metav1.ConditionFalse, "was told to reboot")
		b.hosts[b.id+"-n"].set(func(m *machine) { m.runs = "1.1.0"; m.boots++ })
		b.kubelet(b.hosts[b.id+"-n"])
		b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	})
	b.sub("a node is not well after the reboot for too long", func(b *bench) {
		b.node("n", "1.0.0", "1.1.0", func(m *machine) {
			m.meanwhile = func() { b.patchNode("n", `{"spec":{"taints":[{"key":"startup","effect":"PreferNoSchedule"}]}}`) }
		})
		b.agents()
		b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
			s.Strategy = &v1alpha1.Strategy{TurnTimeout: duration(15 * time.Second)}
			s.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"startup"}}}
		})
		b.becomes(metav1.ConditionFalse, "its node is not well: taint startup must be absent")
		b.reaches("n", "stabilize,stabilize,ready false unschedulable exclude-from-external-load-balancers "+string(v1alpha1.ReasonTurnTimeout))
		b.hold(2*time.Second, func() string {
			if s := b.status(); s.Counts.Failed != 1 || !b.get(b.id+"-n").Spec.Unschedulable {
				return fmt.Sprint(s)
			}
			return ""
		})
		b.patchNode("n", `{"spec":{"taints":null}}`)
		b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
		b.eventually("the node is given back", func() string { return b.idle(b.id + "-n") })
		b.rebootedOnce()
	})
	b.sub("a time zone is misspelt in the middle of a turn", func(b *bench) {
		names := []string{"one", "two"}
		for _, name := range names {
			b.node(name, "1.0.0", "1.1.0")
		}
		b.agents()
		b.rollout(hooked)
		first := ""
		b.eventually("a turn begins", func() string {
			for _, name := range names {
				if strings.Contains(line(b.get(b.id+"-"+name)), "before-reboot") {
					first = name
				}
			}
			if first == "" {
				return "none has"
			}
			return ""
		})
		r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
		body := `{"spec":{"strategy":{"windows":[{"schedule":"@hourly","duration":"1h","timeZone":"Europe/Berln"}]}}}`
		if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			b.t.Fatal(err)
		}
		b.becomes(metav1.ConditionFalse, "Europe/Berln")
		b.annotate(first, "x", "true")
		b.reaches(first, "stabilize,stabilize,ready false")
		b.eventually("the node is given back", func() string { return b.idle(b.id + "-" + first) })
		b.eventually("the other waits", func() string {
			if s := b.status(); s.Counts.Updated != 1 || s.Counts.Waiting != 1 {
				return fmt.Sprint(s.Counts)
			}
			return ""
		})
		b.becomes(metav1.ConditionFalse, "Europe/Berln")
	})
	b.sub("an agent says more than a status takes", func(b *bench) {
		b.node("n", "1.0.0", "1.1.0")
		b.annotate("n", bottlerocket.Wanted, "stabilize", bottlerocket.Active, "stabilize", bottlerocket.State, "error", v1alpha1.AnnotationHostError, strings.Repeat("x", 100_000))
		b.rollout()
		b.becomes(metav1.ConditionFalse, "xxx")
	})
	b.sub("hosts need another reboot after they could not say so for a while", func(b *bench) {
		names := []string{"one", "two"}
		for _, name := range names {
			b.node(name, "1", "2", func(m *machine) { m.unnamed = true })
		}
		b.agents()
		b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
			s.Strategy = &v1alpha1.Strategy{Waves: []v1alpha1.Wave{
				{Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual}, {Size: ptr.To(intstr.FromInt32(1))},
			}}
		})
		for _, approval := range []string{"wave-1@reboot-1", "wave-1@reboot-2"} {
			b.eventually("the first wave waits for "+approval, func() string {
				if s := b.status(); s.Wave == nil || s.Wave.ApproveWith != approval || s.Counts.Updated != 1 {
					return fmt.Sprint(s.Wave, s.Counts)
				}
				return ""
			})
			r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
			if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"moult.dev/approve":"`+approval+`"}}}`))); err != nil {
				b.t.Fatal(err)
			}
			b.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
			for _, name := range names {
				b.reaches(name, "stabilize,stabilize,ready false")
				b.hosts[b.id+"-"+name].set(func(m *machine) { m.offers = "3"; m.fails["check"] = errors.New("it is broken") })
				b.annotate(name, bottlerocket.State, "unknown") // It is asked again.
				b.reaches(name, "stabilize,stabilize,error")
			}
			b.becomes(metav1.ConditionFalse, "0 of 2 nodes updated")
			for _, name := range names {
				b.hosts[b.id+"-"+name].set(func(m *machine) { delete(m.fails, "check") })
				b.annotate(name, bottlerocket.State, "unknown")
			}
		}
	})
	b.sub("a release keeps its age while nobody can say whether it is there", func(b *bench) {
		m := b.node("n", "1.0.0", "1.1.0")
		b.agents()
		b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.HostUpdate.MinimumAge = duration(time.Hour) })
		waits := func(reason v1alpha1.Reason) {
			b.t.Helper()
			b.eventually("it waits for "+string(reason), func() string {
				if s := b.status(); len(s.Waiting) != 1 || s.Waiting[0].Reason != reason {
					return fmt.Sprint(s)
				}
				return ""
			})
		}
		waits(v1alpha1.ReasonReleaseTooYoung)
		m.set(func(m *machine) { m.fails["check"] = errors.New("the repository is away") })
		b.annotate("n", bottlerocket.State, "unknown") // It is asked again.
		waits(v1alpha1.ReasonHostError)
		if s := b.status(); len(s.Releases) != 1 {
			b.t.Errorf("releases are %v", s.Releases)
		}
	})
}

// one is a client that reads one object.
type one struct {
	client.Client
	content map[string]any
}

func (c one) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("it reads a %T", o)
	}
	u.Object = c.content
	return nil
}

// A NodeRollout that can't be read keeps what its status says.
func TestReadMalformed(t *testing.T) {
	c := &Controller{client: one{content: map[string]any{
		"metadata": map[string]any{"name": "os", "uid": "1"}, "spec": "nonsense",
		"status": map[string]any{"revision": "1.1.0", "releases": []any{map[string]any{"version": "1.1.0", "since": "2026-11-20T12:00:00Z"}}},
	}}}
	r, _, malformed, err := c.read(t.Context(), types.NamespacedName{Name: "os"})
	if err != nil || malformed == nil {
		t.Fatal(malformed, err)
	}
	if r.Name != "os" || r.UID != "1" || r.Status.Revision != "1.1.0" || len(r.Status.Releases) != 1 {
		t.Errorf("read is %+v", r)
	}
}
