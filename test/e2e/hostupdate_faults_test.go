// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/bottlerocket"
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

// hostFault is something that goes wrong on a host.
type hostFault struct {
	// title says what it is, where that is more or other than the fault that is injected.
	title string
	fault state.Fault
	value string
	kind  hostKind
	// settings and releases are the host's; by default it can get the new version at once.
	settings state.Settings
	releases []state.Release
	// rollout changes what is asked for.
	rollout func(*v1alpha1.NodeRollout)
	want    ending
	// then is what is done about it, after which the host is updated. Nil: the fault ends, and the rollout is told to try again.
	then func(t *testing.T, h *testHost)
	// stays says that it is not looked at what comes of it then.
	stays bool
}

// name says which one it is.
func (f *hostFault) name() string {
	name := cmp.Or(f.title, string(f.fault))
	if f.value != "" {
		name += "=" + f.value
	}
	if f.kind != byUpdateAPI {
		name += " of " + f.kind.agent
	}
	return strings.ReplaceAll(name, " ", "-")
}

// rebootWithin bounds a reboot.
func rebootWithin(d time.Duration) func(*v1alpha1.NodeRollout) {
	return func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.RebootTimeout = &metav1.Duration{Duration: d} }
}

var hostFaults = []hostFault{
	// The host can't say what there is.
	{fault: state.RefreshFails, value: "no route to host", want: ending{waiting: v1alpha1.ReasonHostError, says: "no route to host"}},
	{fault: state.RefreshFails, value: "no route to host", kind: byUpdog, want: ending{waiting: v1alpha1.ReasonHostError, says: "no route to host"}, stays: true},
	{fault: state.LockHeld, want: ending{waiting: v1alpha1.ReasonHostError}, stays: true},
	{fault: state.Status500, want: ending{waiting: v1alpha1.ReasonHostError}, stays: true},
	{fault: state.StatusTruncated, want: ending{waiting: v1alpha1.ReasonHostError}, stays: true},
	{fault: state.Command500, want: ending{waiting: v1alpha1.ReasonHostError, says: "Update dispatcher failed"}, stays: true},
	{fault: state.CommandDies, value: "refresh", want: ending{waiting: v1alpha1.ReasonHostError}, stays: true},
	{fault: state.APIDrops, want: ending{waiting: v1alpha1.ReasonHostError}, stays: true},
	{fault: state.APIHangs, want: ending{waiting: v1alpha1.ReasonHostError}, stays: true},
	// There is nothing for it.
	{fault: state.NoUpdate, want: ending{}, stays: true},
	{title: "its wave comes later", want: ending{}, settings: state.Settings{Seed: 1500}, releases: laterWave(), stays: true},
	{title: "it offers another version", want: ending{waiting: v1alpha1.ReasonVersionNotOffered}, releases: bottlerocket.Releases(newVersion, "1.21.0"),
		rollout: func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.Version = newVersion }, stays: true},
	// It takes its time.
	{fault: state.RefreshSlow, value: "3s", want: well},
	{fault: state.PrepareSlow, value: "12s", want: well},
	{fault: state.ActivateSlow, value: "2s", want: well},
	{fault: state.LockHeld, value: "5s", want: well},
	{fault: state.RebootSlow, value: "5s", want: well},
	{fault: state.BootSlow, value: "5s", want: well},
	{fault: state.RebootSlow, value: "5s", kind: byUpdog, want: well},
	{fault: state.UpdogOld, kind: byUpdog, want: well},
	{fault: state.RebootUnanswered, want: well},
	// A step fails.
	{fault: state.PrepareFails, want: ending{failed: v1alpha1.ReasonHostUpdateFailed, says: "Input/output error"}},
	{fault: state.PrepareFails, value: "disk full", kind: byUpdog, want: ending{failed: v1alpha1.ReasonHostUpdateFailed, says: "disk full"}},
	{fault: state.ActivateFails, want: ending{failed: v1alpha1.ReasonHostUpdateFailed, says: "Input/output error"}},
	{fault: state.CommandDies, value: "prepare", want: ending{failed: v1alpha1.ReasonHostUpdateFailed, says: "nothing came of it"}},
	// It does not reboot, or not into what it should.
	{fault: state.RebootInhibited, want: ending{failed: v1alpha1.ReasonNotRebooted, says: "inhibited", cordoned: true}},
	{fault: state.RebootIgnored, rollout: rebootWithin(25 * time.Second), want: ending{failed: v1alpha1.ReasonNotRebooted, cordoned: true}},
	{fault: state.RebootIgnored, kind: byUpdog, rollout: rebootWithin(25 * time.Second), want: ending{failed: v1alpha1.ReasonNotRebooted, cordoned: true}},
	{title: "no reboot in time", fault: state.RebootIgnored, rollout: rebootWithin(3 * time.Second),
		want: ending{failed: v1alpha1.ReasonNotRebooted, says: "within rebootTimeout", cordoned: true}},
	{fault: state.BootFails, want: ending{failed: v1alpha1.ReasonVersionUnchanged, says: oldVersion, cordoned: true, reboots: 1}},
	{fault: state.BootFails, kind: byDogswatch, want: ending{failed: v1alpha1.ReasonVersionUnchanged, says: oldVersion, cordoned: true, reboots: 1}},
	{fault: state.StillNeeded, kind: bySentinel, want: ending{failed: v1alpha1.ReasonVersionUnchanged, says: "still needs to reboot", cordoned: true, reboots: 1}},
	// A host that comes back late is updated all the same.
	{fault: state.BootHangs, rollout: rebootWithin(time.Minute), want: ending{failed: v1alpha1.ReasonRebootTimeout, cordoned: true}, then: func(t *testing.T, h *testHost) {
		if err := h.ClearFault(t.Context(), state.BootHangs); err != nil {
			t.Fatal(err)
		}
	}},
}

