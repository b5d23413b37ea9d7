// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// crash is a connection to the API server that breaks for good once so many writes have got through: the answer to the last is lost.
type crash struct {
	next   http.RoundTripper
	left   *atomic.Int32
	broken chan struct{}
	once   *sync.Once
}

func (c crash) RoundTrip(r *http.Request) (*http.Response, error) {
	dead := errors.New("the process is dead")
	writes := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events")
	if c.left.Load() <= 0 {
		return nil, dead
	}
	if !writes {
		return c.next.RoundTrip(r)
	}
	left := c.left.Add(-1)
	if left < 0 {
		return nil, dead
	}
	resp, err := c.next.RoundTrip(r)
	if left == 0 {
		c.once.Do(func() { close(c.broken) })
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, dead
	}
	return resp, err
}

// killed kills the operator after each write, and after each few, and starts another: nothing is done twice, and nothing is forgotten.
func killed(b *bench) {
	for _, writes := range []int32{1, 2, 3} {
		b.t.Run(fmt.Sprintf("each %d", writes), func(t *testing.T) {
			b.alone(t, func(b *bench) { b.killedAfter(writes) })
		})
	}
}

func (b *bench) killedAfter(writes int32) {
	b.node("killed", "1.0.0", "1.1.0")
	b.pods(nil)
	p := b.pod("pod", "killed", nil)
	b.agents()
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Force: true} })
	kills := 0
	for ; ; kills++ {
		left, broken := &atomic.Int32{}, make(chan struct{})
		left.Store(writes)
		stop := b.operator(func(next http.RoundTripper) http.RoundTripper {
			return crash{next, left, broken, &sync.Once{}}
		})
		done := time.After(3 * time.Second)
		select {
		case <-broken:
		case <-done:
			if lines := b.journal.of(b.id + "-killed"); len(lines) >= len(updated) {
				stop()
				b.traced()
				b.rebootedOnce()
				if !b.gone(p) {
					b.t.Error("the pod was not evicted")
				}
				if kills < 2 {
					b.t.Errorf("it was killed only %d times", kills)
				}
				return
			}
			if kills > 60 {
				b.t.Fatal("it gets nowhere")
			}
		}
		stop()
	}
}

// pods is a kubelet for the pods of all Nodes here: it runs them, and ends those that are told to end.
func (b *bench) pods(stays func(*corev1.Pod) bool) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	var list corev1.PodList
	watcher, ok := b.Client.(client.WithWatch)
	if !ok {
		b.t.Fatal("the client can't watch")
	}
	w, err := watcher.Watch(ctx, &list)
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || p.Spec.NodeName == "" {
				continue
			}
			switch {
			case p.DeletionTimestamp != nil && (stays == nil || !stays(p)):
				err = b.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
			case p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending:
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				err = b.Status().Update(ctx, p)
			}
			_ = err // It is tried again with the next change, or the test fails.
		}
	}()
	b.t.Cleanup(func() { cancel(); w.Stop(); <-done })
}

// pod makes a pod on a node, for no controller if none is given.
func (b *bench) pod(name, node string, labels map[string]string) *corev1.Pod {
	b.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: b.id + "-" + name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: b.id + "-" + node, Containers: []corev1.Container{{Name: "c", Image: "x"}}, AutomountServiceAccountToken: ptr.To(false)},
	}
	b.eventually("pod "+name+" is created", func() string { return text(client.IgnoreAlreadyExists(b.Create(b.t.Context(), p))) })
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
	return p
}

// labels of a pod, with the test's own.
func (b *bench) labels(more map[string]string) map[string]string {
	all := map[string]string{"test": b.id}
	maps.Copy(all, more)
	return all
}

