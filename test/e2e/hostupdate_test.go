// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/follow"
	"moult.dev/moult/test/operator"
)

// Two hosts, one with the Update API and one that a sentinel file tells to reboot, are updated one after the other, with what
// runs on them moved away before each reboot.
func TestHostUpdate(t *testing.T) {
	t.Parallel()
	all := takeMachines(t, 2)
	journal := newNodeJournal(t)
	updates := newUpdates(t, all, byUpdateAPI, bySentinel)
	serves := deploy(t, "serves", 3, 2)
	pods := newPodJournal(t, serves)
	r := newRollout("hosts", all...)
	r.Spec.Drain = &v1alpha1.NodeDrain{DeleteEmptyDirData: ptr.To(true)}
	createRollout(t, r)
	r = rolledOut(t, r.Name, 2)
	updates.check(t, r, journal)
	available(t, serves, 3)
	pods.check(t, journal, 2)
	evictions(t, serves)
}

// updates are hosts that are about to be updated.
type updates struct {
	hosts []*testHost
	boots map[string]string
}

func newUpdates(t *testing.T, machines []*cluster.Machine, kinds ...hostKind) *updates {
	t.Helper()
	u := &updates{boots: map[string]string{}}
	for i, m := range machines {
		u.boots[m.Name()] = m.BootID()
		u.hosts = append(u.hosts, newHost(t, m, kinds[i]))
	}
	return u
}

// check checks that each host was updated by one reboot, as the protocol has it, and one after the other.
func (u *updates) check(t *testing.T, r *v1alpha1.NodeRollout, journal *nodeJournal) {
	t.Helper()
	for _, h := range u.hosts {
		name := h.machine.Name()
		// What the last word was follows when the rollout is done.
		want := slices.Concat(bottlerocket.Labelled, bottlerocket.Found, bottlerocket.Updated)
		var trace []string
		eventually(t, name+" has nothing more to say", func(context.Context) (string, bool) {
			trace = bottlerocket.Trace(journal.of(t, name))
			return strings.Join(trace, "\n"), len(trace) >= len(want)
		})
		if diff := gocmp.Diff(want, trace); diff != "" {
			t.Errorf("the trace of %s (-want +got)\n%s", name, diff)
		}
		u.keys(t, journal.of(t, name), r, h)
		h.updatedOnce(t, u.boots[name])
		released(t, name, false)
	}
	u.oneAtATime(t, journal)
}

// updatedOnce checks that a host runs the new version, or needs no reboot any more, after exactly one.
func (h *testHost) updatedOnce(t *testing.T, before string) {
	t.Helper()
	name := h.machine.Name()
	boots, err := h.Boots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	orders, err := h.Orders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(boots) != 2 || len(orders) != 1 || boots[0].BootID != before || orders[0].BootID != before || boots[1].BootID == before {
		t.Errorf("%s has booted %v, by the orders %v, want two boots and one order in the first, %s", name, boots, orders, before)
	}
	n := node(t, name)
	if got := n.Status.NodeInfo.BootID; len(boots) > 0 && got != boots[len(boots)-1].BootID {
		t.Errorf("the node %s has boot id %s", name, got)
	}
	if h.kind.is == v1alpha1.InterfaceSentinel {
		return
	}
	if got, err := h.OSRelease(t.Context(), "VERSION_ID"); err != nil || got != newVersion {
		t.Errorf("%s runs %s, %v, want %s", name, got, err, newVersion)
	}
	if want := "Bottlerocket OS " + newVersion; !strings.HasPrefix(n.Status.NodeInfo.OSImage, want) {
		t.Errorf("the node %s has the osImage %q, want %q", name, n.Status.NodeInfo.OSImage, want)
	}
}

