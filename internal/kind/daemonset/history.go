// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"

	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/history"
)

// History returns the runs after these, once Summarize has written the rest of the status. A run is a ReplicaSet's way to all nodes, with its
// canary. A canary that fails halts it, and so does one that autoPause has paused for restarts.
func (j *Judge) History(before []v1alpha1.Run) []v1alpha1.Run {
	s := &j.EDS.Status
	if j.Units == nil { // Nothing is decided.
		return before
	}
	paused, _ := j.IsPaused()
	o := history.Observation{
		Revision: j.Target.Name, CreatedBy: history.CreatedBy(j.EDS), Wave: s.Wave, Approval: s.Approval,
		Counts: v1alpha1.UnitCounts{Total: s.Desired, Updated: s.UpToDate}, Complete: edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady),
		Paused: paused || j.Canary.Paused(), Failed: map[v1alpha1.Reason]int32{},
	}
	stalled := ptr.Deref(edsv1.TrueCondition(s.Conditions, edsv1.ConditionStalled), edsv1.Condition{})
	o.Halted = stalled.Reason == string(v1alpha1.ReasonHalted) || j.CanaryFailed() || j.Canary != nil && j.Canary.Verdict.Paused && strings.HasPrefix(j.Canary.Verdict.Message, restarting)
	units := j.Units
	if j.Canary != nil {
		units = j.Canary.Units
	}
	for i := range units {
		switch units[i].State {
		case v1alpha1.UnitOutdated:
			o.Counts.Waiting++
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			o.Counts.Updating++
		case v1alpha1.UnitFailed:
			o.Failed[units[i].Reason]++
		}
	}
	if waits := j.Waits(); len(waits) > 0 {
		o.Wait = waits[0].Reason
	}
	if j.CanaryFailed() { // The other pods are those of the revision before.
		n := max(1, j.counts(j.Target.Name).All)
		o.Counts = v1alpha1.UnitCounts{Total: s.Desired, Waiting: max(0, s.Desired-n)}
		o.Failed, o.Wait = map[v1alpha1.Reason]int32{v1alpha1.ReasonPodFailed: n}, v1alpha1.ReasonHalted
	}
	for _, n := range o.Failed {
		o.Counts.Failed += n
	}
	return history.Next(before, o, j.Now)
}