func (b *bench) gone(p *corev1.Pod) bool {
	b.t.Helper()
	err := b.Get(b.t.Context(), client.ObjectKeyFromObject(p), &corev1.Pod{})
	return client.IgnoreNotFound(err) == nil && err != nil
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// cases numbers them all.
var cases atomic.Int32

// sub runs a case of a test beside others, with hosts and a NodeRollout of its own.
func (b *bench) sub(name string, test func(*bench)) {
	b.t.Run(name, func(t *testing.T) {
		t.Parallel()
		b.alone(t, test)
	})
}

func (b *bench) alone(t *testing.T, test func(*bench)) {
	sub := *b
	sub.t, sub.id, sub.hosts = t, fmt.Sprintf("%s-%d", b.id, cases.Add(1)), map[string]*machine{}
	sub.journal = sub.follow()
	defer func() {
		if t.Failed() {
			sub.dump()
		}
	}()
	test(&sub)
}

// drains has pods evicted, held, refused and left alone.
func drains(b *bench) {
	b.pods(func(p *corev1.Pod) bool { return p.Labels["stays"] != "" })
	b.operator(nil)
	own := map[string]string{"upgrade.cattle.io/controller": "moult"}
	forced := func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Force: true} }
	timed := func(end v1alpha1.DrainOnTimeout) func(*v1alpha1.NodeRolloutSpec) {
		return func(s *v1alpha1.NodeRolloutSpec) {
			s.Drain = &v1alpha1.NodeDrain{Force: true, Timeout: duration(2 * time.Second), OnTimeout: end}
		}
	}
	held := func(b *bench) {
		b.temporary(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: b.id + "-held"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held", "test": b.id}}},
		})
	}
	for _, tc := range []struct {
		name    string
		spec    func(*v1alpha1.NodeRolloutSpec)
		labels  map[string]string
		before  func(*bench)
		status  metav1.ConditionStatus
		message string
		evicted bool
	}{
		{"a pod goes", forced, nil, nil, metav1.ConditionTrue, "1 of 1 nodes updated", true},
		{"a pod without a controller is refused", nil, nil, nil, metav1.ConditionFalse, "can't be drained: 1 pod left; pod default/pod", false},
		{"drains can be left out", func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Disabled: true} }, nil, nil, metav1.ConditionTrue, "1 of 1 nodes updated", false},
		{"the operator's own pods stay", forced, own, nil, metav1.ConditionTrue, "1 of 1 nodes updated", false},
		{"a budget holds a pod", forced, map[string]string{"app": "held"}, held, metav1.ConditionFalse, "1 updating", false},
		{"a drain that takes too long fails", timed("Halt"), map[string]string{"app": "held"}, held, metav1.ConditionFalse, "was not done within its timeout, 2s; 1 pod left; pod default/pod is held by PodDisruptionBudget default/held", false},
		{"or its node is skipped", timed("Skip"), map[string]string{"app": "held"}, held, metav1.ConditionFalse, "the rollout goes on without the node", false},
		{"or its pods are deleted", timed("Force"), map[string]string{"app": "held"}, held, metav1.ConditionTrue, "1 of 1 nodes updated", true},
	} {
		b.sub(tc.name, func(b *bench) {
			b.node("drained", "1.0.0", "1.1.0")
			b.agents()
			p := b.pod("pod", "drained", b.labels(tc.labels))
			b.eventually("the pod runs", func() string {
				if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase != corev1.PodRunning {
					return fmt.Sprint(p.Status.Phase, err)
				}
				return ""
			})
			if tc.before != nil {
				tc.before(b)
				b.eventually("the budget counts the pod", func() string {
					pdb := &policyv1.PodDisruptionBudget{}
					if err := b.Get(b.t.Context(), types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: b.id + "-held"}, pdb); err != nil || pdb.Status.CurrentHealthy != 1 {
						return fmt.Sprint(pdb.Status, err)
					}
					return ""
				})
			}
			change := tc.spec
			if change == nil {
				change = func(*v1alpha1.NodeRolloutSpec) {}
			}
			b.rollout(change)
			b.becomes(tc.status, strings.ReplaceAll(tc.message, "default/", "default/"+b.id+"-"))
			if tc.message == "1 updating" {
				b.eventually("it says what holds it", func() string {
					s := b.status()
					if len(s.Updating) != 1 || s.Updating[0].Phase != v1alpha1.PhaseDraining || !strings.Contains(s.Updating[0].Message, "is held by PodDisruptionBudget default/"+b.id+"-held") {
						return fmt.Sprint(s.Updating)
					}
					for _, c := range b.get(b.id + "-drained").Status.Conditions {
						if c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "NodeRollout/"+b.id+": 1 pod left") {
							return ""
						}
					}
					return "no condition says so"
				})
			} else {
				b.eventually("the node is given back", func() string { return b.idle(b.id + "-drained") })
			}
			if got := b.gone(p); got != tc.evicted {
				b.t.Errorf("the pod is gone: %v", got)
			}
		})
	}
}

