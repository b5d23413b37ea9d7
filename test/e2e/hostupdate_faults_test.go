// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket/state"
	"moult.dev/moult/test/cluster"
)

// ending is how a rollout over one host comes out.
type ending struct {
	// failed is the reason of a turn that has failed, and waiting that of a host that is not begun with. With neither the host is
	// up to date, by rebooting or because there is nothing to do.
	failed, waiting v1alpha1.Reason
	// says is in the message.
	says string
	// reboots is how often the host has rebooted, and cordoned whether its node ever was.
	reboots  int
	cordoned bool
}

// well is the end of a host that is updated all the same.
var well = ending{reboots: 1, cordoned: true}

var (
	byUpdog     = hostKind{"bottlerocket.aws/updater-interface-version", "1.0.0", v1alpha1.InterfaceUpdog, "moult-agent-updog"}
	byDogswatch = hostKind{"thar.amazonaws.com/platform-version", "1.0.0", v1alpha1.InterfaceUpdog, "moult-agent-thar"}
)

// Hosts that updog updates, of both kinds, and one with the Update API are updated by one rollout.
func TestHostUpdateOfAllKinds(t *testing.T) {
	t.Parallel()
	all := takeMachines(t, machines)
	journal := newNodeJournal(t)
	updates := newUpdates(t, all, byUpdog, byDogswatch, byUpdateAPI)
	r := newRollout("kinds", all...)
	createRollout(t, r)
	r = rolledOut(t, r.Name, machines)
	updates.check(t, r, journal)
}

// hostFault is something that goes wrong on a host.
type hostFault struct {
	fault state.Fault
	value string
	kind  hostKind
	// rollout changes what is asked for.
	rollout func(*v1alpha1.NodeRollout)
	want    ending
	// itself says that the host is updated when the fault ends. By default the rollout is also told to try again.
	itself bool
}

// name says which one it is.
func (f *hostFault) name() string { return string(f.fault) + " of " + f.kind.agent }

// rebootWithin bounds a reboot.
func rebootWithin(d time.Duration) func(*v1alpha1.NodeRollout) {
	return func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.RebootTimeout = &metav1.Duration{Duration: d} }
}

var hostFaults = []hostFault{
	{fault: state.RefreshFails, value: "no route to host", kind: byUpdateAPI, want: ending{waiting: v1alpha1.ReasonHostError, says: "no route to host"}},
	{fault: state.PrepareFails, value: "disk full", kind: byUpdateAPI, want: ending{failed: v1alpha1.ReasonHostUpdateFailed, says: "disk full"}},
	{fault: state.PrepareFails, value: "disk full", kind: byUpdog, want: ending{failed: v1alpha1.ReasonHostUpdateFailed, says: "disk full"}},
	{fault: state.RebootSlow, value: "5s", kind: byUpdateAPI, want: well},
	{fault: state.RebootUnanswered, kind: byUpdateAPI, want: well},
	{fault: state.UpdogOld, kind: byUpdog, want: well},
	{fault: state.RebootInhibited, kind: byUpdateAPI, want: ending{failed: v1alpha1.ReasonNotRebooted, says: "inhibited", cordoned: true}},
	{fault: state.RebootIgnored, kind: byUpdog, rollout: rebootWithin(25 * time.Second), want: ending{failed: v1alpha1.ReasonNotRebooted, cordoned: true}},
	{fault: state.BootFails, kind: byUpdateAPI, want: ending{failed: v1alpha1.ReasonVersionUnchanged, says: oldVersion, cordoned: true, reboots: 1}},
	{fault: state.BootFails, kind: byDogswatch, want: ending{failed: v1alpha1.ReasonVersionUnchanged, says: oldVersion, cordoned: true, reboots: 1}},
	{fault: state.StillNeeded, kind: bySentinel, want: ending{failed: v1alpha1.ReasonVersionUnchanged, says: "still needs to reboot", cordoned: true, reboots: 1}},
	{fault: state.BootHangs, kind: byUpdateAPI, rollout: rebootWithin(time.Minute), want: ending{failed: v1alpha1.ReasonRebootTimeout, cordoned: true}, itself: true},
}

// Whatever goes wrong on a host ends with a reason, and with a node that pods can be scheduled to.
func TestHostUpdateFaults(t *testing.T) {
	t.Parallel()
	all := takeMachines(t, machines)
	impatientAgents(t)
	free := make(chan *cluster.Machine, len(all))
	for _, m := range all {
		free <- m
	}
	tests := newTogether(t, len(all))
	for i, f := range hostFaults {
		tests.run(fmt.Sprintf("%d-%s", i, f.name()), func(t *testing.T) {
			m := <-free
			t.Cleanup(func() { free <- m })
			f.run(t, m, fmt.Sprintf("fault-%d", i))
		})
	}
	tests.wait()
}

