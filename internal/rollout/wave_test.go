// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// bench is ten ready nodes, n0 to n9, of which the first three are of the pool canary.
func bench() (units []Unit, fleet Fleet) {
	fleet.Nodes = map[string]*Node{}
	for i := range 10 {
		name := fmt.Sprintf("n%d", i)
		units = append(units, outdated(name, ranked(uint64(i))))
		m := machine{readySince: noon.Add(-time.Hour), offSince: noon.Add(-time.Hour)}
		if i < 3 {
			m.labels = map[string]string{"pool": "canary"}
		}
		fleet.Nodes[name] = m.node(name)
	}
	return units, fleet
}

func set(units []Unit, state v1alpha1.UnitState, which ...int) {
	for _, i := range which {
		units[i].State = state
		units[i].Claimed = state != v1alpha1.UnitUpdated
		if state == v1alpha1.UnitFailed {
			units[i].Reason, units[i].Message = v1alpha1.ReasonJobFailed, "it broke"
		}
	}
}

func stood(name string, number int32, state v1alpha1.WaveState, ago time.Duration) *v1alpha1.WaveStatus {
	return &v1alpha1.WaveStatus{Name: name, Number: number, Revision: "v1", State: state, Since: metav1.Time{Time: noon.Add(-ago)}}
}

func names(all ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range all {
		set[name] = true
	}
	return set
}

