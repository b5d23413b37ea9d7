// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/nodeturn"
)

// passing is a look at one node, whose steps are written to a client that is a double.
func passing(t *testing.T, r *v1alpha1.NodeRollout, n *corev1.Node) (*pass, *unit) {
	t.Helper()
	c := newTestController(t, fake.NewClientBuilder().WithObjects(n).WithStatusSubresource(n).Build())
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	asked(newWorld(t, r), n)
	p := c.newPass(r, nil, snapshotOf(n))
	return p, p.Turns[0]
}

// A turn that fails releases its node, except one whose host has changed: its node must become well first.
func TestFail(t *testing.T) {
	r := newRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.HostUpdate.Hooks = &v1alpha1.RebootHooks{AfterReboot: []string{"after", "more"}}
		r.Spec.Health = &v1alpha1.NodeHealth{Pods: []v1alpha1.StablePods{{}}}
	})
	for name, tc := range map[string]struct {
		claim  func(*v1alpha1.Claim)
		update string
		want   string
		works  bool
	}{
		"before it changed":       {rebooting, "true", "stabilize,unknown,unknown unknown NotRebooted", false},
		"changed":                 {changedAt, "true", "stabilize,unknown,unknown unknown unschedulable after-reboot NotRebooted", true},
		"changed, and up to date": {changedAt, "false", "stabilize,unknown,unknown unknown unschedulable after-reboot NotRebooted", true},
		"said to be up to date":   {rebooting, "false", "stabilize,unknown,unknown unknown NotRebooted", false},
	} {
		p, s := passing(t, r.DeepCopy(), newNode(words("reboot-update,reboot-update,ready "+tc.update), runs("1.1.0"), booted("boot-2"), holding(claimed(tc.claim)), cordonedBy(self),
			labelled(v1alpha1.LabelAfterReboot, "true"), annotated("after", "true")))
		s.Fail(v1alpha1.ReasonNotRebooted, "it broke", now)
		if err := p.Fail(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{}
		if err := p.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
			t.Fatal(err)
		}
		if got := line(n); got != tc.want || (n.Annotations["after"] == "true") != tc.works || p.needsPods(s) != tc.works {
			t.Errorf("%s: %s, annotations %v, followed: %v", name, got, n.Annotations, p.needsPods(s))
		}
	}
}

// A turn that is released, or fails, after the order to perform has that reverted, by an agent that can.
func TestRevertsWhatWasPerformed(t *testing.T) {
	checked := annotated(v1alpha1.AnnotationHostChecked, "2026-11-20T11:00:00Z")
	for name, tc := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"before it":                     {old("prepare-update,prepare-update,ready true", checked), "stabilize,unknown,unknown unknown"},
		"told to":                       {old("perform-update,prepare-update,ready true", checked), "reset-state,unknown,unknown unknown"},
		"performed":                     {old("perform-update,perform-update,ready true", checked), "reset-state,unknown,unknown unknown"},
		"performed, by another's agent": {old("perform-update,perform-update,ready true"), "stabilize,unknown,unknown unknown"},
		"told to reboot":                {old("reboot-update,reboot-update,ready true", checked), "stabilize,unknown,unknown unknown"},
		"the reboot is refused": {
			old("reboot-update,reboot-update,error true", checked, annotated(v1alpha1.AnnotationHostBoot, "boot-1")), "reset-state,unknown,unknown unknown",
		},
		"it is being taken back": {old("reset-state,reset-state,busy unknown", checked), "reset-state,reset-state,busy unknown"},
	} {
		for how, end := range map[string]func(*pass, *unit) error{
			"released": func(p *pass, s *unit) error { return p.Release(t.Context(), s) },
			"failed": func(p *pass, s *unit) error {
				s.Fail(v1alpha1.ReasonTurnTimeout, "it broke", now)
				return p.Fail(t.Context(), s)
			},
			"the NodeRollout is gone": func(p *pass, s *unit) error {
				_, err := (&Controller{Engine: p.Engine}).releaseWhenBack(t.Context(), s.Node, *s.Claim)
				return err
			},
		} {
			n := tc.node.DeepCopy()
			holding(claimed(cordoned))(n)
			p, s := passing(t, newRollout(), n)
			if err := end(p, s); err != nil {
				t.Fatal(err)
			}
			if err := p.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
				t.Fatal(err)
			}
			if got := line(n); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s, %s: %s, want %s", name, how, got, tc.want)
			}
		}
	}
}