// impatientAgents makes the shipped agents wait less long for a reboot that does not come.
func impatientAgents(t *testing.T) {
	t.Helper()
	for _, k := range []hostKind{byUpdateAPI, byUpdog, byDogswatch, bySentinel} {
		patch := `[{"op":"replace","path":"/spec/template/spec/containers/0/args","value":["run","--reboot-grace=10s"]}]`
		if out, err := kubectl(t.Context(), "patch", "-n", namespace, "daemonset/"+k.agent, "--type=json", "-p", patch); err != nil {
			t.Fatal(err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := kubectl(context.WithoutCancel(t.Context()), "apply", "--server-side", "--force-conflicts", "-k", "../../config/hostupdate/agents"); err != nil {
			t.Error(err, out)
		}
	})
}

func (f *hostFault) run(t *testing.T, m *cluster.Machine, name string) {
	journal := newNodeJournal(t)
	h := newHost(t, m, f.kind)
	if err := h.SetFault(t.Context(), f.fault, f.value); err != nil {
		t.Fatal(err)
	}
	r := newRollout(name, m)
	if f.rollout != nil {
		f.rollout(r)
	}
	createRollout(t, r)
	f.want.check(t, r.Name, h, journal)
	if f.want == well {
		return
	}
	if err := h.ClearFault(t.Context(), f.fault); err != nil {
		t.Fatal(err)
	}
	if !f.itself {
		editRollout(t, name, func(r *v1alpha1.NodeRollout) {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AnnotationRetry, "now")
		})
	}
	rolledOut(t, name, 1)
	released(t, m.Name(), false)
	if f.kind.is != v1alpha1.InterfaceSentinel {
		h.shows(t, newVersion)
	}
	h.rebooted(t, f.want.reboots+1)
}

// check waits for the ending, and looks at what led to it.
func (e *ending) check(t *testing.T, name string, h *testHost, journal *nodeJournal) {
	t.Helper()
	within(t, 3*patience, "how it ends", func(context.Context) (string, bool) {
		s := rollout(t, name).Status
		if s.Counts == nil {
			return "nothing is known", false
		}
		seen := fmt.Sprintf("%+v %+v updating %+v failed %+v waiting %+v", s.Conditions, *s.Counts, s.Updating, s.Failed, s.Waiting)
		switch {
		case e.failed != "":
			return seen, len(s.Failed) == 1 && s.Failed[0].Reason == e.failed && strings.Contains(s.Failed[0].Message, e.says)
		case e.waiting != "":
			return seen, len(s.Waiting) == 1 && s.Waiting[0].Reason == e.waiting && strings.Contains(s.Waiting[0].Message, e.says)
		default:
			return seen, meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) && s.Counts.Updated == 1
		}
	})
	var n *corev1.Node
	eventually(t, "the node is released", func(context.Context) (string, bool) {
		n = node(t, h.machine.Name())
		_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
		return fmt.Sprintf("unschedulable %t, labels %v, annotations %v", n.Spec.Unschedulable, n.Labels, n.Annotations),
			!n.Spec.Unschedulable && !excluded && n.Annotations[v1alpha1.AnnotationCordonedBy] == ""
	})
	if e.failed == "" {
		released(t, n.Name, false)
	}
	cordoned := slices.ContainsFunc(journal.of(t, n.Name), func(n *corev1.Node) bool { return n.Spec.Unschedulable })
	if cordoned != e.cordoned {
		t.Errorf("the node was ever cordoned: %t, want %t", cordoned, e.cordoned)
	}
	h.rebooted(t, e.reboots)
}

// rebooted checks how often a host has rebooted since it was made.
func (h *testHost) rebooted(t *testing.T, times int) {
	t.Helper()
	boots, err := h.Boots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(boots)-1 != times {
		t.Errorf("it has rebooted %d times, want %d: %v", len(boots)-1, times, boots)
	}
}

// together runs subtests, so many at once. Parallel subtests would wait for the slots of other tests.
type together struct {
	*testing.T
	group sync.WaitGroup
	slots chan struct{}
}

func newTogether(t *testing.T, atOnce int) *together {
	t.Helper()
	return &together{T: t, slots: make(chan struct{}, atOnce)}
}

func (a *together) run(name string, test func(*testing.T)) {
	a.group.Go(func() {
		a.slots <- struct{}{}
		defer func() { <-a.slots }()
		a.Run(name, test)
	})
}

func (a *together) wait() { a.group.Wait() }
