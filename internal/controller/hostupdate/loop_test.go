// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/turn"
)

// loop runs NodeRollouts over simulated hosts: an API server in memory, a controller that is called by hand, and a clock
// that moves only when neither the controller nor a host has anything to do.
type loop struct {
	*testing.T
	clock  *clocktesting.FakePassiveClock
	api    client.Client
	scheme *runtime.Scheme
	hosts  map[string]*simulated
	names  []string
	// lines are the states of each Node, each once in a row.
	lines map[string][]string
	// changes counts the writes that changed something.
	changes int
	// meanwhile is called between any two steps.
	meanwhile func()
	// protects is whether a PodDisruptionBudget refuses each eviction.
	protects bool
	// life is how many writes each process of the operator has; 0 is any number.
	life int
	// evicted are the nodes of pods that have gone since the last look.
	evicted []string
	// order are the lines of all Nodes in order.
	order []string

	*operator
}

// operator is one process of the operator.
type operator struct {
	*Controller
	mu sync.Mutex
	// writes counts its writes by the Node or NodeRollout.
	writes map[string]int
	// left is how many writes it has left; negative is any number. lost says that the last of them is not carried out.
	left int
	lost bool
	dead bool
}

// podsIn are the pods of an API server.
type podsIn struct{ client.Reader }

func (podsIn) Run(context.Context) error { return nil }
func (podsIn) Watch(string)              {}
func (podsIn) Stop(string)               {}
func (p podsIn) Pods(node string) ([]corev1.Pod, bool) {
	var list corev1.PodList
	err := p.List(context.Background(), &list, client.MatchingFields{drain.NodeNameField: node})
	return list.Items, err == nil
}

// noEvents takes Events and keeps none.
type noEvents struct{ typedcorev1.EventInterface }

func (noEvents) CreateWithEventNamespaceWithContext(_ context.Context, e *corev1.Event) (*corev1.Event, error) {
	return e, nil
}

func (noEvents) PatchWithEventNamespaceWithContext(_ context.Context, e *corev1.Event, _ []byte) (*corev1.Event, error) {
	return e, nil
}

var errDead = errors.New("the process is dead")

// newLoop makes a loop with the NodeRollout "os".
func newLoop(t *testing.T, change ...func(*v1alpha1.NodeRollout)) *loop {
	t.Helper()
	l := &loop{T: t, clock: clocktesting.NewFakePassiveClock(now), scheme: runtime.NewScheme(), hosts: map[string]*simulated{}, lines: map[string][]string{}}
	if err := errors.Join(corev1.AddToScheme(l.scheme), policyv1.AddToScheme(l.scheme), v1alpha1.AddToScheme(l.scheme)); err != nil {
		t.Fatal(err)
	}
	store := fake.NewClientBuilder().WithScheme(l.scheme).WithStatusSubresource(&corev1.Node{}, &v1alpha1.NodeRollout{}).
		WithIndex(&corev1.Pod{}, drain.NodeNameField, func(o client.Object) []string {
			p, _ := o.(*corev1.Pod)
			return []string{p.Spec.NodeName}
		}).Build()
	l.api = intercepted(store, func(o client.Object, _ bool, do func() error) error {
		err := do()
		if err == nil {
			l.changes++
			l.note(store, o)
			if _, is := o.(*corev1.Pod); is {
				l.evicted = append(l.evicted, strings.TrimPrefix(o.GetName(), "pod-"))
			}
		}
		return err
	})
	l.add(newRollout(append([]func(*v1alpha1.NodeRollout){func(r *v1alpha1.NodeRollout) { r.ResourceVersion = "" }}, change...)...))
	l.restart()
	t.Cleanup(func() {
		if t.Failed() {
			for name, lines := range l.lines {
				t.Logf("%s:\n%s", name, strings.Join(lines, "\n"))
			}
			text, err := json.MarshalIndent(l.status(), "", "  ")
			t.Logf("status: %s %v", text, err)
		}
	})
	return l
}