// idle says what of a turn is still on a node, or "".
func (b *bench) idle(name string) string {
	n := b.get(name)
	l := line(n)
	if !strings.HasPrefix(l, "stabilize,stabilize,ready") || strings.Contains(l, "unschedulable") || strings.Contains(l, "exclude") {
		return l
	}
	for _, c := range n.Status.Conditions {
		if c.Reason == "MoultTurn" && c.Status == corev1.ConditionTrue {
			return string(c.Type) + " is True"
		}
	}
	return ""
}

// faults ends each fault of a host in a stated reason and a schedulable node.
func faults(b *bench) {
	b.operator(nil)
	broken := errors.New("it is broken")
	quick := func(s *v1alpha1.NodeRolloutSpec) { s.HostUpdate.RebootTimeout = duration(25 * time.Second) }
	for _, tc := range []struct {
		name    string
		host    func(*machine)
		spec    func(*v1alpha1.NodeRolloutSpec)
		reason  v1alpha1.Reason
		message string
		reboots int
		// mend makes the host well again: then it is updated, at once or after a person has asked for it.
		mend  func(*machine)
		retry bool
	}{
		{"prepare fails", func(m *machine) { m.fails["prepare"] = broken }, nil, v1alpha1.ReasonHostUpdateFailed, "prepare-update failed: it is broken", 0,
			func(m *machine) { delete(m.fails, "prepare") }, true},
		{"perform fails", func(m *machine) { m.fails["perform"] = broken }, nil, v1alpha1.ReasonHostUpdateFailed, "perform-update failed: it is broken", 0,
			func(m *machine) { delete(m.fails, "perform") }, true},
		{"the reboot does not come", func(m *machine) { m.ignores = true }, quick, v1alpha1.ReasonNotRebooted, "has not within rebootTimeout, 25s", 1,
			func(m *machine) { m.ignores = false }, true},
		{"the host falls back", func(m *machine) { m.falls = true }, nil, v1alpha1.ReasonVersionUnchanged, "has rebooted, and runs 1.0.0, not 1.1.0", 1,
			func(m *machine) { m.falls = false }, true},
		{"the host stays away, and comes back late", func(m *machine) {
			late := make(chan struct{})
			m.meanwhile, m.mended = func() { <-late }, sync.OnceFunc(func() { close(late) })
		}, quick, v1alpha1.ReasonRebootTimeout, "its node was not ready again within rebootTimeout, 25s", 1, func(m *machine) { m.mended() }, false},
		{"the turn takes too long", func(m *machine) { m.stays = true }, func(s *v1alpha1.NodeRolloutSpec) {
			s.Strategy = &v1alpha1.Strategy{TurnTimeout: duration(15 * time.Second)}
		}, v1alpha1.ReasonTurnTimeout, "took longer than turnTimeout, 15s", 1, nil, false},
	} {
		b.sub(tc.name, func(b *bench) {
			m := b.node("faulty", "1.0.0", "1.1.0", tc.host)
			b.agents()
			if tc.spec == nil {
				tc.spec = func(*v1alpha1.NodeRolloutSpec) {}
			}
			b.rollout(tc.spec)
			b.becomes(metav1.ConditionFalse, tc.message)
			failed := func() string {
				s := b.status()
				if len(s.Failed) != 1 || s.Failed[0].Reason != tc.reason || !strings.Contains(s.Failed[0].Message, tc.message) {
					return fmt.Sprintf("failed are %v", s.Failed)
				}
				n := b.get(b.id + "-faulty")
				if n.Spec.Unschedulable || n.Annotations[bottlerocket.Wanted] != string(v1alpha1.HostActionStabilize) || n.Labels[corev1.LabelNodeExcludeBalancers] != "" {
					return line(n)
				}
				return ""
			}
			b.eventually("it says so", failed)
			if n := m.count("reboot"); n != tc.reboots {
				b.t.Errorf("it was told to reboot %d times", n)
			}
			if tc.mend == nil {
				return
			}
			m.set(tc.mend)
			if tc.retry {
				r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
				body := `{"metadata":{"annotations":{"moult.dev/retry":"1"}}}`
				if tc.reason == v1alpha1.ReasonNotRebooted {
					// What is short for a reboot that does not come must not fail the one that does.
					body = `{"metadata":{"annotations":{"moult.dev/retry":"1"}},"spec":{"hostUpdate":{"rebootTimeout":"1m"}}}`
				}
				if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
					b.t.Fatal(err)
				}
			}
			b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
			b.eventually("the node is given back", func() string { return b.idle(b.id + "-faulty") })
			again := tc.reboots
			if tc.retry {
				again++
			}
			if n := m.count("reboot"); n != again {
				b.t.Errorf("it was told to reboot %d times", n)
			}
		})
	}
}

