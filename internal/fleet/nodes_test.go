// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func TestTrimNode(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	big := func(beat int64) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "u", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}, Labels: map[string]string{"a": "b"},
				Annotations: map[string]string{
					"moult.dev/claims": "[]", "csi.volume.kubernetes.io/nodeid": "{}",
					"bottlerocket.aws/action-wanted": "stabilize", "thar.amazonaws.com/action-state": "busy", "example.com/ok": "true", "example.com/no": "false",
				},
			},
			Spec: corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "x", TimeAdded: &at}}},
			Status: corev1.NodeStatus{
				Images:   []corev1.ContainerImage{{Names: []string{"x"}}},
				NodeInfo: corev1.NodeSystemInfo{BootID: "boot", OSImage: "Bottlerocket OS 1.20.3 (aws-k8s-1.31)", KernelVersion: "6.1"},
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Unix(beat, 0), LastTransitionTime: at},
					{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "MoultTurn", Message: "Plan/a/b: 2 pods left", LastTransitionTime: at},
				},
			},
		}
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{
			"moult.dev/claims": "[]", "bottlerocket.aws/action-wanted": "stabilize", "thar.amazonaws.com/action-state": "busy", "example.com/ok": "true",
		}},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "x", TimeAdded: &at}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "MoultTurn", Message: "Plan/a/b: 2 pods left", LastTransitionTime: at},
		}, NodeInfo: corev1.NodeSystemInfo{BootID: "boot", OSImage: "Bottlerocket OS 1.20.3 (aws-k8s-1.31)"}},
	}
	first, err := TrimNode(big(1))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	second, err := TrimNode(big(2))
	if err != nil {
		t.Fatal(err)
	}
	if NodeChanged(first.(*corev1.Node), second.(*corev1.Node)) {
		t.Error("a heartbeat counts as a change")
	}
	second.(*corev1.Node).Spec.Unschedulable = false
	if !NodeChanged(first.(*corev1.Node), second.(*corev1.Node)) {
		t.Error("an uncordon does not count as a change")
	}
	for what, change := range map[string]func(*corev1.NodeSystemInfo){
		"a reboot":   func(i *corev1.NodeSystemInfo) { i.BootID = "other" },
		"another OS": func(i *corev1.NodeSystemInfo) { i.OSImage = "other" },
	} {
		rebooted := first.(*corev1.Node).DeepCopy()
		change(&rebooted.Status.NodeInfo)
		if !NodeChanged(first.(*corev1.Node), rebooted) {
			t.Errorf("%s does not count as a change", what)
		}
	}
}

func TestNodesRead(t *testing.T) {
	node := func(name, version, label string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, Labels: map[string]string{"is": label}}}
	}
	var n nodes
	labels := func(of map[string]*rollout.Node) map[string]string {
		all := map[string]string{}
		for name, node := range of {
			all[name] = node.Labels["is"]
		}
		return all
	}
	one := n.read([]*corev1.Node{node("a", "1", "old"), node("b", "2", "old")})
	two := n.read([]*corev1.Node{node("a", "1", "old"), node("b", "3", "new"), node("c", "4", "new")})
	b5, d6 := node("b", "5", "newer"), node("d", "6", "newer")
	three := n.read([]*corev1.Node{b5, d6})
	for i, tc := range []struct {
		got  Snapshot
		want map[string]string
	}{
		{one, map[string]string{"a": "old", "b": "old"}},
		{two, map[string]string{"a": "old", "b": "new", "c": "new"}},
		{three, map[string]string{"b": "newer", "d": "newer"}},
	} {
		if diff := cmp.Diff(tc.want, labels(tc.got.Nodes)); diff != "" {
			t.Errorf("look %d (-want +got):\n%s", i+1, diff)
		}
	}
	if again := n.read([]*corev1.Node{b5, d6}); again.Nodes["b"] != three.Nodes["b"] {
		t.Error("nodes that have not changed are made anew")
	}
	if none := n.read(nil); len(none.Nodes) != 0 {
		t.Error("nodes that are gone are still there")
	}
}

