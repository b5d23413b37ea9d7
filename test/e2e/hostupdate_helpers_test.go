// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/follow"
	"moult.dev/moult/test/operator"
)

// What hosts run at first, and what they can get.
const (
	oldVersion = "1.19.0"
	newVersion = "1.20.0"
)

var double struct {
	sync.Once
	program bottlerocket.Program
	err     error
}

// hostProgram builds what hosts are made with, once.
func hostProgram(t *testing.T) bottlerocket.Program {
	t.Helper()
	double.Do(func() { double.program, double.err = bottlerocket.Build(t.Context(), world.dir) })
	if double.err != nil {
		t.Fatal(double.err)
	}
	return double.program
}

// hostKind is one of the ways in which a host is spoken to.
type hostKind struct {
	// label is the Node's, and value what it says.
	label, value string
	// is the interface that the host has.
	is string
	// agent is the DaemonSet that goes there.
	agent string
}

var (
	byUpdateAPI = hostKind{"bottlerocket.aws/updater-interface-version", "2.0.0", v1alpha1.InterfaceUpdateAPI, "moult-agent-update-api"}
	bySentinel  = hostKind{"moult.dev/updater-interface-version", "sentinel", v1alpha1.InterfaceSentinel, "moult-agent-sentinel"}
)

// testHost is a machine that is made a host until the test ends.
type testHost struct {
	*bottlerocket.Host
	machine *cluster.Machine
	kind    hostKind
	// osImage is what the machine was before.
	osImage string
}

// newHost makes a host of a machine. The Node has its label from the beginning: by its osImage the operator would choose another one.
func newHost(t *testing.T, m *cluster.Machine, kind hostKind) *testHost {
	t.Helper()
	h := &testHost{machine: m, kind: kind, osImage: node(t, m.Name()).Status.NodeInfo.OSImage}
	t.Cleanup(func() { h.remove(t) })
	patchNode(t, m.Name(), map[string]any{"metadata": map[string]any{"labels": map[string]any{kind.label: kind.value}}})
	var err error
	h.Host, err = hostProgram(t).Install(t.Context(), m, bottlerocket.Options{
		Interface: kind.is, Version: oldVersion, Releases: bottlerocket.Releases(oldVersion, newVersion),
	})
	if err != nil {
		t.Fatal(err)
	}
	if kind.is == v1alpha1.InterfaceSentinel {
		if err := h.NeedReboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h
	}
	h.shows(t, oldVersion)
	return h
}

// shows waits until the kubelet reports a version.
func (h *testHost) shows(t *testing.T, version string) {
	t.Helper()
	want := fmt.Sprintf("Bottlerocket OS %s (%s)", version, bottlerocket.Variant)
	eventually(t, h.machine.Name()+" shows "+want, func(context.Context) (string, bool) {
		got := node(t, h.machine.Name()).Status.NodeInfo.OSImage
		return got, got == want
	})
}

// remove makes the machine what it was, and the Node too.
func (h *testHost) remove(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if h.Host == nil {
		return
	}
	if t.Failed() {
		h.explain(ctx, t)
	}
	for _, f := range []state.Fault{state.BootHangs, state.RebootSlow} {
		if err := h.ClearFault(ctx, f); err != nil {
			t.Error(err)
		}
	}
	if err := h.machine.WaitReady(ctx); err != nil {
		t.Error(err)
	}
	if err := h.Uninstall(ctx); err != nil {
		t.Error(err)
	}
	unset(t, h.machine.Name())
	for deadline := time.Now().Add(patience); ; time.Sleep(interval) {
		n := nodeAtTheEnd(t, h.machine.Name())
		if n.Status.NodeInfo.OSImage == h.osImage {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s is %q, and was %q", n.Name, n.Status.NodeInfo.OSImage, h.osImage)
			return
		}
	}
}

// nodeAtTheEnd is a Node when the test's own context has ended.
func nodeAtTheEnd(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := world.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: name}, n); err != nil {
		t.Errorf("reading node: %v", err)
	}
	return n
}

// unset takes off what hosts, agents and the operator have put on a Node.
func unset(t *testing.T, name string) {
	t.Helper()
	labels, annotations := map[string]any{}, map[string]any{}
	n := nodeAtTheEnd(t, name)
	for key := range n.Labels {
		if ofHosts(key) {
			labels[key] = nil
		}
	}
	for key := range n.Annotations {
		if ofHosts(key) {
			annotations[key] = nil
		}
	}
	patchNode(t, name, map[string]any{
		"metadata": map[string]any{"labels": labels, "annotations": annotations}, "spec": map[string]any{"unschedulable": nil},
	})
}

// ofHosts reports whether a key is one of those by which operator and agents speak, or one of what a turn leaves behind.
func ofHosts(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{"bottlerocket.aws", "thar.amazonaws.com", v1alpha1.GroupName, "noderollout." + v1alpha1.GroupName}, prefix) ||
		key == corev1.LabelNodeExcludeBalancers
}

// explain prints what can be known.
func (h *testHost) explain(ctx context.Context, t *testing.T) {
	if entries, err := h.Journal(ctx); err == nil {
		for _, e := range entries {
			t.Logf("%s: %s %s %s %q", h.machine.Name(), e.Time.Format("15:04:05.000"), e.What, e.Version, e.Error)
		}
	}
	n := nodeAtTheEnd(t, h.machine.Name())
	text, err := yaml.Marshal(map[string]any{"labels": n.Labels, "annotations": n.Annotations, "spec": n.Spec})
	t.Logf("%s: %s %v", h.machine.Name(), text, err)
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide", "--field-selector", "spec.nodeName=" + h.machine.Name()},
		{"logs", "-n", namespace, "daemonset/" + h.kind.agent, "--all-pods", "--prefix", "--tail=100"},
	} {
		out, err := kubectl(ctx, args...)
		t.Logf("kubectl %v: %v\n%s", args, err, out)
	}
	t.Log(operator.Tail(operatorLog(), 40))
}