func TestWaves(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	done := func(units []Unit, _ *Fleet) { set(units, v1alpha1.UnitUpdated, all...) }
	soakLast := func(s *Strategy) { s.SoakLast = true }
	lastOn := func(nodes ...string) func(*Strategy) {
		return func(s *Strategy) { s.SoakLast, s.Waves[0].Size, s.Waves[0].Nodes = true, 0, names(nodes...) }
	}
	everywhere := lastOn("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9")
	byPool := strategyOf(t, "waves:\n- {name: pool, nodeSelector: {matchLabels: {pool: canary}}}\n- {size: 20%}").Waves
	both := strategyOf(t, "waves:\n- {name: pool, size: 2, nodeSelector: {matchLabels: {pool: canary}}}\n- {size: 95%}").Waves
	connected := func(s *Strategy) {
		s.Health.Conditions = []v1alpha1.NodeConditionRequirement{{Type: networkPresence, Status: metav1.ConditionFalse}}
	}
	soaked := strategyOf(t, "waves:\n- {name: first, size: 1, soak: 10m, approval: Manual}").Waves
	three := strategyOf(t, "waves:\n- {size: 1}\n- {size: 2}\n- {size: 3}").Waves
	first := func(units []Unit, _ *Fleet) { set(units, v1alpha1.UnitUpdated, 0) }
	to := func(revision string) func(*Strategy) { return func(s *Strategy) { s.Revision = revision } }
	by := func(template string) func(*Strategy) { return func(s *Strategy) { s.Template = template } }
	passed := func(template string) *v1alpha1.WaveStatus {
		w := stood("remainder", 2, v1alpha1.WaveProgressing, time.Hour)
		w.Template = template
		return w
	}
	unmatched := strategyOf(t, "waves:\n- {size: 1}\n- {name: none, approval: Manual, nodeSelector: {matchLabels: {pool: none}}}").Waves
	waitingAt := func(revision string) *v1alpha1.WaveStatus {
		w := stood("first", 1, v1alpha1.WaveWaitingForApproval, time.Hour)
		w.Revision = revision
		return w
	}
	for name, tc := range map[string]struct {
		waves    []v1alpha1.Wave
		failures *int
		wave     *v1alpha1.WaveStatus
		approved string
		edit     func(units []Unit, fleet *Fleet)
		change   func(*Strategy)
		// want says who starts, how the wave stands, and with which reason the last unit waits.
		start, stands string
		last          v1alpha1.Reason
		next          time.Duration
	}{
		"a selector": {waves: byPool, start: "n0 n1 n2", stands: "pool 1/3 Progressing 0/3", last: v1alpha1.ReasonWavePending},
		"the next takes a share of all": {waves: byPool, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0, 1, 2) },
			start: "n3 n4", stands: "wave-2 2/3 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"both bound a wave": {waves: both, start: "n0 n1", stands: "pool 1/2 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"one that is larger than what is left": {waves: both, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0, 1) },
			start: "n2 n3 n4 n5 n6 n7 n8 n9", stands: "wave-2 2/2 Progressing 0/8"},
		"what is left over comes last": {waves: byPool, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0, 1, 2, 3, 4) },
			start: "n5 n6 n7 n8 n9", stands: "remainder 3/3 Progressing 0/5"},
		"all done": {waves: byPool, wave: stood("remainder", 3, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9) },
			stands: "remainder 3/3 Complete 5/5"},
		"the last one with a failure is not complete": {waves: byPool, wave: stood("remainder", 3, v1alpha1.WaveProgressing, 0), failures: new(int), edit: func(u []Unit, f *Fleet) {
			done(u, f)
			set(u, v1alpha1.UnitFailed, 9)
		}, stands: "remainder 3/3 Progressing 4/5", last: v1alpha1.ReasonJobFailed},
		"no canary": {waves: byPool, edit: func(_ []Unit, f *Fleet) {
			for _, n := range f.Nodes {
				n.Labels = nil
			}
		}, stands: "pool 1/3 Progressing 0/0", last: v1alpha1.ReasonWavePending},
		"no canary any more, but it has passed": {waves: byPool, wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(_ []Unit, f *Fleet) {
			for _, n := range f.Nodes {
				n.Labels = nil
			}
		}, start: "n0 n1", stands: "wave-2 2/3 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"nothing to do is no canary that has passed": {waves: soaked, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9) },
			stands: "first 1/2 Complete 1/1"},
		"an updated node fills the first wave": {waves: three, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 7) },
			start: "n0 n1", stands: "wave-2 2/4 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"a node that nothing is offered to fills no place that another can take": {waves: three, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1, 2, 3, 4, 5, 6)
			for i := range 7 {
				u[i].Unoffered = true
			}
		}, start: "n7", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"nor does one of which that is not known": {waves: three, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 9)
			u[0].Unoffered, u[1].Unoffered, u[9].Unoffered = true, true, true
			u[0].Reason, u[1].Reason = v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent
		}, start: "n2", stands: "wave-1 1/4 Progressing 0/1"},
		"a canary that nothing is offered to proves nothing": {waves: byPool, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1, 2)
			u[0].Unoffered, u[1].Unoffered, u[2].Unoffered = true, true, true
		}, stands: "pool 1/3 Progressing 3/3", last: v1alpha1.ReasonWavePending},
		"turns of the next do not take the place of a failed node": {waves: three, failures: ptr.To(2), wave: stood("wave-2", 2, v1alpha1.WaveSoaking, time.Hour),
			edit: func(u []Unit, _ *Fleet) {
				set(u, v1alpha1.UnitUpdated, 0, 2)
				set(u, v1alpha1.UnitFailed, 1)
				set(u, v1alpha1.UnitUpdating, 3, 4, 5)
			}, stands: "wave-3 3/4 Progressing 0/3", last: v1alpha1.ReasonWavePending},
		"one of it that runs the revision is enough": {waves: byPool, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1, 2)
			u[0].Unoffered, u[1].Unoffered = true, true
		}, start: "n3 n4", stands: "wave-2 2/3 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"a canary that nothing is offered to holds nothing where nothing must be done": {waves: byPool, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, all...)
			u[0].Unoffered, u[1].Unoffered, u[2].Unoffered = true, true, true
		}, stands: "pool 1/3 Complete 3/3"},
		"nor does a skipped one beside it prove anything": {waves: byPool, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1)
			set(u, v1alpha1.UnitFailed, 2)
			u[0].Unoffered, u[1].Unoffered, u[2].Skipped = true, true, true
		}, stands: "pool 1/3 Progressing 2/3", last: v1alpha1.ReasonWavePending},
		"a wave that has passed is not gone back to for such nodes": {waves: byPool, wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1, 2)
			u[0].Unoffered, u[1].Unoffered, u[2].Unoffered = true, true, true
		}, start: "n3 n4", stands: "wave-2 2/3 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"of a wave that has failed such nodes are no success": {waves: byPool, failures: ptr.To(5), wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1, 2, 3)
			u[3].Unoffered = true
			set(u, v1alpha1.UnitFailed, 4)
			for i := 5; i < 9; i++ {
				u[i].OptedOut = true
			}
		}, change: func(s *Strategy) { s.Waves[1].Nodes = names("n3", "n4") }, stands: "wave-2 2/3 Halted 1/2", last: v1alpha1.ReasonHalted},
		"what opted out is in no wave": {waves: three, edit: func(u []Unit, _ *Fleet) { u[0].OptedOut = true }, start: "n1", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"it soaks": {waves: soaked, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 10 * time.Minute},
		"it goes on soaking": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 4*time.Minute), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 6 * time.Minute},
		"it soaks anew for another revision": {waves: soaked, wave: &v1alpha1.WaveStatus{Name: "first", Number: 1, Revision: "v0", State: v1alpha1.WaveSoaking}, edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 10 * time.Minute},
		"a flap that no one saw": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 9*time.Minute), edit: func(u []Unit, f *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			f.Nodes["n0"] = (&machine{readySince: noon.Add(-2 * time.Minute)}).node("n0")
		}, stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 8 * time.Minute},
		"not healthy": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 9*time.Minute), edit: func(u []Unit, f *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			f.Nodes["n0"] = (&machine{notReady: true}).node("n0")
		}, stands: "first 1/2 Unhealthy 1/1", last: v1alpha1.ReasonWaveUnhealthy},
		"not healthy by what the rollout asks": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 9*time.Minute), edit: func(u []Unit, f *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			f.Nodes["n0"] = (&machine{offline: true}).node("n0")
		}, change: connected, stands: "first 1/2 Unhealthy 1/1", last: v1alpha1.ReasonWaveUnhealthy},
		"healthy again by what the rollout asks": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 9*time.Minute), edit: func(u []Unit, f *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			f.Nodes["n0"] = (&machine{offSince: noon.Add(-2 * time.Minute)}).node("n0")
		}, change: connected, stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 8 * time.Minute},
		"ready not for as long as the rollout asks": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 9*time.Minute), edit: func(u []Unit, f *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			f.Nodes["n0"] = (&machine{readySince: noon.Add(-2 * time.Minute)}).node("n0")
		}, change: func(s *Strategy) { s.Health.MinReady = 5 * time.Minute }, stands: "first 1/2 Unhealthy 1/1", last: v1alpha1.ReasonWaveUnhealthy, next: 3 * time.Minute},
		"it has soaked": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 10*time.Minute), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			stands: "first 1/2 WaitingForApproval 1/1", last: v1alpha1.ReasonWaitingForApproval},
		"approved for another revision": {waves: soaked, approved: "first@v0", wave: stood("first", 1, v1alpha1.WaveWaitingForApproval, time.Hour), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			stands: "first 1/2 WaitingForApproval 1/1", last: v1alpha1.ReasonWaitingForApproval},
		"approved": {waves: soaked, approved: "first@v1", wave: stood("first", 1, v1alpha1.WaveWaitingForApproval, time.Hour), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"approved for an image of a like name": {waves: soaked, approved: ApprovalOf("first", "k8s-node-1.30", ""), wave: waitingAt("k8s-node-1.31"), edit: first, change: to("k8s-node-1.31"),
			stands: "first 1/2 WaitingForApproval 1/1", last: v1alpha1.ReasonWaitingForApproval},
		"approved for another candidate of the version": {waves: soaked, approved: ApprovalOf("first", "1.20.3-rc.1", ""), wave: waitingAt("1.20.3-rc.2"), edit: first, change: to("1.20.3-rc.2"),
			stands: "first 1/2 WaitingForApproval 1/1", last: v1alpha1.ReasonWaitingForApproval},
		"approved for the candidate": {waves: soaked, approved: "first@1.20.3-rc.2", wave: waitingAt("1.20.3-rc.2"), edit: first, change: to("1.20.3-rc.2"),
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"approved for another template": {waves: soaked, approved: "first@v1/old", wave: waitingAt("v1"), edit: first, change: by("new"),
			stands: "first 1/2 WaitingForApproval 1/1", last: v1alpha1.ReasonWaitingForApproval},
		"approved for the template": {waves: soaked, approved: "first@v1/new", wave: waitingAt("v1"), edit: first, change: by("new"),
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"the template changes after the approval": {waves: soaked, approved: "first@v1/old", wave: passed("old"), edit: first, change: by("new"),
			stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 10 * time.Minute},
		"the template stays": {waves: soaked, approved: "first@v1/old", wave: passed("old"), edit: first, change: by("old"),
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"the template was not known": {waves: soaked, approved: "first@v1", wave: passed(""), edit: first, change: by("new"),
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"nobody approved the template": {waves: strategyOf(t, "waves:\n- {size: 1}").Waves, wave: passed("old"), edit: first, change: by("new"),
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"a wave without a node must be approved": {waves: unmatched, edit: first, stands: "none 2/3 WaitingForApproval 0/0", last: v1alpha1.ReasonWaitingForApproval},
		"a wave without a node is approved": {waves: unmatched, approved: "none@v1", edit: first,
			start: "n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 3/3 Progressing 0/9"},
		"an approval does not shorten the soak": {waves: soaked, approved: "first@v1", edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0) },
			stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 10 * time.Minute},
		"the canary fails": {waves: three, failures: ptr.To(5), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitFailed, 0) },
			stands: "wave-1 1/4 Halted 0/1", last: v1alpha1.ReasonHalted},
		"a canary that has failed keeps its place beside a node that joins updated": {waves: three, wave: stood("wave-1", 1, v1alpha1.WaveHalted, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, 0)
			set(u, v1alpha1.UnitUpdated, 7)
		}, stands: "wave-1 1/4 Halted 0/1", last: v1alpha1.ReasonHalted},
		"a canary keeps its place beside a node that joins later": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 4*time.Minute), edit: func(u []Unit, f *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			set(u, v1alpha1.UnitUpdated, 7)
			f.Nodes["n0"] = (&machine{notReady: true, created: noon}).node("n0")
		}, stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 6 * time.Minute},
		"also one without a claim, beside one that is claimed": {waves: three, wave: stood("wave-1", 1, v1alpha1.WaveHalted, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, 0)
			set(u, v1alpha1.UnitUpdating, 3)
			set(u, v1alpha1.UnitUpdated, 7)
			u[0].Claimed = false
		}, stands: "wave-1 1/4 Halted 0/1", last: v1alpha1.ReasonHalted},
		"so does one that is in its turn": {waves: three, wave: stood("wave-1", 1, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdating, 0)
			set(u, v1alpha1.UnitUpdated, 7)
		}, stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"and one that is tried again": {waves: three, wave: stood("wave-1", 1, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, 0)
			set(u, v1alpha1.UnitUpdated, 7)
			u[0].RetryAt = noon
		}, start: "n0", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"but none that still runs for an earlier revision": {waves: three, wave: stood("wave-1", 1, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			u[0].Claimed, u[0].InTurn, u[0].Running = true, true, true
			set(u, v1alpha1.UnitUpdated, 7)
		}, start: "n0 n1", stands: "wave-2 2/4 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"nor one that was skipped": {waves: three, wave: stood("wave-1", 1, v1alpha1.WaveHalted, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, 0)
			set(u, v1alpha1.UnitUpdated, 7)
			u[0].Skipped, u[0].Claimed = true, false
		}, start: "n1", stands: "wave-2 2/4 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"what has failed elsewhere takes no place in a canary that soaks": {
			waves: soaked, failures: ptr.To(5), wave: stood("first", 1, v1alpha1.WaveSoaking, 4*time.Minute), edit: func(u []Unit, _ *Fleet) {
				set(u, v1alpha1.UnitUpdated, 0)
				set(u, v1alpha1.UnitFailed, 5)
			}, stands: "first 1/2 Soaking 1/1", last: v1alpha1.ReasonWaveSoaking, next: 6 * time.Minute},
		"a later wave fails": {waves: three, wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1)
			set(u, v1alpha1.UnitFailed, 2)
		}, stands: "wave-2 2/4 Halted 1/2", last: v1alpha1.ReasonHalted},
		"a later wave fails, which is allowed": {waves: three, failures: ptr.To(1), wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1)
			set(u, v1alpha1.UnitFailed, 2)
		}, start: "n3 n4 n5", stands: "wave-3 3/4 Progressing 0/3", last: v1alpha1.ReasonWavePending},
		"all of a wave fails": {waves: three, failures: ptr.To(5), wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0)
			set(u, v1alpha1.UnitFailed, 1, 2)
		}, stands: "wave-2 2/4 Halted 0/2", last: v1alpha1.ReasonHalted},
		"one of the wave was skipped": {waves: three, wave: stood("wave-2", 2, v1alpha1.WaveProgressing, 0), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdated, 0, 1)
			set(u, v1alpha1.UnitFailed, 2)
			u[2].Skipped = true
		}, start: "n3 n4 n5", stands: "wave-3 3/4 Progressing 0/3", last: v1alpha1.ReasonWavePending},
		"a claimed one is exempt": {waves: three, edit: func(u []Unit, _ *Fleet) { u[0].State = v1alpha1.UnitUpdating; u[5].Claimed, u[6].Claimed = true, true },
			start: "n5 n6", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"waves were put before": {waves: strategyOf(t, "waves:\n- {name: new, size: 1}\n- {name: old, size: 1}").Waves, wave: stood("old", 1, v1alpha1.WaveProgressing, 0),
			start: "n0 n1", stands: "old 2/3 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"the wave is gone": {waves: three, wave: stood("old", 3, v1alpha1.WaveProgressing, 0),
			start: "n0", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"a wave that is called as the rest is": {waves: strategyOf(t, "waves:\n- {name: remainder, size: 1}").Waves, wave: stood("remainder", 2, v1alpha1.WaveProgressing, 0),
			start: "n0 n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 2/2 Progressing 0/9"},
		"the remainder is empty, and is not forgotten": {waves: strategyOf(t, "waves:\n- {size: 5}\n- {size: 5}").Waves, wave: stood("remainder", 3, v1alpha1.WaveComplete, 0),
			start: "n0 n1 n2 n3 n4 n5 n6 n7 n8 n9", stands: "remainder 3/3 Progressing 0/0"},

		"by name": {waves: three, change: func(s *Strategy) { s.Waves[0].Size, s.Waves[0].Nodes = 0, names("n4", "n7", "gone") },
			start: "n4 n7", stands: "wave-1 1/4 Progressing 0/2", last: v1alpha1.ReasonWavePending},
		"so many of those named": {waves: three, change: func(s *Strategy) { s.Waves[0].Nodes = names("n4", "n7") },
			start: "n4", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"those named of the selected": {waves: byPool, change: func(s *Strategy) { s.Waves[0].Nodes = names("n1", "n7") },
			start: "n1", stands: "pool 1/3 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"no one is named": {waves: three, change: func(s *Strategy) { s.Waves[0].Nodes = names() },
			stands: "wave-1 1/4 Progressing 0/0", last: v1alpha1.ReasonWavePending},
		"what is updated elsewhere is not of those named": {waves: soaked, change: lastOn("n4"), edit: func(u []Unit, _ *Fleet) { set(u, v1alpha1.UnitUpdated, 0, 1) },
			start: "n4", stands: "first 1/2 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"one that is excused is waited for": {waves: three, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitUpdating, 0)
			u[0].Excused = true
		}, stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"one that has failed and is excused is waited for": {waves: three, failures: ptr.To(5), edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, 0)
			u[0].Excused = true
		}, stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},
		"what has failed is tried again, whatever its wave": {waves: three, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, 5)
			u[5].Claimed, u[5].RetryAt = false, noon
		}, start: "n0 n5", stands: "wave-1 1/4 Progressing 0/1", last: v1alpha1.ReasonWavePending},

		"the last soaks": {waves: soaked, change: everywhere, edit: done,
			stands: "first 1/1 Soaking 10/10", next: 10 * time.Minute},
		"the last is approved": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 10*time.Minute), edit: done,
			change: everywhere, stands: "first 1/1 WaitingForApproval 10/10"},
		"the last is healthy": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveSoaking, 9*time.Minute), edit: func(u []Unit, f *Fleet) {
			done(u, f)
			f.Nodes["n0"] = (&machine{notReady: true}).node("n0")
		}, change: everywhere, stands: "first 1/1 Unhealthy 10/10"},
		"the last is over": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveWaitingForApproval, time.Hour), approved: "first@v1", edit: done,
			change: everywhere, stands: "first 1/1 Complete 10/10"},
		"what was complete stays so, though a node is not healthy any more": {
			waves: soaked, wave: stood("first", 1, v1alpha1.WaveComplete, time.Minute), edit: func(u []Unit, f *Fleet) {
				done(u, f)
				f.Nodes["n0"] = (&machine{notReady: true}).node("n0")
			}, change: everywhere, stands: "first 1/1 Complete 10/10"},
		"what was complete need not soak again for a node that joins": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveComplete, time.Minute), edit: func(u []Unit, f *Fleet) {
			done(u, f)
			u[9].State = v1alpha1.UnitOutdated
		}, change: lastOn("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"), start: "n9", stands: "remainder 2/2 Progressing 0/1"},
		"but for one that is outdated again": {waves: soaked, wave: stood("first", 1, v1alpha1.WaveComplete, time.Minute), edit: func(u []Unit, f *Fleet) {
			done(u, f)
			u[9].State = v1alpha1.UnitOutdated
		}, change: everywhere, start: "n9", stands: "first 1/1 Progressing 9/10"},
		"one that others follow, which are updated already, soaks, and then those do": {waves: soaked, change: soakLast, edit: done,
			stands: "first 1/2 Soaking 1/1", next: 10 * time.Minute},
		"the rest has nothing to soak for": {waves: soaked, change: soakLast, wave: stood("remainder", 2, v1alpha1.WaveProgressing, time.Minute), edit: func(u []Unit, f *Fleet) {
			done(u, f)
			f.Nodes["n9"] = (&machine{notReady: true}).node("n9")
		}, stands: "remainder 2/2 Complete 9/9"},
		"nothing there is no canary that has passed": {waves: soaked, change: soakLast, edit: func(u []Unit, _ *Fleet) {
			for i := range u {
				u[i].OptedOut = true
			}
		}, stands: "first 1/1 Progressing 0/0", last: v1alpha1.ReasonOptedOut},
		"a canary that was skipped has not passed, though it is all": {waves: soaked, change: everywhere, edit: func(u []Unit, _ *Fleet) {
			set(u, v1alpha1.UnitFailed, all...)
			for i := range u {
				u[i].Skipped = true
			}
		}, stands: "first 1/1 Halted 0/10", last: v1alpha1.ReasonJobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			units, fleet := bench()
			if tc.edit != nil {
				tc.edit(units, &fleet)
			}
			s := New(&v1alpha1.Strategy{Waves: tc.waves}, 10, 10)
			s.UID, s.Revision, s.Wave, s.Approved, s.MaxFailures = own, "v1", tc.wave, []string{tc.approved}, tc.failures
			if tc.change != nil {
				tc.change(&s)
			}
			d := Decide(s, units, fleet, noon)
			if got := strings.Join(d.Start, " "); got != tc.start {
				t.Errorf("starts %q, want %q", got, tc.start)
			}
			if w := d.Wave; fmt.Sprintf("%s %d/%d %s %d/%d", w.Name, w.Number, w.Of, w.State, w.Updated, w.Nodes) != tc.stands {
				t.Errorf("stands at %+v, want %s", *w, tc.stands)
			}
			last := v1alpha1.Reason("")
			if n := len(d.Waiting); n > 0 && d.Waiting[n-1].Node == "n9" {
				last = d.Waiting[n-1].Reason
			}
			if last != tc.last {
				t.Errorf("the last waits for %q, want %q: %+v", last, tc.last, d.Waiting)
			}
			want := time.Time{}
			if tc.next > 0 {
				want = noon.Add(tc.next)
			}
			if !d.Next.Equal(want) {
				t.Errorf("wakes at %s, want %s", d.Next, want)
			}
		})
	}
}

