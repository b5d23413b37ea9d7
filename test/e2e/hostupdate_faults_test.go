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

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
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

// A version with which a daemon is not ready on three hosts is taken back: they boot the version before from their other partitions.
func TestHostsRollBack(t *testing.T) {
	t.Parallel()
	all := takeMachines(t, machines)
	updates := newUpdates(t, all, byUpdog, byUpdog, byUpdog)
	needsVersion(t, "needs-old", oldVersion)
	r := newRollout("rolls-back", all...)
	r.Spec.HostUpdate.Version = oldVersion
	// What is said of a pod before the reboot counts until the kubelet says something else.
	r.Spec.Health = &v1alpha1.NodeHealth{Pods: []v1alpha1.StablePods{{
		Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "needs-old"}}, Seconds: 15,
	}}}
	r.Spec.Strategy = &v1alpha1.Strategy{
		MaxConcurrent: ptr.To(intstr.FromString("100%")), MaxFailures: ptr.To(intstr.FromInt32(machines - 1)), Rollback: true,
		TurnTimeout: &metav1.Duration{Duration: 2 * time.Minute},
	}
	createRollout(t, r)
	rolloutIs(t, r.Name, "was complete", func(s *v1alpha1.NodeRolloutStatus) bool { return s.LastComplete == oldVersion })
	editRollout(t, r.Name, func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.Version = newVersion })
	rolloutIs(t, r.Name, "is rolled back", func(s *v1alpha1.NodeRolloutStatus) bool {
		return s.RolledBack == newVersion && s.Revision == oldVersion
	})
	rolledOut(t, r.Name, machines)
	for _, h := range updates.hosts {
		h.shows(t, oldVersion)
		h.rebooted(t, 2)
		released(t, h.machine.Name(), false)
		entries, err := h.Journal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ran []string
		for _, e := range entries {
			if e.What == state.EventBoot {
				ran = append(ran, e.Version)
			}
			if strings.HasPrefix(e.What, "signpost") || e.What == "updog update-image" {
				ran = append(ran, e.What)
			}
		}
		want := []string{oldVersion, "updog update-image", newVersion, "signpost rollback-to-inactive", oldVersion}
		if diff := cmp.Diff(want, ran); diff != "" {
			t.Errorf("what ran on %s (-want +got)\n%s", h.machine.Name(), diff)
		}
	}
	eventually(t, "events", func(context.Context) (string, bool) {
		got := eventReasons(t, "NodeRollout", r.Name)
		return fmt.Sprint(got), got["RolledBack"] == 1
	})
}

// needsVersion makes a DaemonSet on the test's machines that is ready only on hosts with this version.
func needsVersion(t *testing.T, name, version string) {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					NodeSelector:                  map[string]string{target: labelOf(t)},
					Volumes: []corev1.Volume{{Name: "etc", VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/etc"},
					}}},
					Containers: []corev1.Container{{
						Name: "sleep", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
						VolumeMounts: []corev1.VolumeMount{{Name: "etc", MountPath: "/host/etc", ReadOnly: true}},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{
							Exec: &corev1.ExecAction{Command: []string{"grep", "-q", "VERSION_ID=" + version, "/host/etc/os-release"}},
						}},
					}},
				},
			},
		},
	}
	if err := world.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNow(t, d) })
	eventually(t, name+" is ready on each machine", func(ctx context.Context) (string, bool) {
		err := world.Get(ctx, client.ObjectKeyFromObject(d), d)
		return fmt.Sprint(d.Status, err), err == nil && d.Status.NumberReady == machines
	})
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
