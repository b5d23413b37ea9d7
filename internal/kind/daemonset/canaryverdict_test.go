// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	gocmp "cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

type canary = edsv1.ExtendedDaemonSetSpecStrategyCanary

// canaryNode is a ready node on which the daemon fits, in this zone.
func canaryNode(name, zone string, change ...func(*NodeState)) NodeState {
	n := NodeState{Fits: true, Node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}}
	for _, how := range change {
		how(&n)
	}
	return n
}

func unfit(n *NodeState)    { n.Fits = false }
func claimed(n *NodeState)  { n.Claims = make([]v1alpha1.Claim, 1) }
func cordoned(n *NodeState) { n.Node.Spec.Unschedulable = true }
func down(n *NodeState) {
	n.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
}
func unheard(n *NodeState) { n.Node.Status.Conditions = nil }
func deleted(n *NodeState) { n.Node.DeletionTimestamp = ptr.To(ago(0)) }

func restarted(times int32) func(*NodeState) {
	return func(n *NodeState) { n.Current = &Pod{State: PodState{Restarts: times}} }
}

// pick picks canaries of nodes in any order.
func pick(c *canary, want int, current []string, nodes []NodeState) []string {
	var states []*NodeState
	for i := range nodes {
		states = append(states, &nodes[i])
	}
	slices.SortFunc(states, func(a, b *NodeState) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return PickCanaries(c, want, current, states)
}

func TestPickCanaries(t *testing.T) {
	plain := func(names string, change ...func(*NodeState)) (nodes []NodeState) {
		for name := range strings.FieldsSeq(names) {
			nodes = append(nodes, canaryNode(name, "", change...))
		}
		return nodes
	}
	// zoned are nodes such as a1 and b2, of the zones a and b.
	zoned := func(names string) (nodes []NodeState) {
		for name := range strings.FieldsSeq(names) {
			nodes = append(nodes, canaryNode(name, name[:1]))
		}
		return nodes
	}
	only := func(zone string) *canary {
		return &canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}}
	}
	spread := &canary{NodeAntiAffinityKeys: []string{"zone"}}
	for name, tc := range map[string]struct {
		canary  *canary
		want    int
		current string
		nodes   []NodeState
		picked  string
	}{
		"none wanted":                {nil, 0, "n1", plain("n1 n2"), ""},
		"fewer than none wanted":     {nil, -1, "n1", plain("n1 n2"), ""},
		"no nodes":                   {nil, 2, "", nil, ""},
		"by name":                    {nil, 2, "", plain("n3 n1 n2"), "n1 n2"},
		"as many as there are":       {nil, 5, "", plain("n3 n1 n2"), "n1 n2 n3"},
		"fewest restarts":            {nil, 2, "", append(plain("n1", restarted(3)), plain("n2 n3")...), "n2 n3"},
		"fewest restarts, then name": {nil, 2, "", slices.Concat(plain("n1", restarted(3)), plain("n4 n3", restarted(2)), plain("n9")), "n3 n9"},
		"an empty selector":          {&canary{NodeSelector: &metav1.LabelSelector{}}, 1, "", plain("n1"), "n1"},
		"a selector":                 {only("b"), 2, "", zoned("a1 b1 c1"), "b1"},
		"a selector that can't be read": {&canary{NodeSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}},
		}}, 2, "", zoned("a1 b1"), ""},
		"none that is anybody's": {
			nil, 9, "", slices.Concat(
				plain("n1", unfit), plain("n2", claimed), plain("n3", cordoned), plain("n4", down), plain("n5", unheard), plain("n6", deleted), plain("n7"),
			), "n7",
		},

		"those that it has":                      {nil, 2, "n2 n3", plain("n1 n2 n3"), "n2 n3"},
		"those that it has, with restarts":       {nil, 2, "n2 n3", append(plain("n2 n3", restarted(9)), plain("n1")...), "n2 n3"},
		"one more":                               {nil, 3, "n3 n4", plain("n1 n2 n3 n4"), "n1 n3 n4"},
		"one is gone":                            {nil, 2, "n2 n3", plain("n1 n3"), "n1 n3"},
		"one is going":                           {nil, 2, "n2 n3", append(plain("n2", deleted), plain("n1 n3")...), "n1 n3"},
		"one is cordoned":                        {nil, 2, "n2 n3", append(plain("n2", cordoned), plain("n1 n3")...), "n1 n3"},
		"one does not fit":                       {nil, 2, "n2 n3", append(plain("n2", unfit), plain("n1 n3")...), "n1 n3"},
		"one is not selected any more":           {only("a"), 2, "a2 b1", zoned("a1 a2 b1"), "a1 a2"},
		"one is not ready":                       {nil, 2, "n2 n3", append(plain("n2", down), plain("n1 n3")...), "n2 n3"},
		"one is claimed":                         {nil, 2, "n2 n3", append(plain("n2", claimed), plain("n1 n3")...), "n2 n3"},
		"one is claimed, and cordoned for that":  {nil, 2, "n2 n3", append(plain("n2", claimed, cordoned), plain("n1 n3")...), "n2 n3"},
		"one fewer":                              {nil, 1, "n2 n3", plain("n1 n2 n3"), "n2"},
		"one fewer, and it had restarts":         {nil, 1, "n2 n3", append(plain("n2", restarted(4)), plain("n3")...), "n2"},
		"one fewer, of which one is not ready":   {nil, 1, "n2 n3", append(plain("n2", down), plain("n3")...), "n3"},
		"two fewer, of which one is claimed":     {nil, 1, "n1 n2 n3", append(plain("n1", claimed), plain("n2 n3")...), "n2"},
		"all are gone, and there are no others":  {nil, 2, "n2 n3", nil, ""},
		"one is named twice":                     {nil, 2, "n3 n2 n3", plain("n1 n2 n3"), "n2 n3"},
		"spread":                                 {spread, 2, "", zoned("a1 a2 b1 b2"), "a1 b1"},
		"spread, rounded up":                     {spread, 3, "", zoned("a1 a2 a3 b1 b2"), "a1 a2 b1"},
		"spread over three":                      {spread, 3, "", zoned("a1 a2 a3 b1 c1"), "a1 b1 c1"},
		"spread, but few have a value":           {spread, 4, "", zoned("a1 a2 a3 a4 b1"), "a1 a2 a3 b1"},
		"spread, but few have two of the values": {spread, 6, "", zoned("a1 a2 a3 a4 b1 c1 c2 c3 c4"), "a1 a2 a3 b1 c1 c2"},
		"spread, and one can't have it": {
			spread, 2, "", append(zoned("a1 a2"), canaryNode("b1", "b", unfit), canaryNode("c1", "c", down)), "a1 a2",
		},
		"spread, by restarts": {
			spread, 2, "", append(zoned("a2 b2"), canaryNode("a1", "a", restarted(1)), canaryNode("b1", "b", restarted(1))), "a2 b2",
		},
		"spread over two of four, by restarts": {
			spread, 4, "", append(zoned("a1 a2 b1 b2"), canaryNode("c1", "c", restarted(1)), canaryNode("d1", "d")), "a1 b1 d1 c1",
		},
		"spread as far as must be, by restarts": {
			spread, 4, "", append(zoned("a1 a2 a3 b1 b2"), canaryNode("c1", "c", restarted(1))), "a1 a2 b1 b2",
		},
		"spread, without the label": {
			spread, 2, "", append(zoned("a1 a2"), canaryNode("x1", "", func(n *NodeState) { n.Node.Labels = nil }), canaryNode("x2", "")), "a1 x1",
		},
		"spread over two labels": {
			&canary{NodeAntiAffinityKeys: []string{"zone", "rack"}}, 2, "",
			append(zoned("a1 a2"), canaryNode("a3", "a", func(n *NodeState) { n.Node.Labels["rack"] = "1" })), "a1 a3",
		},
		"spread, and those that it has count":     {spread, 2, "a2", zoned("a1 a2 b1"), "a2 b1"},
		"those that it has stay, spread or not":   {spread, 2, "a1 a2", zoned("a1 a2 b1 b2"), "a1 a2"},
		"those that it has, and one beside":       {spread, 3, "a1 a2", zoned("a1 a2 a3 b1 b2"), "a1 a2 b1"},
		"fewer, and still spread":                 {spread, 2, "a1 a2 b1", zoned("a1 a2 b1"), "a1 b1"},
		"fewer, and as spread as may be":          {spread, 2, "a1 a2 a3", zoned("a1 a2 a3 b1"), "a1 a2"},
		"fewer, and spread where no one is ready": {spread, 2, "a1 a2 b1", append(zoned("a1 a2"), canaryNode("b1", "b", down)), "a1 b1"},
	} {
		c := gocmp.Or(tc.canary, &canary{}).DeepCopy()
		defaultCanary(c, "")
		got := pick(c, tc.want, strings.Fields(tc.current), tc.nodes)
		want := strings.Fields(tc.picked)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestPickCanariesHolds lets things happen to random fleets, and picks canaries after each.
func TestPickCanariesHolds(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	happens := []func(*NodeState){
		unfit, claimed, cordoned, down, unheard, deleted,
		func(n *NodeState) { restarted(n.restarts() + r.Int32N(3))(n) },
		func(n *NodeState) { *n = canaryNode(n.Node.Name, string('a'+rune(r.IntN(3)))) },
		func(n *NodeState) { *n = canaryNode(n.Node.Name, string('a'+rune(r.IntN(3)))) },
		func(n *NodeState) { *n = canaryNode(n.Node.Name, string('a'+rune(r.IntN(3)))) },
	}
	for range 300 {
		c := &canary{NodeSelector: &metav1.LabelSelector{}}
		if r.IntN(2) == 0 {
			c.NodeAntiAffinityKeys = []string{"zone"}
		}
		if r.IntN(3) == 0 {
			c.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "zone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"c"}},
			}}
		}
		nodes := make([]NodeState, r.IntN(20))
		for i := range nodes {
			nodes[i] = canaryNode(fmt.Sprintf("n%02d", i), string('a'+rune(r.IntN(4))), restarted(r.Int32N(4)))
		}
		want, current := r.IntN(8), []string{"gone"}
		for range 30 {
			if len(nodes) > 0 {
				happens[r.IntN(len(happens))](&nodes[r.IntN(len(nodes))])
			}
			if r.IntN(4) == 0 {
				want = r.IntN(8)
			}
			picked := pick(c, want, current, nodes)
			if wrong := wrongPick(c, want, current, nodes, picked); wrong != "" {
				t.Fatalf("%s: %d wanted, %v before, %v now, of\n%s", wrong, want, current, picked, tell(nodes))
			}
			r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
			r.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
			if again := pick(c, want, current, nodes); !slices.Equal(again, picked) {
				t.Fatalf("in another order of %d wanted, %v before, there come %v and not %v, of\n%s", want, current, again, picked, tell(nodes))
			}
			if again := pick(c, want, picked, nodes); !slices.Equal(again, picked) {
				t.Fatalf("of %d wanted it moves from %v to %v, of\n%s", want, picked, again, tell(nodes))
			}
			current = picked
		}
	}
}