func laterWave() []state.Release {
	all := bottlerocket.Releases(newVersion)
	all[0].Waves = map[int]time.Time{1024: time.Now().Add(24 * time.Hour)}
	return all
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
		if f.kind == (hostKind{}) {
			f.kind = byUpdateAPI
		}
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
		if out, err := kubectl(context.WithoutCancel(t.Context()), "apply", "--server-side", "--force-conflicts", "-k", "../../config/default",
			"-l", "app.kubernetes.io/name=moult-agent"); err != nil {
			t.Error(err, out)
		}
	})
}

func (f *hostFault) run(t *testing.T, m *cluster.Machine, name string) {
	releases := f.releases
	if releases == nil {
		releases = bottlerocket.Releases(oldVersion, newVersion)
	}
	journal := newNodeJournal(t)
	h := newHost(t, m, f.kind, f.settings, releases)
	if f.fault != "" {
		if err := h.SetFault(t.Context(), f.fault, f.value); err != nil {
			t.Fatal(err)
		}
	}
	r := newRollout(name, m)
	if f.rollout != nil {
		f.rollout(r)
	}
	createRollout(t, r)
	f.want.check(t, r.Name, h, journal)
	if f.want == well || f.stays {
		return
	}
	reboots := f.want.reboots
	if f.then != nil {
		f.then(t, h)
	} else {
		if err := h.ClearFault(t.Context(), f.fault); err != nil {
			t.Fatal(err)
		}
		editRollout(t, name, func(r *v1alpha1.NodeRollout) {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AnnotationRetry, "now")
		})
	}
	rolledOut(t, name, 1)
	released(t, m.Name(), false)
	if f.kind.is != v1alpha1.InterfaceSentinel {
		h.shows(t, newVersion)
	}
	h.rebooted(t, reboots+1)
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
	eventually(t, "the node is given back", func(context.Context) (string, bool) {
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

// With failed hosts a rollout goes on or halts as its strategy says.
func TestHostUpdateFailureLimit(t *testing.T) {
	t.Parallel()
	two := takeMachines(t, 2)
	var hosts []*testHost
	for _, m := range two {
		h := newHost(t, m, byUpdateAPI, state.Settings{}, bottlerocket.Releases(oldVersion, newVersion))
		if err := h.SetFault(t.Context(), state.PrepareFails, "disk full"); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	r := newRollout("limit", two...)
	r.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0))}
	createRollout(t, r)
	rolloutIs(t, r.Name, "halts at the first failure", func(s *v1alpha1.NodeRolloutStatus) bool {
		return s.Counts.Failed == 1 && s.Failed[0].Reason == v1alpha1.ReasonHostUpdateFailed &&
			len(s.Waiting) == 1 && s.Waiting[0].Reason == v1alpha1.ReasonHalted && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled)
	})
	editRollout(t, r.Name, func(r *v1alpha1.NodeRollout) { r.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(1)) })
	rolloutIs(t, r.Name, "goes on to the second", func(s *v1alpha1.NodeRolloutStatus) bool { return s.Counts.Failed == 2 })
	for _, h := range hosts {
		if err := h.ClearFault(t.Context(), state.PrepareFails); err != nil {
			t.Fatal(err)
		}
		if n := node(t, h.machine.Name()); n.Spec.Unschedulable {
			t.Errorf("%s is unschedulable", n.Name)
		}
	}
	editRollout(t, r.Name, func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy.Retries = &v1alpha1.Retries{Limit: 3, Backoff: &metav1.Duration{Duration: time.Second}}
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AnnotationRetry, "now")
	})
	rolledOut(t, r.Name, 2)
	for _, h := range hosts {
		released(t, h.machine.Name(), false)
		h.rebooted(t, 1)
	}
}

// A drain that can't go on fails the turn, or leaves the host out, and never reboots it.
func TestHostUpdateDrainIsStuck(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	journal := newNodeJournal(t)
	h := newHost(t, m, byUpdateAPI, state.Settings{}, bottlerocket.Releases(oldVersion, newVersion))
	deploy(t, "protected", 1, 1)
	r := newRollout("stuck", m)
	r.Spec.Drain = &v1alpha1.NodeDrain{Timeout: &metav1.Duration{Duration: 3 * time.Second}, OnTimeout: "Skip"}
	createRollout(t, r)
	(&ending{failed: v1alpha1.ReasonDrainTimeout, says: "protected", cordoned: true}).check(t, r.Name, h, journal)

	// A pod that nobody would make again is in the way then, past which no time leads.
	bare := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare", Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeName: m.Name(), TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{Name: "sleep", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"}}},
		},
	}
	if err := world.Create(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(world.Delete(context.WithoutCancel(t.Context()), bare)) })
	editRollout(t, r.Name, func(r *v1alpha1.NodeRollout) { r.Spec.Drain = &v1alpha1.NodeDrain{} })
	(&ending{failed: v1alpha1.ReasonDrainRefused, says: "bare", cordoned: true}).check(t, r.Name, h, journal)

	editRollout(t, r.Name, func(r *v1alpha1.NodeRollout) {
		r.Spec.Drain = &v1alpha1.NodeDrain{Force: true, Timeout: &metav1.Duration{Duration: 3 * time.Second}, OnTimeout: "Force"}
	})
	rolledOut(t, r.Name, 1)
	released(t, m.Name(), false)
	h.rebooted(t, 1)
	h.shows(t, newVersion)
}