// abandons gives nodes back that the rollout wants nothing of any more: at once while their hosts have not been told to reboot, and when they
// are back otherwise.
func abandons(b *bench) {
	b.operator(nil)
	patch := func(b *bench, body string) {
		b.t.Helper()
		if err := b.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-left"}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			b.t.Fatal(err)
		}
	}
	for how, leave := range map[string]func(*bench){
		"deleted": func(b *bench) {
			if err := b.Delete(b.t.Context(), &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}); err != nil {
				b.t.Fatal(err)
			}
		},
		"deselected": func(b *bench) { patch(b, `{"metadata":{"labels":{"test":null}}}`) },
		"opted out":  func(b *bench) { patch(b, `{"metadata":{"labels":{"noderollout.moult.dev/`+b.id+`":"disabled"}}}`) },
		"unlabelled": func(b *bench) {
			patch(b, `{"metadata":{"labels":{"bottlerocket.aws/updater-interface-version":null}}}`)
		},
	} {
		given := func(b *bench) string {
			l := line(b.get(b.id + "-left"))
			if how == "unlabelled" && l == ",, " || how != "unlabelled" && strings.HasPrefix(l, "stabilize,") && !strings.Contains(l, " ") ||
				how != "unlabelled" && slices.Contains([]string{"stabilize,unknown,unknown unknown", "stabilize,stabilize,busy unknown", "stabilize,stabilize,ready true", "stabilize,stabilize,ready false",
					"reset-state,unknown,unknown unknown", "reset-state,reset-state,busy unknown", "reset-state,reset-state,ready true"}, l) {
				return ""
			}
			return l
		}
		b.sub(how+" before the order to reboot", func(b *bench) {
			b.node("left", "1.0.0", "1.1.0")
			b.pods(func(p *corev1.Pod) bool { return p.Labels["stays"] != "" })
			p := b.pod("stays", "left", map[string]string{"stays": "yes"})
			b.agents()
			b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Force: true} })
			b.eventually("the node is drained", func() string {
				if l := line(b.get(b.id + "-left")); !strings.HasSuffix(l, "cordoned") {
					return l
				}
				return ""
			})
			leave(b)
			b.eventually("the node is given back", func() string { return given(b) })
			if b.gone(p) || b.hosts[b.id+"-left"].count("reboot") != 0 {
				b.t.Error("it went on all the same")
			}
			if how != "unlabelled" { // Nobody is there then who could.
				b.eventually("the next boot is one into what runs", func() string { return b.hosts[b.id+"-left"].marked() })
			}
		})
		b.sub(how+" after the order to reboot", func(b *bench) {
			up := make(chan struct{})
			b.node("left", "1.0.0", "1.1.0", func(m *machine) { m.meanwhile = func() { <-up } })
			b.agents()
			b.rollout()
			b.eventually("the host reboots", func() string {
				if n := b.get(b.id + "-left"); !strings.HasSuffix(line(n), "rebooting") || isReady(n) {
					return line(n)
				}
				return ""
			})
			leave(b)
			b.eventually("it is waited for", func() string {
				if l := line(b.get(b.id + "-left")); !strings.HasSuffix(l, "unschedulable exclude-from-external-load-balancers rebooting") {
					return l
				}
				return ""
			})
			close(up)
			b.eventually("the node is given back", func() string { return given(b) })
			b.rebootedOnce()
		})
	}
}