// wrongPick says what is wrong with what was picked.
func wrongPick(c *canary, want int, current []string, nodes []NodeState, picked []string) string {
	may := map[string]*NodeState{}
	zones, count := map[string]bool{}, map[string]int{}
	zone := func(name string) string {
		if c.NodeAntiAffinityKeys == nil {
			return ""
		}
		return may[name].Node.Labels["zone"]
	}
	is := func(name string) bool { return slices.Contains(picked, name) }
	has := func(name string) bool { return slices.Contains(current, name) }
	held := 0
	for i := range nodes {
		n := &nodes[i]
		name := n.Node.Name
		busy := n.claim() >= 0 || len(n.Node.Status.Conditions) == 0 || n.Node.Status.Conditions[0].Status != corev1.ConditionTrue
		unselected := c.NodeSelector.MatchExpressions != nil && n.Node.Labels["zone"] == "c"
		if !n.Fits || n.Node.Spec.Unschedulable && (n.claim() < 0 || !has(name)) || n.Node.DeletionTimestamp != nil || unselected || busy && !has(name) {
			continue
		}
		may[name] = n
		zones[zone(name)] = true
		if has(name) {
			held++
		}
		if is(name) {
			count[zone(name)]++
		}
	}
	if len(picked) != min(want, len(may)) {
		return fmt.Sprintf("not %d", min(want, len(may)))
	}
	for i, name := range picked {
		if _, ok := may[name]; !ok {
			return name + " may be none"
		}
		if i > 0 && picked[i-1] >= name {
			return "not sorted"
		}
		if held >= want && !has(name) {
			return name + " is one too many"
		}
	}
	most := (want + max(len(zones), 1) - 1) / max(len(zones), 1)
	for name, n := range may {
		if is(name) {
			continue
		}
		if has(name) && held <= want {
			return name + " should stay"
		}
		for _, other := range picked {
			// Those that it has are compared with those that it has, and new ones with new ones.
			if has(other) != has(name) {
				continue
			}
			worse := may[other]
			better := n.restarts() < worse.restarts() || n.restarts() == worse.restarts() && name < other
			better = n.broken() < worse.broken() || n.broken() == worse.broken() && better
			if zone(name) == zone(other) && better && !has(name) {
				return name + " is better than " + other
			}
			if count[zone(other)] > most && count[zone(name)] < count[zone(other)]-1 {
				return other + " is one of too many of its zone, and there is " + name
			}
		}
	}
	return ""
}