// keys checks what stands beside the protocol.
func (u *updates) keys(t *testing.T, states []*corev1.Node, r *v1alpha1.NodeRollout, h *testHost) {
	t.Helper()
	versions := h.kind.is != v1alpha1.InterfaceSentinel
	protocol, _, _ := v1alpha1.HostProtocolOf(map[string]string{h.kind.label: h.kind.value})
	claimed := false
	for _, n := range states {
		intent := bottlerocket.Intent(n)
		if intent == "" {
			continue
		}
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil || len(claims) > 1 || len(claims) == 1 && claims[0].UID != r.UID {
			t.Errorf("%s at %q has the claims %v, %v", n.Name, intent, claims, err)
		}
		action := v1alpha1.HostAction(n.Annotations[protocol.Wanted])
		if turn := action != v1alpha1.HostActionStabilize && action != ""; turn != (len(claims) == 1) {
			t.Errorf("%s at %q has the claims %v", n.Name, intent, claims)
		}
		claimed = claimed || len(claims) == 1
		if got := n.Labels[protocol.Update]; got != n.Annotations[protocol.Update] {
			t.Errorf("%s at %q has the label %s=%q", n.Name, intent, protocol.Update, got)
		}
		for _, key := range []string{protocol.Wanted, protocol.Active, protocol.State} {
			if value, ok := n.Labels[key]; ok {
				t.Errorf("%s at %q has the label %s=%q", n.Name, intent, key, value)
			}
		}
		if versions && action == v1alpha1.HostActionPrepare && n.Annotations[v1alpha1.AnnotationHostWanted] != newVersion {
			t.Errorf("%s at %q is to run %q", n.Name, intent, n.Annotations[v1alpha1.AnnotationHostWanted])
		}
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded != n.Spec.Unschedulable {
			t.Errorf("%s at %q is kept from load balancers: %t", n.Name, intent, excluded)
		}
	}
	if !claimed {
		t.Errorf("%s was never claimed", h.machine.Name())
	}
	last := states[len(states)-1]
	want := map[string]string{v1alpha1.AnnotationHostVersion: newVersion, v1alpha1.AnnotationHostPrevious: oldVersion}
	if !versions {
		want = map[string]string{}
	}
	got := map[string]string{}
	for _, key := range []string{
		v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostPrevious, v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostWanted,
		v1alpha1.AnnotationHostAttempts, v1alpha1.AnnotationHostError, v1alpha1.AnnotationHostBoot,
	} {
		if value, ok := last.Annotations[key]; ok {
			got[key] = value
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the annotations of %s at the end (-want +got)\n%s", last.Name, diff)
	}
}

// oneAtATime checks that no two hosts were in a turn at once, nor two nodes cordoned.
func (u *updates) oneAtATime(t *testing.T, journal *nodeJournal) {
	t.Helper()
	now := map[string]*corev1.Node{}
	for _, h := range u.hosts {
		now[h.machine.Name()] = nil
	}
	for _, n := range journal.all(t) {
		if _, ours := now[n.Name]; !ours {
			continue
		}
		now[n.Name] = n
		var claimed, cordoned []string
		for name, n := range now {
			if n == nil || bottlerocket.Intent(n) == "" {
				continue
			}
			if n.Annotations[v1alpha1.AnnotationClaims] != "" {
				claimed = append(claimed, name)
			}
			if n.Spec.Unschedulable {
				cordoned = append(cordoned, name)
			}
		}
		if len(claimed) > 1 || len(cordoned) > 1 {
			t.Errorf("at once %v were claimed and %v cordoned", claimed, cordoned)
		}
	}
}

// podJournal sees every change of a Deployment's pods.
type podJournal struct {
	pods []*corev1.Pod
	done chan struct{}
	stop context.CancelFunc
}

func newPodJournal(t *testing.T, d *appsv1.Deployment) *podJournal {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	j := &podJournal{done: make(chan struct{}), stop: stop}
	var now corev1.PodList
	if err := world.List(ctx, &now, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	for i := range now.Items {
		j.pods = append(j.pods, &now.Items[i])
	}
	changes := make(chan follow.Change, 1000)
	go func() {
		defer close(changes)
		_ = follow.Changes(ctx, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = metav1.FormatLabelSelector(d.Spec.Selector)
			return world.clientset.CoreV1().Pods(d.Namespace).Watch(ctx, o)
		}, now.ResourceVersion, changes)
	}()
	go func() {
		defer close(j.done)
		for c := range changes {
			if p, ok := c.Object.(*corev1.Pod); ok {
				if c.Type == watch.Deleted {
					p.Status.Phase = corev1.PodSucceeded
				}
				j.pods = append(j.pods, p)
			}
		}
	}()
	return j
}

// check checks that there were never fewer pods that served, and that none was left on a host that was ordered to reboot.
func (j *podJournal) check(t *testing.T, journal *nodeJournal, fewest int) {
	t.Helper()
	states := journal.all(t)
	j.stop()
	<-j.done
	type event struct {
		revision uint64
		node     *corev1.Node
		pod      *corev1.Pod
	}
	var events []event
	for _, n := range states {
		events = append(events, event{revision: revisionOf(t, n), node: n})
	}
	for _, p := range j.pods {
		revision, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event{revision: revision, pod: p})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.revision, b.revision) })
	pods := map[string]*corev1.Pod{}
	began, moved := false, false
	for _, e := range events {
		if e.pod != nil {
			pods[e.pod.Name] = e.pod
			serving := 0
			for _, p := range pods {
				if bottlerocket.Serves(p) {
					serving++
				}
			}
			// The first states are those of before the journal, one after the other.
			if began = began || serving >= fewest; began && serving < fewest {
				t.Errorf("at revision %d %d pods served, want %d at least", e.revision, serving, fewest)
			}
			continue
		}
		if !strings.HasPrefix(bottlerocket.Intent(e.node), "reboot-update,perform-update") {
			continue
		}
		for _, p := range pods {
			moved = moved || bottlerocket.Ended(p)
			if p.Spec.NodeName == e.node.Name && !bottlerocket.Ended(p) {
				t.Errorf("%s was ordered to reboot with %s on it, which is %s", e.node.Name, p.Name, p.Status.Phase)
			}
		}
	}
	if !moved {
		t.Error("no pod was moved")
	}
}

// evictions checks that the operator has moved a Deployment's pods by evictions, and deleted none.
func evictions(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	log, err := audit.Open(world.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	evicted := 0
	err = log.Read(`"userAgent":"`+operator.UserAgent, func(e *audit.Event) {
		if e.Object.Resource != "pods" || e.Object.Namespace != d.Namespace || !strings.HasPrefix(e.Object.Name, d.Name+"-") {
			return
		}
		switch {
		case e.Verb == "delete":
			t.Errorf("the operator has deleted the pod %s", e.Object.Name)
		case e.Verb == "create" && e.Object.Subresource == "eviction" && !e.Refused():
			evicted++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if evicted == 0 {
		t.Error("the operator has evicted no pod")
	}
}