// wipes has somebody take annotations off in the middle of a turn, each of them at each step: no host reboots twice for it, and no node is left
// unschedulable.
func wipes(b *bench) {
	b.operator(nil)
	p := bottlerocket
	everything := []string{p.Wanted, p.Active, p.State, p.Update, v1alpha1.AnnotationClaims, v1alpha1.AnnotationHostWanted, v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostBoot}
	for _, tc := range []struct {
		what string
		keys []string
	}{
		{"wanted", []string{p.Wanted}},
		{"state", []string{p.State}},
		{"claims", []string{v1alpha1.AnnotationClaims}},
		{"protocol", []string{p.Wanted, p.Active, p.State, p.Update}},
		{"agent", []string{p.Active, p.State, v1alpha1.AnnotationHostBoot}},
		{"all", everything},
	} {
		for _, at := range []string{
			"prepare-update,prepare-update,busy", "perform-update,perform-update,ready true unschedulable",
			"reboot-update,reboot-update,busy", "down", "reboot-update,reboot-update,ready",
		} {
			b.sub(tc.what+" at "+at, func(b *bench) {
				once := sync.Once{}
				wipe := func() {
					once.Do(func() {
						values := make([]string, len(tc.keys))
						for i, key := range tc.keys {
							values[i] = fmt.Sprintf("%q:null", key)
						}
						body := `{"metadata":{"annotations":{` + strings.Join(values, ",") + `}}}`
						err := b.Patch(context.WithoutCancel(b.t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-wiped"}}, client.RawPatch(types.MergePatchType, []byte(body)))
						if err != nil {
							b.t.Error(err)
						}
					})
				}
				m := b.node("wiped", "1.0.0", "1.1.0", func(m *machine) {
					if at == "down" {
						m.meanwhile = wipe
					}
				})
				done := make(chan struct{})
				b.when(b.id+"-wiped", at, wipe, done)
				b.agents()
				timeout := 30 * time.Second
				if at == "reboot-update,reboot-update,busy" {
					timeout = 10 * time.Second // It is waited for if no reboot comes.
				}
				b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.HostUpdate.RebootTimeout = duration(timeout) })
				b.eventually("it comes to rest", func() string {
					s := b.status()
					if s.Counts == nil || s.Counts.Updated != 1 && s.Counts.Failed != 1 {
						return fmt.Sprint(s.Counts, s.Updating, s.Waiting)
					}
					if len(s.Failed) > 0 {
						return strings.TrimPrefix(b.idle(b.id+"-wiped"), "stabilize,stabilize,ready true NotRebooted")
					}
					return b.idle(b.id + "-wiped")
				})
				close(done)
				// An order that was taken away before the host went down does not come back in the same turn.
				s, n := b.status(), m.count("reboot")
				withdrawn := at == "reboot-update,reboot-update,busy" && n == 0 && m.boots == 1 && len(s.Failed) == 1
				if !withdrawn && (n != 1 || m.boots != 2 || m.runs != "1.1.0" || s.Counts.Updated != 1) {
					b.t.Errorf("it was told to reboot %d times, has booted %d times, and runs %s: %v", n, m.boots, m.runs, s.Failed)
				}
			})
		}
	}
}

// when calls a function once a Node's line begins so.
func (b *bench) when(name, prefix string, do func(), done <-chan struct{}) {
	watcher, ok := b.Client.(client.WithWatch)
	if !ok {
		b.t.Fatal("the client can't watch")
	}
	w, err := watcher.Watch(b.t.Context(), &corev1.NodeList{})
	if err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer w.Stop()
		for {
			select {
			case <-done:
				return
			case <-b.t.Context().Done():
				return
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				if n, ok := e.Object.(*corev1.Node); ok && n.Name == name && strings.HasPrefix(line(n), prefix) {
					do()
				}
			}
		}
	}()
	b.t.Cleanup(func() { w.Stop(); <-ended })
}