func tell(nodes []NodeState) string {
	var b strings.Builder
	for i := range nodes {
		n := &nodes[i]
		fmt.Fprintf(&b, "%s in %s: fits %t, claimed %t, cordoned %t, deleted %t, %d restarts, %v\n", n.Node.Name, n.Node.Labels["zone"],
			n.Fits, (n.claim() >= 0), n.Node.Spec.Unschedulable, n.Node.DeletionTimestamp != nil, n.restarts(), n.Node.Status.Conditions)
	}
	return b.String()
}

// canaryPod is a node of this name with a pod.
func canaryPod(node string, state PodState) *NodeState {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "foo-" + node}}
	return &NodeState{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, Current: &Pod{Pod: pod, State: state}}
}

// judged is the verdict about a canary with defaults.
func judged(c *canary, pods []*NodeState, h CanaryHistory, now time.Time) Verdict {
	c = c.DeepCopy()
	defaultCanary(c, "")
	slices.SortFunc(pods, func(a, b *NodeState) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return JudgeCanary(c, pods, h, now)
}

// hasRestarted is a pod that restarted so often, the last time so long ago.
func hasRestarted(times int32, last time.Duration) PodState {
	return PodState{
		Restarts: times, RestartContainer: "app", RestartReason: "OOMKilled", LastRestart: now.Add(-last),
	}
}

// badImage is a pod with a bad image, since so long ago.
func badImage(since time.Duration) PodState {
	return PodState{
		CannotStart: "ErrImagePull", Message: "container app can't start, ErrImagePull: not found", Creating: now.Add(-since),
	}
}

func TestJudge(t *testing.T) {
	const minute = time.Minute
	duration := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	at := func(d time.Duration) time.Time { return now.Add(-d) }
	type (
		autoPause = edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause
		autoFail  = edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail
	)
	strategy := func(p autoPause, f autoFail) *canary { return &canary{AutoPause: &p, AutoFail: &f} }
	defaults := strategy(
		autoPause{Enabled: ptr.To(true), MaxRestarts: ptr.To(int32(2))}, autoFail{Enabled: ptr.To(true), MaxRestarts: ptr.To(int32(5))},
	)
	off := strategy(autoPause{Enabled: ptr.To(false)}, autoFail{Enabled: ptr.To(false)})
	offAndTimed := strategy(
		autoPause{Enabled: ptr.To(false), MaxSlowStartDuration: duration(0)},
		autoFail{Enabled: ptr.To(false), MaxRestartsDuration: duration(0), CanaryTimeout: duration(0)},
	)
	slow := strategy(autoPause{MaxSlowStartDuration: duration(2 * minute)}, autoFail{})
	timeout := strategy(autoPause{}, autoFail{CanaryTimeout: duration(30 * minute)})
	manual := strategy(autoPause{}, autoFail{CanaryTimeout: duration(30 * minute)})
	manual.ValidationMode = edsv1.ValidationModeManual
	restarting := strategy(autoPause{}, autoFail{MaxRestartsDuration: duration(10 * minute)})
	none := strategy(autoPause{MaxRestarts: ptr.To(int32(0))}, autoFail{MaxRestarts: ptr.To(int32(0))})
	well := PodState{Ready: true, Available: true}
	creating := func(since time.Duration) PodState { return PodState{Creating: at(since)} }
	began := CanaryHistory{Began: at(20 * minute)}
	unpaused := CanaryHistory{Began: at(20 * minute), Unpaused: true}
	// once is that the last restart was the only one.
	once := func(last time.Duration, v Verdict) Verdict {
		v.FirstRestart, v.LastRestart = at(last), at(last)
		return v
	}
	for name, tc := range map[string]struct {
		canary  *canary
		pods    []*NodeState
		history CanaryHistory
		want    Verdict
	}{
		"no pods":                {defaults, nil, began, Verdict{}},
		"all is well":            {defaults, []*NodeState{canaryPod("n1", well), canaryPod("n2", well)}, began, Verdict{}},
		"nothing is known of it": {&canary{}, []*NodeState{canaryPod("n1", PodState{})}, CanaryHistory{}, Verdict{}},

		"restarts that are allowed": {defaults, []*NodeState{canaryPod("n1", hasRestarted(2, minute))}, began, once(minute, Verdict{})},
		"more than that": {defaults, []*NodeState{canaryPod("n1", hasRestarted(3, minute))}, began, once(minute, Verdict{
			Paused: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 3 times, the last time with OOMKilled, and 2 are allowed",
		})},
		"more than that, but for a person": {defaults, []*NodeState{canaryPod("n1", hasRestarted(3, minute))}, unpaused, once(minute, Verdict{})},
		"nearly too many":                  {defaults, []*NodeState{canaryPod("n1", hasRestarted(5, minute))}, unpaused, once(minute, Verdict{})},
		"too many": {defaults, []*NodeState{canaryPod("n1", hasRestarted(6, minute))}, began, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 6 times, the last time with OOMKilled, and 5 are allowed",
		})},
		"too many, which no one can pardon": {defaults, []*NodeState{canaryPod("n1", hasRestarted(6, minute))}, unpaused, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 6 times, the last time with OOMKilled, and 5 are allowed",
		})},
		"too many, by default": {&canary{}, []*NodeState{canaryPod("n1", hasRestarted(6, minute))}, began, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 6 times, the last time with OOMKilled, and 5 are allowed",
		})},
		"more than that, by default": {&canary{}, []*NodeState{canaryPod("n1", hasRestarted(3, minute))}, began, once(minute, Verdict{
			Paused: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 3 times, the last time with OOMKilled, and 2 are allowed",
		})},
		"none is allowed": {none, []*NodeState{canaryPod("n1", hasRestarted(1, minute))}, began, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 1 time, the last time with OOMKilled, and 0 are allowed",
		})},
		"no one cares": {off, []*NodeState{canaryPod("n1", hasRestarted(99, minute)), canaryPod("n2", creating(time.Hour))}, began, once(minute, Verdict{})},
		"the worst pod is told of": {defaults, []*NodeState{
			canaryPod("n3", hasRestarted(7, minute)), canaryPod("n2", hasRestarted(7, minute)), canaryPod("n1", hasRestarted(6, minute)),
		}, began, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n2: container app has restarted 7 times, the last time with OOMKilled, and 5 are allowed",
		})},
		"no one knows why or when": {defaults, []*NodeState{canaryPod("n1", PodState{Restarts: 6, RestartContainer: "app", RestartReason: edsv1.StatusReasonUnknown})}, began, Verdict{
			Failed: true, Reason: "Unknown", Message: "pod on node n1: container app has restarted 6 times, the last time with Unknown, and 5 are allowed",
		}},
		"before it began": {defaults, []*NodeState{canaryPod("n1", hasRestarted(9, 21*minute))}, began, Verdict{}},

		"it goes on restarting": {restarting, []*NodeState{canaryPod("n1", hasRestarted(2, minute))}, CanaryHistory{
			Began: at(20 * minute), FirstRestart: at(12 * minute), LastRestart: at(10 * minute),
		}, Verdict{
			Failed: true, Reason: "RestartsTimeoutExceeded", Message: "pods have gone on restarting for more than 10m0s",
			FirstRestart: at(12 * minute), LastRestart: at(minute),
		}},
		"it has gone on restarting": {restarting, nil, CanaryHistory{FirstRestart: at(50 * minute), LastRestart: at(39 * minute), Unpaused: true}, Verdict{
			Failed: true, Reason: "RestartsTimeoutExceeded", Message: "pods have gone on restarting for more than 10m0s",
			FirstRestart: at(50 * minute), LastRestart: at(39 * minute),
		}},
		"it restarted just so long": {restarting, []*NodeState{canaryPod("n1", hasRestarted(2, minute))}, CanaryHistory{FirstRestart: at(11 * minute), LastRestart: at(5 * minute)}, Verdict{
			FirstRestart: at(11 * minute), LastRestart: at(minute),
		}},
		"two restarted": {restarting, []*NodeState{canaryPod("n1", hasRestarted(1, 12*minute)), canaryPod("n2", hasRestarted(1, minute))}, began, Verdict{
			Failed: true, Reason: "RestartsTimeoutExceeded", Message: "pods have gone on restarting for more than 10m0s",
			FirstRestart: at(12 * minute), LastRestart: at(minute),
		}},
		"an older one is told":  {restarting, []*NodeState{canaryPod("n1", hasRestarted(1, 9*minute))}, CanaryHistory{FirstRestart: at(minute), LastRestart: at(minute)}, Verdict{FirstRestart: at(9 * minute), LastRestart: at(minute)}},
		"a restart of long ago": {restarting, []*NodeState{canaryPod("n1", hasRestarted(1, time.Hour)), canaryPod("n2", hasRestarted(1, minute))}, began, once(minute, Verdict{})},

		"it has time":                    {timeout, nil, CanaryHistory{Began: at(20 * minute)}, Verdict{Wake: at(-10 * minute)}},
		"it has no more time":            {timeout, nil, CanaryHistory{Began: at(30 * minute)}, Verdict{Failed: true, Reason: "TimeoutExceeded", Message: "the canary has taken more than 30m0s"}},
		"it has no more time, by hand":   {manual, nil, CanaryHistory{Began: at(31 * minute)}, Verdict{Failed: true, Reason: "TimeoutExceeded", Message: "the canary has taken more than 30m0s"}},
		"it has no more time, all well":  {timeout, []*NodeState{canaryPod("n1", well)}, CanaryHistory{Began: at(31 * minute), Unpaused: true}, Verdict{Failed: true, Reason: "TimeoutExceeded", Message: "the canary has taken more than 30m0s"}},
		"no one cares how long it takes": {offAndTimed, []*NodeState{canaryPod("n1", creating(minute))}, CanaryHistory{Began: at(time.Hour), FirstRestart: at(time.Hour), LastRestart: at(minute)}, Verdict{FirstRestart: at(time.Hour), LastRestart: at(minute)}},
		"restarts are worse": {timeout, []*NodeState{canaryPod("n1", hasRestarted(6, minute))}, CanaryHistory{Began: at(31 * minute)}, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n1: container app has restarted 6 times, the last time with OOMKilled, and 5 are allowed",
		})},

		"a bad image": {defaults, []*NodeState{canaryPod("n1", badImage(minute))}, began, Verdict{
			Paused: true, Reason: "ErrImagePull", Message: "Pod foo-n1 cannot start with reason: ErrImagePull, on node n1: container app can't start, ErrImagePull: not found", CannotStart: "ErrImagePull",
		}},
		"a bad image, which a person knows": {defaults, []*NodeState{canaryPod("n1", badImage(minute))}, unpaused, Verdict{CannotStart: "ErrImagePull"}},
		"a bad image, and no one cares":     {off, []*NodeState{canaryPod("n1", badImage(minute))}, began, Verdict{CannotStart: "ErrImagePull"}},
		"a bad image is worse than restarts": {defaults, []*NodeState{canaryPod("n1", hasRestarted(4, minute)), canaryPod("n2", badImage(minute))}, began, once(minute, Verdict{
			Paused: true, Reason: "ErrImagePull", Message: "Pod foo-n2 cannot start with reason: ErrImagePull, on node n2: container app can't start, ErrImagePull: not found", CannotStart: "ErrImagePull",
		})},
		"too many restarts are worse than a bad image": {defaults, []*NodeState{canaryPod("n1", badImage(minute)), canaryPod("n2", hasRestarted(6, minute))}, began, once(minute, Verdict{
			Failed: true, Reason: "OOMKilled", Message: "pod on node n2: container app has restarted 6 times, the last time with OOMKilled, and 5 are allowed", CannotStart: "ErrImagePull",
		})},
		"two bad images": {defaults, []*NodeState{canaryPod("n2", badImage(minute)), canaryPod("n1", badImage(minute))}, began, Verdict{
			Paused: true, Reason: "ErrImagePull", Message: "Pod foo-n1 cannot start with reason: ErrImagePull, on node n1: container app can't start, ErrImagePull: not found", CannotStart: "ErrImagePull",
		}},
		"a bad image that may yet come": {slow, []*NodeState{canaryPod("n1", badImage(minute))}, began, Verdict{CannotStart: "ErrImagePull", Wake: at(-minute)}},
		"a bad image that has not come": {slow, []*NodeState{canaryPod("n1", badImage(2*minute))}, began, Verdict{
			Paused: true, Reason: "ErrImagePull", Message: "Pod foo-n1 cannot start with reason: ErrImagePull, on node n1: container app can't start, ErrImagePull: not found", CannotStart: "ErrImagePull",
		}},

		"it is slow":                {defaults, []*NodeState{canaryPod("n1", creating(time.Hour))}, began, Verdict{}},
		"it is slow, and may be":    {slow, []*NodeState{canaryPod("n1", creating(30*time.Second))}, began, Verdict{Wake: at(-90 * time.Second)}},
		"it is slow, without limit": {off, []*NodeState{canaryPod("n1", creating(time.Hour))}, began, Verdict{}},
		"it is too slow": {slow, []*NodeState{canaryPod("n2", creating(2*minute)), canaryPod("n3", creating(3*minute)), canaryPod("n1", creating(minute))}, began, Verdict{
			Paused: true, Reason: "SlowStartTimeoutExceeded", Message: "Pod foo-n2 cannot start with reason: SlowStartTimeoutExceeded, on node n2: it has not started within 2m0s",
			CannotStart: "SlowStartTimeoutExceeded", Wake: at(-minute),
		}},
		"it is too slow, as no one has room": {slow, []*NodeState{canaryPod("n2", PodState{Creating: at(3 * minute), Message: "the pod is not scheduled: 0/3 nodes are available"})}, began, Verdict{
			Paused: true, Reason: "SlowStartTimeoutExceeded", CannotStart: "SlowStartTimeoutExceeded",
			Message: "Pod foo-n2 cannot start with reason: SlowStartTimeoutExceeded, on node n2: it has not started within 2m0s: the pod is not scheduled: 0/3 nodes are available",
		}},
		"it is too slow, which a person knows": {slow, []*NodeState{canaryPod("n1", creating(2*minute))}, unpaused, Verdict{CannotStart: "SlowStartTimeoutExceeded"}},
		"a bad image and a slow one": {slow, []*NodeState{canaryPod("n3", creating(3*minute)), canaryPod("n2", badImage(3*minute))}, began, Verdict{
			Paused: true, Reason: "ErrImagePull", Message: "Pod foo-n2 cannot start with reason: ErrImagePull, on node n2: container app can't start, ErrImagePull: not found", CannotStart: "ErrImagePull",
		}},
		"slow is worse than a bad image that may yet come": {slow, []*NodeState{canaryPod("n1", badImage(minute)), canaryPod("n2", creating(3*minute))}, began, Verdict{
			Paused: true, Reason: "SlowStartTimeoutExceeded", Message: "Pod foo-n2 cannot start with reason: SlowStartTimeoutExceeded, on node n2: it has not started within 2m0s", CannotStart: "ErrImagePull", Wake: at(-minute),
		}},
		"the sooner of two": {strategy(autoPause{MaxSlowStartDuration: duration(2 * minute)}, autoFail{CanaryTimeout: duration(21 * minute)}),
			[]*NodeState{canaryPod("n1", creating(30*time.Second))}, began, Verdict{Wake: at(-minute)}},
	} {
		got := judged(tc.canary, tc.pods, tc.history, now)
		if (got.CannotStart == "") != (got.CannotStartMessage == "") {
			t.Errorf("%s: %q is told as %q", name, got.CannotStart, got.CannotStartMessage)
		}
		got.CannotStartMessage, got.RestartMessage = "", ""
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestJudgeNamesThePodThatRestartedLast(t *testing.T) {
	pods := []*NodeState{canaryPod("n1", hasRestarted(9, time.Minute)), canaryPod("n2", hasRestarted(1, time.Second))}
	if got := judged(&canary{}, pods, CanaryHistory{}, now).RestartMessage; got != "Pod foo-n2 restarting with reason: OOMKilled" {
		t.Errorf("it says %q", got)
	}
}

// TestJudgeTellsWhatCannotStart does so whether or not that, or something else, pauses the canary.
func TestJudgeTellsWhatCannotStart(t *testing.T) {
	patient := &canary{AutoPause: &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{
		MaxSlowStartDuration: &metav1.Duration{Duration: 2 * time.Minute},
	}}
	bad, slow := badImage(time.Minute), PodState{Creating: now.Add(-3 * time.Minute)}
	const image = "container app can't start, ErrImagePull: not found"
	for name, tc := range map[string]struct {
		canary *canary
		pods   []*NodeState
		want   string
	}{
		"nothing":                   {patient, []*NodeState{canaryPod("n1", PodState{Ready: true})}, ""},
		"it pauses the canary":      {&canary{}, []*NodeState{canaryPod("n2", bad), canaryPod("n1", bad)}, "Pod foo-n1 cannot start with reason: ErrImagePull, on node n1: " + image},
		"and all others are well":   {&canary{}, []*NodeState{canaryPod("n1", bad), canaryPod("n2", PodState{Ready: true})}, "Pod foo-n1 cannot start with reason: ErrImagePull, on node n1: " + image},
		"it may take its time":      {patient, []*NodeState{canaryPod("n1", bad)}, "Pod foo-n1 cannot start with reason: ErrImagePull, on node n1: " + image},
		"another pauses the canary": {patient, []*NodeState{canaryPod("n3", slow), canaryPod("n2", bad)}, "Pod foo-n2 cannot start with reason: ErrImagePull, on node n2: " + image},
		"restarts fail the canary":  {patient, []*NodeState{canaryPod("n1", hasRestarted(9, 0)), canaryPod("n2", bad)}, "Pod foo-n2 cannot start with reason: ErrImagePull, on node n2: " + image},
		"it is slow":                {patient, []*NodeState{canaryPod("n2", slow), canaryPod("n1", slow)}, "Pod foo-n1 cannot start with reason: SlowStartTimeoutExceeded, on node n1: it has not started within 2m0s"},
		"it is slow, and may be":    {&canary{}, []*NodeState{canaryPod("n1", slow)}, ""},
	} {
		if got := judged(tc.canary, tc.pods, CanaryHistory{}, now).CannotStartMessage; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// TestJudgeHolds judges random canaries.
func TestJudgeHolds(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	past := func(most time.Duration) time.Time {
		return now.Add(-time.Duration(r.Int64N(int64(most)))).Truncate(time.Second)
	}
	maybe := func(d time.Duration) *metav1.Duration {
		if r.IntN(3) == 0 {
			return nil
		}
		return &metav1.Duration{Duration: time.Duration(r.Int64N(int64(d))).Truncate(time.Second)}
	}
	flag := func() *bool { return []*bool{nil, ptr.To(true), ptr.To(true), ptr.To(false)}[r.IntN(4)] }
	for range 2000 {
		c := &canary{}
		if r.IntN(8) > 0 {
			c.AutoPause = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{Enabled: flag(), MaxSlowStartDuration: maybe(time.Hour)}
		}
		if r.IntN(8) > 0 {
			c.AutoFail = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{Enabled: flag(), CanaryTimeout: maybe(4 * time.Hour), MaxRestartsDuration: maybe(time.Hour)}
		}
		h := CanaryHistory{Began: past(2 * time.Hour), Unpaused: r.IntN(4) == 0}
		if r.IntN(2) == 0 {
			h.FirstRestart = past(2 * time.Hour)
			h.LastRestart = h.FirstRestart.Add(time.Duration(r.IntN(1000)) * time.Second)
		}
		var pods []*NodeState
		for i := range r.IntN(5) {
			p := canaryPod(fmt.Sprintf("n%d", i), PodState{})
			switch r.IntN(4) {
			case 0:
				p.Current.State = hasRestarted(r.Int32N(8), time.Duration(r.IntN(10_000))*time.Second)
			case 1:
				p.Current.State = badImage(time.Duration(r.IntN(3600)) * time.Second)
			case 2:
				p.Current.State = PodState{Creating: past(time.Hour)}
			}
			pods = append(pods, p)
		}
		v := judged(c, pods, h, now)
		switch {
		case v.Failed && v.Paused, (v.Failed || v.Paused) != (v.Reason != ""), (v.Reason == "") != (v.Message == ""):
			t.Fatalf("neither this nor that: %+v", v)
		case v.Paused && h.Unpaused:
			t.Fatalf("it is paused again: %+v", v)
		case v.FirstRestart.After(v.LastRestart), !h.FirstRestart.IsZero() && v.FirstRestart.After(h.FirstRestart), v.LastRestart.Before(h.LastRestart):
			t.Fatalf("from %+v follows %+v", h, v)
		}
		until := v.Wake.Add(-1)
		if v.Wake.IsZero() {
			until = now.AddDate(1, 0, 0)
		}
		if diff := cmp.Diff(v, judged(c, pods, h, until)); diff != "" || until.Before(now) {
			t.Fatalf("it changes before it wakes (-now +later):\n%s", diff)
		}
	}
}