// Two rollouts look at the same time, and the one that has the older list comes second.
func TestNodesReadOutOfOrder(t *testing.T) {
	at := func(version string) []*corev1.Node {
		return []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}}
	}
	old, now := at("1"), at("2")
	var n nodes
	for i, objects := range [][]*corev1.Node{now, old, now} {
		if got := n.read(objects).Objects[0]; got != objects[0] {
			t.Errorf("look %d shows version %s, want %s", i+1, got.ResourceVersion, objects[0].ResourceVersion)
		}
	}
}

func TestNodesShareHostnames(t *testing.T) {
	node := func(name, hostname string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: hostname}}}
	}
	a, b, c := node("a", "one"), node("b", "two"), node("c", "two")
	var n nodes
	for i, tc := range []struct {
		objects []*corev1.Node
		want    map[string]bool
	}{
		{[]*corev1.Node{a, b}, map[string]bool{}},
		{[]*corev1.Node{a, b, c}, map[string]bool{"two": true}},
		{[]*corev1.Node{a, c}, map[string]bool{}},
		{[]*corev1.Node{a, node("c", "one")}, map[string]bool{"one": true}},
		{[]*corev1.Node{node("c", "one")}, map[string]bool{}},
	} {
		if s := n.read(tc.objects); !cmp.Equal(s.SharedHostnames, tc.want) {
			t.Errorf("look %d: %v, want %v", i+1, s.SharedHostnames, tc.want)
		}
	}
}

// From the claim until the drain is over a workload may lack more than its status says.
func TestUndrained(t *testing.T) {
	const plan = "Plan/system-upgrade/os"
	claim := func(how func(*v1alpha1.Claim)) string {
		c := v1alpha1.Claim{Rollout: plan, UID: "u", Turn: "t", Drains: true}
		if how != nil {
			how(&c)
		}
		text, err := v1alpha1.FormatClaims([]v1alpha1.Claim{c})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	at := &metav1.Time{Time: time.Unix(1, 0)}
	claimed := func(how func(*v1alpha1.Claim)) map[string]string {
		return map[string]string{v1alpha1.AnnotationClaims: claim(how)}
	}
	cordoned := claimed(nil)
	cordoned[v1alpha1.AnnotationCordonedBy], cordoned[v1alpha1.AnnotationEvicted] = plan, `["StatefulSet/shop/db"]`
	says := func(kind corev1.NodeConditionType) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: kind, Status: corev1.ConditionTrue}}
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		conditions  []corev1.NodeCondition
		schedulable bool
		want        bool
	}{
		"not claimed":                    {nil, nil, true, false},
		"drained by hand":                {nil, says(corev1.NodeDrainInProgress), false, false},
		"claimed":                        {claimed(nil), nil, true, true},
		"claimed, and does not":          {claimed(func(c *v1alpha1.Claim) { c.Drains = false }), nil, true, false},
		"cordoned, and recorded":         {cordoned, nil, false, true},
		"at work":                        {cordoned, says(corev1.NodeDrainInProgress), false, true},
		"drained":                        {cordoned, says(corev1.NodeDrained), false, false},
		"drained, and schedulable again": {cordoned, says(corev1.NodeDrained), true, true},
		"drained, as the claim says":     {claimed(func(c *v1alpha1.Claim) { c.Drained = at }), nil, false, false},
		"rebooting":                      {claimed(func(c *v1alpha1.Claim) { c.Rebooting = at }), nil, false, false},
		"changed":                        {claimed(func(c *v1alpha1.Claim) { c.Changed = at }), nil, false, false},
		"soaking":                        {claimed(func(c *v1alpha1.Claim) { c.Soaking = at }), nil, true, false},
		"failed before it was over":      {claimed(func(c *v1alpha1.Claim) { c.Failed = &v1alpha1.ClaimFailure{} }), nil, true, false},
	} {
		o := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: tc.annotations}, Spec: corev1.NodeSpec{Unschedulable: !tc.schedulable},
			Status: corev1.NodeStatus{Conditions: tc.conditions},
		}
		if got := rollout.NewNode(o).Draining; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A deleted Node counts as long as no Node has its name.