// peer runs an agent of the Bottlerocket update operator: it says what the protocol says and nothing else, writes whole Nodes, and leaves
// empty labels.
func (b *bench) peer(m *machine) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	post := func(n *corev1.Node, active v1alpha1.HostAction, state v1alpha1.HostState, update string) error {
		n.Annotations[bottlerocket.Active], n.Annotations[bottlerocket.State] = string(active), string(state)
		for _, key := range []string{bottlerocket.Wanted, bottlerocket.Active, bottlerocket.State} {
			n.Labels[key] = ""
		}
		if update != "" {
			n.Annotations[bottlerocket.Update], n.Labels[bottlerocket.Update] = update, update
		}
		return b.Update(ctx, n)
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			n := &corev1.Node{}
			if err := b.Get(ctx, types.NamespacedName{Name: m.name}, n); err != nil {
				continue
			}
			wanted, active := v1alpha1.HostAction(n.Annotations[bottlerocket.Wanted]), v1alpha1.HostAction(n.Annotations[bottlerocket.Active])
			if wanted == "" || wanted == active {
				continue
			}
			if post(n, wanted, v1alpha1.HostStateBusy, "") != nil {
				continue
			}
			update := ""
			switch wanted {
			case v1alpha1.HostActionStabilize:
				offer, _ := m.Check(ctx)
				update = fmt.Sprint(offer.Available)
			case v1alpha1.HostActionPrepare:
				_ = m.Prepare(ctx, "")
			case v1alpha1.HostActionPerform:
				_ = m.Perform(ctx, "")
			case v1alpha1.HostActionReboot:
				m.set(func(m *machine) { m.calls["reboot"]++ })
				b.reboot(ctx, m)
			case v1alpha1.HostActionUnknown, v1alpha1.HostActionReset:
			}
			for ctx.Err() == nil {
				if err := b.Get(ctx, types.NamespacedName{Name: m.name}, n); err == nil && post(n, wanted, v1alpha1.HostStateReady, update) == nil {
					break
				}
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); <-done })
}