// The end of a turn takes the answer that the host has given after its reboot.
func TestFinish(t *testing.T) {
	other := v1alpha1.Claim{Rollout: "NodeRollout/other", UID: "other", Revision: "1", Turn: "t"}
	for name, tc := range map[string]struct {
		node  *corev1.Node
		want  string
		label string
	}{
		"no update":                  {old("reboot-update,reboot-update,ready false", holding(claimed(soakingSince(time.Hour)))), "stabilize,stabilize,ready false", "false"},
		"an update":                  {old("reboot-update,reboot-update,ready true", holding(claimed(soakingSince(time.Hour)))), "stabilize,unknown,unknown unknown", "unknown"},
		"the reboot is not answered": {old("reboot-update,reboot-update,busy false", holding(claimed(soakingSince(time.Hour)))), "stabilize,unknown,unknown unknown", "unknown"},
		"the label is gone":          {old("reboot-update,reboot-update,ready false", holding(claimed(soakingSince(time.Hour))), unlabelledNode), ",, ", ""},
		"another rollout has it": {
			old("reboot-update,reboot-update,ready false", holding(claimed(soakingSince(time.Hour)), other)), "reboot-update,reboot-update,ready false claimed", "",
		},
	} {
		p, s := passing(t, newRollout(), tc.node)
		if s.Step != nodeturn.StepFinish {
			t.Fatalf("%s: %+v", name, summary(s))
		}
		if err := p.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{}
		if err := p.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
			t.Fatal(err)
		}
		if got := line(n); got != tc.want || n.Labels[bottlerocket.Update] != tc.label {
			t.Errorf("%s: %s, and the label %q; want %s", name, got, n.Labels[bottlerocket.Update], tc.want)
		}
	}
}

// A node whose turn had failed is updated if its host runs what it was to run, and released without a word of that if not.
func TestFinishFailed(t *testing.T) {
	for version, want := range map[string]string{"1.1.0": "Updated to 1.1.0: Nodes a", "1.0.0": ""} {
		p, s := passing(t, newRollout(), newNode(words("stabilize,stabilize,ready false"), runs(version), booted("boot-2"), holding(claimed(broken, rebooting))))
		if s.Step != nodeturn.StepFinish {
			t.Fatalf("%s: %+v", version, summary(s))
		}
		if err := p.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := told(p.Mentioned()); got != want || s.Claim != nil || s.Unit.State != done {
			t.Errorf("%s: %q, %+v", version, got, s.Unit)
		}
	}
}

// The drain of a node that a person has uncordoned counts from when it is cordoned again: what has come since goes, too, and the node is not
// drained any more.
func TestCordonAgain(t *testing.T) {
	r := newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Drain = &v1alpha1.NodeDrain{Disabled: true} })
	p, s := passing(t, r, newNode(words("perform-update,perform-update,ready true"), runs("1.0.0"), offers("1.1.0"), holding(claimed(begun, cordoned)), func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonMaintenance, Message: self + ": the node is drained",
		})
	}))
	if s.Step != stepCordon {
		t.Fatalf("%+v", summary(s))
	}
	if err := p.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{}
	if err := p.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
		t.Fatal(err)
	}
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	drained := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeDrained && c.Status == corev1.ConditionTrue
	}
	if err != nil || len(claims) != 1 || !claims[0].Cordoned.Time.Equal(now) || !n.Spec.Unschedulable || slices.ContainsFunc(n.Status.Conditions, drained) {
		t.Errorf("%+v, %v", claims, err)
	}
}

// A turn for what is not wanted any more ends well, and proves nothing of what is.
func TestFinishForAnother(t *testing.T) {
	for pinned, want := range map[string]bool{"1.1.0": false, "1.2.0": true} {
		r := newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.Version = pinned })
		p, s := passing(t, r, newNode(words("reboot-update,reboot-update,ready true"), runs("1.1.0"), booted("boot-2"), holding(claimed(soakingSince(time.Hour)))))
		if err := p.Settle(t.Context()); err != nil || s.Unit.State != done || s.Unit.Unoffered != want {
			t.Errorf("pinned to %s: %+v, %v", pinned, s.Unit, err)
		}
	}
}

// told are the messages of Events.
func told(all []events.Event) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Message
	}
	return strings.Join(texts, "; ")
}