// intercepted is a client whose writes go through a function.
func intercepted(c client.WithWatch, write func(o client.Object, evicts bool, do func() error) error) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(o, false, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(o, false, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(o, false, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(o, false, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(o, false, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, what client.Object, opts ...client.SubResourceCreateOption) error {
			return write(o, true, func() error { return c.SubResource(sub).Create(ctx, o, what, opts...) })
		},
	})
}

// restart starts another process of the operator, which knows nothing of the last.
func (l *loop) restart() {
	o := &operator{writes: map[string]int{}, left: cmp.Or(l.life, -1)}
	api, _ := l.api.(client.WithWatch)
	c := intercepted(api, func(what client.Object, evicts bool, do func() error) error {
		o.mu.Lock() // Writes for several nodes come at once.
		defer o.mu.Unlock()
		switch {
		case o.dead:
			return errDead
		case evicts && l.protects:
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Reason: metav1.StatusReasonTooManyRequests, Code: 429,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "the disruption budget pdb needs 1 healthy pods"}}},
			}}
		}
		o.writes[what.GetName()]++
		if o.left--; o.left != 0 {
			return do()
		}
		if o.dead = true; o.lost {
			return errDead
		}
		return errors.Join(do(), errDead)
	})
	f := fleet.New(l.clock, c, nil)
	recorder := events.NewRecorder(l.Context(), clock.RealClock{}, noEvents{}, l.scheme, "moult", "n")
	l.Cleanup(func() { recorder.Shutdown(context.Background()) })
	o.Controller = NewController(l.clock, c, c, nil, f, recorder, Options{})
	o.Works, o.Reports = turn.NewWorks(podsIn{l.api}), fleet.NewReports(0)
	l.operator = o
}

func (l *loop) add(objects ...client.Object) {
	l.Helper()
	for _, o := range objects {
		if err := l.api.Create(l.Context(), o); err != nil {
			l.Fatal(err)
		}
	}
}

// note keeps the state of a Node.
func (l *loop) note(store client.Reader, o client.Object) {
	n := &corev1.Node{}
	if _, is := o.(*corev1.Node); !is || store.Get(l.Context(), client.ObjectKeyFromObject(o), n) != nil {
		return
	}
	if lines := l.lines[n.Name]; len(lines) == 0 || lines[len(lines)-1] != line(n) {
		l.lines[n.Name] = append(lines, line(n))
		l.order = append(l.order, n.Name+": "+line(n))
	}
}

func (l *loop) node(name string) *corev1.Node {
	l.Helper()
	n := &corev1.Node{}
	if err := l.api.Get(l.Context(), types.NamespacedName{Name: name}, n); err != nil {
		l.Fatal(err)
	}
	return n
}

func (l *loop) status() v1alpha1.NodeRolloutStatus {
	l.Helper()
	r := &v1alpha1.NodeRollout{}
	if err := l.api.Get(l.Context(), types.NamespacedName{Name: "os"}, r); client.IgnoreNotFound(err) != nil {
		l.Error(err)
	}
	return r.Status
}

// edit changes an object as a person does, by a merge patch.
func (l *loop) edit(o client.Object, name, patch string) {
	l.Helper()
	o.SetName(name)
	if err := l.api.Patch(l.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		l.Fatal(err)
	}
}

// annotate sets annotations of a Node; nil takes one off.
func (l *loop) annotate(name string, values map[string]any) {
	l.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err != nil {
		l.Fatal(err)
	}
	l.edit(&corev1.Node{}, name, string(body))
}

// until lets operator, hosts and clock go on until nothing is wrong any more. It fails when none of them has anything left to do.
func (l *loop) until(what string, wrong func() string) {
	l.Helper()
	why := ""
	for range 3000 {
		if why = wrong(); why == "" {
			return
		}
		if !l.step() {
			break
		}
	}
	l.Fatalf("%s: nothing happens any more: %s", what, why)
}

// settles lets all go on until nothing but the clock could change anything, and returns when the operator would wake.
func (l *loop) settles() (wake time.Time) {
	l.Helper()
	for range 1000 {
		before := l.changes
		if wake = l.look(); l.changes == before && !l.act() {
			return wake
		}
	}
	l.Fatal("it does not settle")
	return wake
}

// step lets the operator look once, then each host do one thing. Where nothing comes of it the clock moves to when something will.
func (l *loop) step() bool {
	l.Helper()
	before := l.changes
	wake := l.look()
	if l.act() || l.changes != before || l.dead {
		return true
	}
	for _, h := range l.hosts {
		if h.down && !h.upAt.IsZero() && (wake.IsZero() || h.upAt.Before(wake)) {
			wake = h.upAt
		}
	}
	if wake.IsZero() {
		return false
	}
	if earliest := l.clock.Now().Add(time.Millisecond); wake.Before(earliest) {
		wake = earliest
	}
	l.clock.SetTime(wake)
	return true
}

// look lets the operator look at each NodeRollout once. One that died starts again.
func (l *loop) look() (wake time.Time) {
	l.Helper()
	if l.dead {
		l.restart()
	}
	var list v1alpha1.NodeRolloutList
	if err := l.api.List(l.Context(), &list); err != nil {
		l.Fatal(err)
	}
	names := map[string]bool{"os": true} // It may have gone.
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	for _, node := range l.evicted {
		l.Works.Changed(node)
	}
	l.evicted = nil
	for name := range names {
		at, err := l.reconcile(l.Context(), types.NamespacedName{Name: name})
		if err != nil && !apierrors.IsConflict(err) && !l.dead {
			l.Fatal(err)
		}
		if !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
			wake = at
		}
	}
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return wake
}