// newRollout is a NodeRollout over these machines, one at a time.
func newRollout(name string, machines ...*cluster.Machine) *v1alpha1.NodeRollout {
	r := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn},
			}},
			HostUpdate: &v1alpha1.HostUpdate{},
		},
	}
	for _, m := range machines {
		values := &r.Spec.NodeSelector.MatchExpressions[0].Values
		*values = append(*values, m.Name())
	}
	return r
}

// createRollout makes a NodeRollout that goes when the test ends.
func createRollout(t *testing.T, r *v1alpha1.NodeRollout) {
	t.Helper()
	asked := false
	if err := persistently(t.Context(), func(ctx context.Context) error {
		err := world.Create(ctx, r)
		if asked && apierrors.IsAlreadyExists(err) {
			err = world.Get(ctx, client.ObjectKeyFromObject(r), r)
		}
		asked = true
		return err
	}); err != nil {
		t.Fatalf("creating NodeRollout: %v", err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			text, err := yaml.Marshal(rollout(t, r.Name).Status)
			t.Logf("NodeRollout %s: %s %v", r.Name, text, err)
		}
		if err := client.IgnoreNotFound(world.Delete(ctx, r)); err != nil {
			t.Errorf("deleting NodeRollout: %v", err)
		}
		for deadline := time.Now().Add(patience); ; time.Sleep(interval) {
			err := world.Get(ctx, client.ObjectKeyFromObject(r), &v1alpha1.NodeRollout{})
			if apierrors.IsNotFound(err) {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("NodeRollout %s stays: %v", r.Name, err)
				return
			}
		}
	})
}

func rollout(t *testing.T, name string) *v1alpha1.NodeRollout {
	t.Helper()
	r := &v1alpha1.NodeRollout{}
	if err := persistently(context.WithoutCancel(t.Context()), func(ctx context.Context) error {
		return world.Get(ctx, client.ObjectKey{Name: name}, r)
	}); err != nil {
		t.Fatalf("reading NodeRollout: %v", err)
	}
	return r
}

// rolloutIs waits until a NodeRollout's status is as wanted.
func rolloutIs(t *testing.T, name, what string, holds func(*v1alpha1.NodeRolloutStatus) bool) *v1alpha1.NodeRollout {
	t.Helper()
	var r *v1alpha1.NodeRollout
	within(t, 2*patience, "NodeRollout "+name+" "+what, func(context.Context) (string, bool) {
		r = rollout(t, name)
		text, err := yaml.Marshal(r.Status)
		return fmt.Sprintf("\n%s %v", text, err), r.Status.ObservedGeneration == r.Generation && r.Status.Counts != nil && holds(&r.Status)
	})
	return r
}

// rolledOut waits until a NodeRollout is done with that many hosts.
func rolledOut(t *testing.T, name string, hosts int32) *v1alpha1.NodeRollout {
	t.Helper()
	return rolloutIs(t, name, fmt.Sprintf("done on %d hosts", hosts), func(s *v1alpha1.NodeRolloutStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) && s.Counts.Total == hosts && s.Counts.Updated == hosts
	})
}

// editRollout changes a NodeRollout.
func editRollout(t *testing.T, name string, change func(*v1alpha1.NodeRollout)) {
	t.Helper()
	eventually(t, "editing NodeRollout "+name, func(ctx context.Context) (string, bool) {
		r := rollout(t, name)
		change(r)
		err := world.Update(ctx, r)
		return fmt.Sprint(err), err == nil
	})
}

// nodeJournal sees every change of the Nodes.
type nodeJournal struct {
	mu     sync.Mutex
	states []*corev1.Node
	err    error
}

// newNodeJournal begins one, with the Nodes as they are.
func newNodeJournal(t *testing.T) *nodeJournal {
	t.Helper()
	j := &nodeJournal{}
	var all corev1.NodeList
	if err := world.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		j.states = append(j.states, &all.Items[i])
	}
	changes := make(chan follow.Change, 1000)
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return world.clientset.CoreV1().Nodes().Watch(ctx, o)
	}
	go func() {
		defer close(changes)
		if err := follow.Changes(t.Context(), begin, all.ResourceVersion, changes); t.Context().Err() == nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.err = cmp.Or(j.err, err)
		}
	}()
	go func() {
		for c := range changes {
			if n, ok := c.Object.(*corev1.Node); ok {
				j.mu.Lock()
				j.states = append(j.states, n)
				j.mu.Unlock()
			}
		}
	}()
	return j
}

// all are the states of all Nodes up to now, in order.
func (j *nodeJournal) all(t *testing.T) []*corev1.Node {
	t.Helper()
	var now corev1.NodeList
	if err := world.List(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	var states []*corev1.Node
	eventually(t, "the journal of Nodes is up to date", func(context.Context) (string, bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.err != nil {
			t.Fatal(j.err)
		}
		latest := map[string]uint64{}
		for _, n := range j.states {
			latest[n.Name] = max(latest[n.Name], revisionOf(t, n))
		}
		for i := range now.Items {
			if n := &now.Items[i]; latest[n.Name] < revisionOf(t, n) {
				return n.Name + " is behind", false
			}
		}
		states = slices.Clone(j.states)
		return "", true
	})
	return states
}

// of are the states of one Node.
func (j *nodeJournal) of(t *testing.T, name string) []*corev1.Node {
	t.Helper()
	return slices.DeleteFunc(j.all(t), func(n *corev1.Node) bool { return n.Name != name })
}

func revisionOf(t *testing.T, n *corev1.Node) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}