// takesOver goes on where the Bottlerocket update operator has stopped, with its agents.
func takesOver(b *bench) {
	b.operator(nil)
	b.sub("the peer's agent", func(b *bench) {
		m := b.node("peer", "1.0.0", "1.1.0")
		b.peer(m)
		b.rollout()
		b.eventually("it is updated", func() string {
			if s := b.status(); b.idle(b.id+"-peer") != "" || s.Counts == nil || s.Counts.Updated != 1 || m.runs != "1.1.0" {
				return fmt.Sprint(b.idle(b.id+"-peer"), s.Counts, m.runs)
			}
			return ""
		})
		b.rebootedOnce()
	})
	b.sub("a peer's agent that says ready after a boot that fell back", func(b *bench) {
		m := b.node("peer", "1.0.0", "1.1.0", func(m *machine) { m.falls = true })
		b.peer(m)
		b.rollout()
		b.becomes(metav1.ConditionFalse, "has rebooted, and runs 1.0.0 as before")
		b.rebootedOnce()
	})
	for name, left := range map[string]string{
		"while it prepared":              "prepare-update,prepare-update,busy",
		"before it performed":            "perform-update,prepare-update,ready",
		"before it said reboot":          "perform-update,perform-update,ready",
		"once it had said reboot":        "reboot-update,perform-update,ready",
		"in the reboot":                  "reboot-update,reboot-update,busy",
		"after the reboot":               "reboot-update,reboot-update,ready",
		"in what makes no sense to us":   "unknown,reboot-update,error",
		"in what makes no sense to them": "update-me,please,now",
	} {
		b.sub("the peer ended "+name, func(b *bench) {
			m := b.node("peer", "1.0.0", "1.1.0")
			words := strings.SplitN(left, ",", 3)
			rebooting := words[0] == string(v1alpha1.HostActionReboot)
			m.set(func(m *machine) {
				if m.prepared = m.offers; rebooting {
					m.next = m.offers
				}
			})
			if words[1] == string(v1alpha1.HostActionReboot) && rebooting {
				m.set(func(m *machine) { m.calls["reboot"]++ })
				m.boot()
				b.kubelet(m)
			}
			body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q,%q:%q},"labels":{%q:"",%q:""}},"spec":{"unschedulable":%v}}`,
				bottlerocket.Wanted, words[0], bottlerocket.Active, words[1], bottlerocket.State, words[2], bottlerocket.Wanted, bottlerocket.Active, rebooting)
			if err := b.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-peer"}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
				b.t.Fatal(err)
			}
			b.agents()
			b.rollout()
			b.eventually("it is updated", func() string {
				if s := b.status(); b.idle(b.id+"-peer") != "" || s.Counts == nil || s.Counts.Updated != 1 || m.runs != "1.1.0" {
					return fmt.Sprint(b.idle(b.id+"-peer"), s.Counts, m.runs)
				}
				return ""
			})
			b.rebootedOnce()
			if n := b.get(b.id + "-peer"); n.Labels[bottlerocket.Update] == "" || n.Labels[bottlerocket.State] != "" {
				b.t.Errorf("labels are %v", n.Labels)
			}
			for _, key := range []string{bottlerocket.Wanted, bottlerocket.Active} {
				if _, there := b.get(b.id + "-peer").Labels[key]; there {
					b.t.Errorf("the empty label %s is still there", key)
				}
			}
		})
	}
}

// sentinel updates hosts whose updates have no name.
func sentinel(b *bench) {
	b.operator(nil)
	unnamed := func(m *machine) { m.unnamed = true }
	b.node("one", "1", "2", unnamed)
	b.node("two", "2", "2", unnamed)
	b.agents()
	b.rollout()
	b.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
	if s := b.status(); s.Revision != "reboot-1" || len(s.Versions) != 0 || len(s.Releases) != 0 {
		b.t.Errorf("status is %+v", s)
	}
	if one, two := b.hosts[b.id+"-one"], b.hosts[b.id+"-two"]; one.count("reboot") != 1 || two.count("reboot") != 0 {
		b.t.Errorf("they were told to reboot %d and %d times", one.count("reboot"), two.count("reboot"))
	}
}

// hooks are waited for before and after the reboot.
func hooks(b *bench) {
	b.operator(nil)
	b.node("hooked", "1.0.0", "1.1.0")
	b.agents()
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
		s.HostUpdate.Hooks = &v1alpha1.RebootHooks{BeforeReboot: []string{"ceph.example.com/noout", "b"}, AfterReboot: []string{"after"}}
	})
	says := func(keys ...string) {
		b.t.Helper()
		values := make([]string, len(keys))
		for i, key := range keys {
			values[i] = fmt.Sprintf("%q:\"true\"", key)
		}
		body := `{"metadata":{"annotations":{` + strings.Join(values, ",") + `}}}`
		if err := b.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-hooked"}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			b.t.Fatal(err)
		}
	}
	waits := func(suffix string, phase v1alpha1.Phase, message string) {
		b.t.Helper()
		b.eventually("it waits for "+message, func() string {
			s := b.status()
			if l := line(b.get(b.id + "-hooked")); !strings.HasSuffix(l, suffix) || len(s.Updating) != 1 || s.Updating[0].Phase != phase || !strings.Contains(s.Updating[0].Message, message) {
				return fmt.Sprint(l, s.Updating)
			}
			return ""
		})
	}
	waits("perform-update,perform-update,ready true before-reboot claimed", v1alpha1.PhasePreparing, "annotations ceph.example.com/noout, b of the Node must become true before")
	says("b")
	waits("before-reboot claimed", v1alpha1.PhasePreparing, "annotation ceph.example.com/noout of the Node must become true before")
	says("ceph.example.com/noout")
	waits("unschedulable exclude-from-external-load-balancers after-reboot changed", v1alpha1.PhaseVerifying, "annotation after of the Node must become true")
	says("after")
	b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	b.eventually("the node is given back", func() string { return b.idle(b.id + "-hooked") })
	n := b.get(b.id + "-hooked")
	for _, key := range []string{"ceph.example.com/noout", "b", "after"} {
		if _, there := n.Annotations[key]; there {
			b.t.Errorf("annotation %s is still there", key)
		}
	}
	b.rebootedOnce()
}

// twoRolloutsOneNode lets the claim decide who has the node, and neither gets in the other's way.
func twoRolloutsOneNode(b *bench) {
	b.operator(nil)
	b.node("shared", "1.0.0", "1.1.0")
	b.agents()
	other := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-other"}, Spec: v1alpha1.NodeRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, HostUpdate: &v1alpha1.HostUpdate{},
	}}
	b.temporary(other)
	b.rollout()
	b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	b.traced()
	b.rebootedOnce()
}