// act lets each host do one thing, and reports whether one did.
func (l *loop) act() bool {
	l.Helper()
	acted := false
	for _, name := range l.names {
		acted = l.hosts[name].act(l) || acted
		if l.meanwhile != nil {
			l.meanwhile()
		}
	}
	return acted
}

// becomes is what Ready must say.
func (l *loop) becomes(status metav1.ConditionStatus, message string) {
	l.Helper()
	l.until("it becomes "+message, func() string {
		c := meta.FindStatusCondition(l.status().Conditions, v1alpha1.ConditionReady)
		if c == nil {
			return "it has no status"
		}
		if c.Status != status || !strings.Contains(c.Message, message) {
			return fmt.Sprintf("it is %s: %s", c.Status, c.Message)
		}
		return ""
	})
}

// reaches is what a Node's line must contain.
func (l *loop) reaches(name, part string) {
	l.Helper()
	l.until(name+" reaches "+part, func() string {
		if is := line(l.node(name)); !strings.Contains(is, part) {
			return is
		}
		return ""
	})
}

// idle says what a turn has left on a node, or "".
func (l *loop) idle(name string) string { return leftOn(l.node(name)) }

func (l *loop) idles(name string) {
	l.Helper()
	l.until(name+" is released", func() string { return l.idle(name) })
}

// updatedOnce checks that a host runs the new version after one reboot, by one order.
func (l *loop) updatedOnce(name string) {
	l.Helper()
	if h := l.hosts[name]; h.orders != 1 || h.boots != 2 || h.runs != h.offers {
		l.Errorf("%s was ordered to reboot %d times, has booted %d times, and runs %s", name, h.orders, h.boots, h.runs)
	}
}

// simulated is a host with its kubelet and its agent.
type simulated struct {
	name string
	// runs and offers are versions. With unnamed there is an update as long as they differ, but no one names it.
	runs, offers string
	unnamed      bool
	// peer is an agent of the Bottlerocket update operator: it writes no key of Moult's.
	peer bool
	// mute is an agent that does nothing. blind is one that can't look for updates after a reboot.
	mute, blind    bool
	prepared, next string
	// previous is what ran before. ill is the version with which the node is not well.
	previous, ill string
	boots, orders int
	// fails has actions end with an error.
	fails map[v1alpha1.HostAction]string
	// ignores does not reboot; falls boots into what ran before; away is how long a reboot takes, forever if negative.
	ignores, falls bool
	away           time.Duration
	down           bool
	upAt           time.Time
}

// host makes a Node with a host that runs 1.0.0 and offers 1.1.0, and with a pod.
func (l *loop) host(name string, change ...func(*simulated)) *simulated {
	l.Helper()
	h := &simulated{name: name, runs: "1.0.0", offers: "1.1.0", boots: 1, away: time.Minute, fails: map[v1alpha1.HostAction]string{}}
	for _, how := range change {
		how(h)
	}
	l.hosts[name], l.names = h, append(l.names, name)
	n := newNode(func(n *corev1.Node) {
		n.Name, n.UID, n.ResourceVersion = name, types.UID("uid-"+name), ""
		n.Annotations["example.com/others"] = "stay"
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "pod-" + name, UID: types.UID("pod-" + name), CreationTimestamp: ago(time.Hour),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: name},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	l.add(n, pod)
	h.posts(l)
	return h
}

func (h *simulated) bootID() string { return h.name + "-boot-" + strconv.Itoa(h.boots) }

// posts is what the kubelet says, or what is found out while it is down.
func (h *simulated) posts(l *loop) {
	l.Helper()
	n := l.node(h.name)
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.OSImage = h.bootID(), "Bottlerocket OS "+h.runs+" (x)"
	if h.unnamed {
		n.Status.NodeInfo.OSImage = "Linux"
	}
	ready := corev1.ConditionTrue
	if h.down {
		ready = corev1.ConditionFalse
	}
	if h.ill != "" {
		well := corev1.NodeCondition{Type: "Well", Status: corev1.ConditionTrue}
		if h.runs == h.ill {
			well.Status = corev1.ConditionFalse
		}
		n.Status.Conditions = append(slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == well.Type }), well)
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != ready {
			c.Status, c.LastTransitionTime = ready, metav1.Time{Time: l.clock.Now()}
		}
	}
	if err := l.api.Status().Patch(l.Context(), n, client.Merge); err != nil {
		l.Fatal(err)
	}
}