func TestNodesAbsent(t *testing.T) {
	record := map[string]string{v1alpha1.AnnotationEvicted: `["ReplicaSet/a/b"]`}
	absent := []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.NodeSpec{Unschedulable: true}},
		{ObjectMeta: metav1.ObjectMeta{Name: "gone", Labels: map[string]string{"zone": "a"}, Annotations: record}, Spec: corev1.NodeSpec{Unschedulable: true}},
	}
	objects := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "h", Annotations: record}}}
	var n nodes
	first := n.read(objects)
	with := first.with(absent)
	if len(with.Nodes) != 4 || with.Nodes["b"].Unschedulable || !with.Nodes["gone"].Unschedulable || with.Nodes["gone"].Labels["zone"] != "a" {
		t.Errorf("nodes %v", with.Nodes)
	}
	if len(with.Objects) != 3 || len(first.Nodes) != 3 || len(n.read(objects).Nodes) != 3 {
		t.Errorf("%d objects, and %d nodes of the snapshot before", len(with.Objects), len(first.Nodes))
	}
	if len(first.Evicted) != 1 || len(with.Evicted) != 2 || with.Evicted[0].Name != "gone" {
		t.Errorf("evicted from %d and %d nodes", len(first.Evicted), len(with.Evicted))
	}
}

// The nodes with claims are those that a look at all of them finds, and the objects are in order of name, whatever came, changed and went.
func TestNodesClaimed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	there := map[string]*corev1.Node{}
	var n nodes
	for round := range 300 {
		name := string(rune('a' + random.IntN(8)))
		switch random.IntN(4) {
		case 0:
			delete(there, name)
		case 1:
			there[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		default:
			there[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				v1alpha1.AnnotationClaims: `[{"rollout":"Plan/a/b","uid":"u","turn":"t"}]`,
			}}}
		}
		s := n.read(slices.Collect(maps.Values(there)))
		var want []string
		for name, known := range s.Nodes {
			if len(known.Claims) > 0 {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(s.Claimed))); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
		var sorted []*corev1.Node
		for _, name := range slices.Sorted(maps.Keys(there)) {
			sorted = append(sorted, there[name])
		}
		if !slices.Equal(sorted, s.Objects) {
			t.Fatalf("round %d: the objects are not those that are there, by name", round)
		}
	}
}

// BenchmarkRead reads five thousand nodes, which come in any order: when none has changed, when one has, and when one has left or come.
func BenchmarkRead(b *testing.B) {
	const count = 5000
	var objects []*corev1.Node
	for i := range count {
		name := fmt.Sprintf("node-%04d", i)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(count, func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	for _, bench := range []struct {
		name string
		next func(round int) []*corev1.Node
	}{
		{"nothing new", func(int) []*corev1.Node { return objects }},
		{"one changed", func(round int) []*corev1.Node {
			objects[round%count] = objects[round%count].DeepCopy()
			return objects
		}},
		{"one less or more", func(round int) []*corev1.Node {
			objects[count-1] = objects[count-1].DeepCopy()
			return objects[:count-round%2]
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var n nodes
			n.read(objects)
			b.ReportAllocs()
			for round := 0; b.Loop(); round++ {
				n.read(bench.next(round))
			}
		})
	}
}

func TestSpecChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeDisruptionBudget)
		want   bool
	}{
		"a status": {func(b *v1alpha1.NodeDisruptionBudget) { b.ResourceVersion, b.Status.Matched = "2", 3 }, false},
		"the spec": {func(b *v1alpha1.NodeDisruptionBudget) { b.Generation = 2 }, true},
		"another":  {func(b *v1alpha1.NodeDisruptionBudget) { b.UID = "another" }, true},
	} {
		old := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "one", ResourceVersion: "1", Generation: 1}}
		now := old.DeepCopy()
		tc.change(now)
		if got := SpecChanged(old, now); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