func TestNewStrategyErrors(t *testing.T) {
	for want, text := range map[string]string{
		`spec.strategy.maxConcurrent: "soon" is neither a count nor a percentage from 0% to 100%`: "maxConcurrent: soon",
		`spec.strategy.maxFailures: -1 is negative`:                                               "maxFailures: -1",
		`spec.strategy.waves[1].size: "x" is neither a count nor a percentage from 0% to 100%`:    "waves: [{size: 1}, {size: x}]",
		`spec.strategy.waves[1].name: there is another wave "wave-2"`:                             "waves: [{name: wave-2, size: 1}, {size: 1}]",
		`spec.strategy.waves[0].nodeSelector: "Resembles" is not a valid label selector operator`: "waves: [{nodeSelector: {matchExpressions: [{key: a, operator: Resembles}]}}]",
		`spec.strategy.windows[0].timeZone: unknown time zone Europe/Atlantis`:                    "windows: [{schedule: '0 0 * * *', duration: 1h, timeZone: Europe/Atlantis}]",
	} {
		s := New(strategyOf(t, text), 1, 10)
		if got := s.Problem(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if d := Decide(s, []Unit{outdated("a")}, Fleet{}, noon); len(d.Start) > 0 {
			t.Errorf("%s: starts %v", text, d.Start)
		}
	}
}

// TestApprovalOf: what approves one revision approves no other, and that of a hash is short.
func TestApprovalOf(t *testing.T) {
	long := "projects/images/global/images/" + strings.Repeat("x", 60) + "-1.30"
	for revision, want := range map[string]string{
		"df147d5d010ce22855cffad0776d2307e736793ece03ed486608b100": "df147d5d01", // of a Plan
		"0cc175b9c0f1b6a831c399e269772661":                         "0cc175b9c0", // of an ExtendedDaemonSet
		"":                                                         "",
		"k8s-node-1.31":                                            "k8s-node-1.31",
		"1.20.3-rc.2":                                              "1.20.3-rc.2",
		"20261120120000":                                           "20261120120000",
		"2-sets-0123456789ab":                                      "2-sets-0123456789ab",
		strings.Repeat("x", 63):                                    strings.Repeat("x", 63),
		long:                                                       "projects/images/global/images/xxxxxxxxxx-2264582c65",
		long + ".1":                                                "projects/images/global/images/xxxxxxxxxx-b55d737e66",
	} {
		if got := ApprovalOf("canary", revision, ""); got != "canary@"+want {
			t.Errorf("%s: got %q, want %q", revision, got, "canary@"+want)
		}
		wave := strings.Repeat("w", 63) // The longest name.
		one, other := ApprovalOf(wave, revision, "0123456789abcdef"), ApprovalOf(wave, revision, "123456789abcdef0")
		if one == other || len(one) > 128 { // status.approval.of is at most so long.
			t.Errorf("%s: %q (%d) and %q", revision, one, len(one), other)
		}
	}
	if got := ApprovalOf("canary", "1.20.3", "0123456789abcdef"); got != "canary@1.20.3/0123456789" {
		t.Error(got)
	}
}

// People approve by the annotation, or in the status, where they say who they are.
func TestApprovals(t *testing.T) {
	annotated := map[string]string{v1alpha1.AnnotationApprove: "a@1"}
	for want, got := range map[string][]string{
		"[]": Approvals(nil, nil), "[a@1]": Approvals(annotated, nil), "[a@1 b@1]": Approvals(annotated, &v1alpha1.WaveApproval{Of: "b@1", By: "jane"}),
	} {
		if fmt.Sprint(got) != want {
			t.Errorf("%q, want %s", got, want)
		}
	}
}