// boot is the host's way through a reboot.
func (h *simulated) boot(l *loop) {
	l.Helper()
	h.boots++
	if h.next != "" && !h.falls {
		h.previous, h.runs = h.runs, h.next
	}
	h.prepared, h.next, h.down = "", "", false
	h.posts(l)
}

// act does one thing that the host has to do, and reports whether there was one.
func (h *simulated) act(l *loop) bool {
	l.Helper()
	if h.down {
		if h.upAt.IsZero() || l.clock.Now().Before(h.upAt) {
			return false
		}
		h.boot(l)
		return true
	}
	n := l.node(h.name)
	r, speaks := hostupdate.Read(n)
	if h.mute || !speaks || r.Wanted == "" || r.Wanted == r.Active && r.State != v1alpha1.HostStateBusy {
		return false
	}
	// Moult's agent does not acknowledge the order to look for updates.
	if r.Wanted != r.Active && (h.peer || r.Wanted != v1alpha1.HostActionStabilize) {
		h.takesUp(l, n, &r)
		return true
	}
	words := map[string]any{r.Protocol.Active: string(r.Wanted), r.Protocol.State: "ready", v1alpha1.AnnotationHostError: nil}
	if failure := h.fails[r.Wanted]; failure != "" {
		words[r.Protocol.State], words[v1alpha1.AnnotationHostError] = "error", failure
	} else {
		switch r.Wanted {
		case v1alpha1.HostActionPrepare:
			h.prepared = h.offers
		case v1alpha1.HostActionPerform:
			h.next = h.prepared
		case v1alpha1.HostActionRollback:
			h.next = h.previous
		case v1alpha1.HostActionReboot:
			if r.RebootingFrom == h.bootID() || h.peer && h.orders == 0 {
				return h.reboots(l)
			}
			words[v1alpha1.AnnotationHostVersion], words[v1alpha1.AnnotationHostBoot] = h.runs, nil
			if h.falls {
				words[r.Protocol.State], words[v1alpha1.AnnotationHostError] = "error", "it fell back"
			} else if !h.peer && !h.blind {
				h.tells(l, &r, words)
			}
		default:
			if r.Wanted == v1alpha1.HostActionReset {
				h.next = ""
			}
			h.tells(l, &r, words)
		}
	}
	if h.unnamed {
		words[v1alpha1.AnnotationHostVersion] = nil
	}
	h.says(l, words)
	return true
}

// takesUp says that the agent begins with what is wanted. It keeps the boot in which it was ordered to reboot.
func (h *simulated) takesUp(l *loop, n *corev1.Node, r *hostupdate.Report) {
	l.Helper()
	words := map[string]any{r.Protocol.Active: string(r.Wanted), r.Protocol.State: "busy"}
	if r.Wanted == v1alpha1.HostActionReboot {
		words[v1alpha1.AnnotationHostBoot] = h.bootID()
		claims, _ := v1alpha1.ParseClaims(n.Annotations)
		for i := range claims {
			if claims[i].Failed == nil && claims[i].BootID != "" {
				words[v1alpha1.AnnotationHostBoot] = claims[i].BootID
			}
		}
	}
	h.says(l, words)
}

// tells adds what the host runs and offers.
func (h *simulated) tells(l *loop, r *hostupdate.Report, words map[string]any) {
	there := h.offers != "" && h.offers != h.runs
	words[r.Protocol.Update], words[v1alpha1.AnnotationHostTarget] = strconv.FormatBool(there), nil
	words[v1alpha1.AnnotationHostVersion], words[v1alpha1.AnnotationHostBoot] = h.runs, nil
	words[v1alpha1.AnnotationHostChecked] = l.clock.Now().UTC().Format(time.RFC3339)
	if there && !h.unnamed {
		words[v1alpha1.AnnotationHostTarget] = h.offers
	}
}

func (h *simulated) says(l *loop, words map[string]any) {
	l.Helper()
	for key := range words {
		if h.peer && strings.HasPrefix(key, v1alpha1.GroupName) {
			delete(words, key)
		}
	}
	l.annotate(h.name, words)
}

// reboots takes the order to reboot, and reports whether the host goes down.
func (h *simulated) reboots(l *loop) bool {
	l.Helper()
	if h.orders++; h.ignores {
		h.mute = true
		return false
	}
	if h.down = true; h.away >= 0 {
		h.upAt = l.clock.Now().Add(h.away)
	}
	h.posts(l)
	return true
}
