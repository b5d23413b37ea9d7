// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// Steps that only host updates have.
const (
	StepAsk              nodeturn.Step = "ask"               // order a check: the agent looks for updates, and first reverts one that was performed
	StepReleaseUnclaimed nodeturn.Step = "release-unclaimed" // release a node whose claim a person has removed
	StepPrepare          nodeturn.Step = "prepare"           // order prepare-update again: the order was removed
	StepPerform          nodeturn.Step = "perform"           // order perform-update
	StepCallHooks        nodeturn.Step = "call-hooks"        // label the node for the hooks before the reboot
	StepCordon           nodeturn.Step = "cordon"            // cordon the node
	// StepDrain: run one pass of the drain, unless it is disabled; when it is complete, order reboot-update. A host that returns to its other
	// partitions is first ordered rollback-update.
	StepDrain   nodeturn.Step = "drain"
	StepChanged nodeturn.Step = "changed" // record in the claim that the host runs the version, and label the node for the hooks after the reboot
)

// Unit is one node's part in the rollout.
type Unit struct {
	nodeturn.Turn
	// Report is what the Node says of its host. Labelled is whether a label names the host's interface.
	Report   Report
	Labelled bool
	// Verdict is what the rollout wants of the host.
	Verdict Verdict
	// Recovers is true for a failed unit whose turn ends when its node is healthy, and that is not retried before.
	Recovers bool
}

// Units judges every node that the rollout selects, or that still has its claim, mark or taint.
func (w *World) Units(nodes []*corev1.Node) []*Unit {
	w.healthy = nodeturn.Healthy(w.Fleet, w.Rollout.Spec.Health)
	optOut := v1alpha1.LabelNodeRollout(w.Rollout.Name)
	all := make([]*Unit, 0, len(nodes))
	for _, n := range nodes {
		t := &Unit{Turn: nodeturn.Turn{Node: n}}
		t.ReadClaims(w.Fleet.Nodes[n.Name], w.Rollout.UID)
		t.Report, t.Labelled = Read(n)
		selected := w.Selector.Matches(labels.Set(n.Labels))
		t.Unit.OptedOut = n.Labels[optOut] == v1alpha1.LabelNodeRolloutDisabled
		if t.Counted = selected && t.Labelled; selected && !t.Labelled && !t.Unit.OptedOut {
			w.Unlabelled = append(w.Unlabelled, n.Name)
		}
		if t.Counted || t.Claim != nil || nodeturn.IsMarked(t.Node, w.Holder) || nodeturn.Tainted(n, w.Taint) {
			all = append(all, t)
		}
	}
	w.survey(all)
	for _, t := range all {
		w.judge(t)
	}
	w.awaitAnswers(all)
	return all
}

// answerTime is how long awaitAnswers waits for agents that have not answered, after a release is discovered.
const answerTime = time.Minute

// awaitAnswers delays units, because hosts whose agents have not answered may have to go first. It delays the operator's own node, and all
// units if the strategy gives an order.
func (w *World) awaitAnswers(all []*Unit) {
	end := slices.MaxFunc([]time.Time{w.Rollout.CreationTimestamp.Time, w.newestSince}, time.Time.Compare).Add(answerTime)
	if !w.Ready || !w.Now.Before(end) {
		return
	}
	first := slices.IndexFunc(all, (*Unit).awaitsAnswer)
	if first < 0 {
		return
	}
	silent := all[first].Node.Name
	s := w.Rollout.Spec.Strategy
	ordered := s != nil && len(s.Order) > 0
	for _, t := range all {
		if t.Claim == nil && t.Unit.State == v1alpha1.UnitOutdated && t.Unit.Reason == "" && (ordered || t.Node.Name == w.OwnNode) {
			t.Unit.Reason = v1alpha1.ReasonHostSilent
			t.Unit.Message = fmt.Sprintf("others may come first, such as %s, whose agent has not said yet whether there is an update; they are waited for until %s",
				silent, end.UTC().Format(time.RFC3339))
			t.WakeAt(end)
		}
	}
}

// awaitsAnswer reports whether it is still unknown if the host has an update, so that it may have to go first.
func (t *Unit) awaitsAnswer() bool {
	return t.Counted && !t.Unit.OptedOut && t.Unit.Unoffered &&
		(t.Step == StepAsk || t.Unit.Reason == v1alpha1.ReasonHostSilent || t.Unit.State == v1alpha1.UnitUpdated && !t.Report.Knows())
}

// survey sets releases, versions and revision from all hosts together.
func (w *World) survey(all []*Unit) {
	status := &w.Rollout.Status
	var reports []*Report // Of the hosts that count.
	var turns []string    // The revisions of turns.
	asked := false        // A host has an update, and no failed turn.
	offered := false      // A host that answers offers the version from which the rollout was rolled back.
	for _, t := range all {
		isOpen := t.Claim == nil || t.Claim.Failed == nil
		if t.Counted && !t.Unit.OptedOut {
			reports = append(reports, &t.Report)
			asked = asked || isOpen && t.Report.Knows() && t.Report.Update == v1alpha1.HostUpdateTrue
			offered = offered || t.Report.Knows() && t.Report.offersVersion(status.RolledBack) && notReady(t.Node) == ""
		}
		if t.Claim != nil && isOpen {
			turns = append(turns, t.Claim.Revision)
		}
	}
	w.Releases, w.Versions = releases(status.Releases, reports, w.Now), versions(reports)
	w.newest, w.newestSince = newestRelease(w.Releases)
	if w.Ready {
		w.Revision = cmp.Or(w.Host.Version, revisionOf(reports, status.Revision, asked, w.isComplete(), turns))
		w.keepRolledBack(offered)
	}
}

// isComplete reports whether no host needs the revision any more, by the rollout's status, apart from those whose turns failed. Hosts with an
// unknown need are ignored: if such a host needs a reboot, that is a new revision.
func (w *World) isComplete() bool {
	s := &w.Rollout.Status
	return s.Counts != nil && s.Counts.Updating == 0 && int(s.Counts.Waiting) == len(s.Waiting) &&
		!slices.ContainsFunc(s.Waiting, func(u v1alpha1.UnitStatus) bool {
			return u.Reason != v1alpha1.ReasonHostSilent && u.Reason != v1alpha1.ReasonHostError
		})
}

// releases returns the versions that hosts offer, and since when. A known release stays while any host offers or runs it.
func releases(known []v1alpha1.HostRelease, reports []*Report, now time.Time) []v1alpha1.HostRelease {
	offered, there := map[string]bool{}, map[string]bool{}
	for _, r := range reports {
		there[r.Version] = true
		// While an agent looks again, or after it fails, its last offer still counts.
		there[r.Target] = there[r.Target] || r.Update != v1alpha1.HostUpdateFalse
		if r.Target != "" && r.Update == v1alpha1.HostUpdateTrue {
			offered[r.Target] = true
		}
	}
	var list []v1alpha1.HostRelease
	for _, r := range known {
		if there[r.Version] {
			list = append(list, r)
			delete(offered, r.Version)
		}
	}
	for version := range offered {
		list = append(list, v1alpha1.HostRelease{Version: version, Since: metav1.Time{Time: now.UTC().Truncate(time.Second)}})
	}
	slices.SortFunc(list, func(a, b v1alpha1.HostRelease) int {
		return cmp.Or(CompareVersions(b.Version, a.Version), cmp.Compare(a.Version, b.Version))
	})
	return list[:min(len(list), v1alpha1.MaxListedReleases)]
}

// versions counts which versions run on how many nodes, the most frequent first.
func versions(reports []*Report) []v1alpha1.HostVersion {
	count := map[string]int32{}
	for _, r := range reports {
		if r.Version != "" {
			count[r.Version]++
		}
	}
	var list []v1alpha1.HostVersion
	for version, n := range count {
		list = append(list, v1alpha1.HostVersion{Version: version, Nodes: n})
	}
	slices.SortFunc(list, func(a, b v1alpha1.HostVersion) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), CompareVersions(b.Version, a.Version), cmp.Compare(a.Version, b.Version))
	})
	return list[:min(len(list), v1alpha1.MaxListedReleases)]
}

// judge sets the unit's state and the next step.
func (w *World) judge(t *Unit) {
	t.Unit.Node, t.Unit.State = t.Node.Name, v1alpha1.UnitUpdating
	t.Verdict = w.verdict(&t.Report)
	if t.Claim == nil {
		w.judgeUnclaimed(t)
	} else {
		w.judgeClaimed(t)
		t.Unit.Claimed = !t.Claim.RecordsResult()
	}
	switch t.Unit.State {
	case v1alpha1.UnitUpdated:
		if t.Unit.Unoffered = w.RunsAnotherVersion(t); t.Counted && t.Report.State == v1alpha1.HostStateError {
			w.failing = append(w.failing, t.Node.Name)
		}
	case v1alpha1.UnitOutdated:
		t.Unit.Unoffered = t.Claim == nil && slices.Contains(unoffered, t.Verdict.Reason)
	}
	if w.Ready {
		t.JudgeTaint(w.Rollout.Spec.Strategy, w.Taint)
	}
}

// judgeUnclaimed judges a node that the rollout has no claim on.
func (w *World) judgeUnclaimed(t *Unit) {
	t.Unit.State = v1alpha1.UnitOutdated
	counts := t.Counted && !t.Unit.OptedOut
	switch {
	case t.Unreadable:
		// No rollout may change the node. A node that is cordoned for the rollout holds a slot.
		if t.Unit.InTurn = nodeturn.IsMarked(t.Node, w.Holder); t.Verdict.State == v1alpha1.UnitUpdated && !t.Unit.InTurn {
			t.Unit.State = v1alpha1.UnitUpdated
		}
	case !w.Ready:
	case counts && t.Report.Wanted == v1alpha1.HostActionReboot && (!w.Host.DetectOnly || nodeturn.IsMarked(t.Node, w.Holder)):
		if !slices.ContainsFunc(t.Claims, func(c v1alpha1.Claim) bool { return !c.RecordsResult() }) {
			t.Step, t.Unit.State = nodeturn.StepAdopt, v1alpha1.UnitUpdating
		}
	case nodeturn.IsMarked(t.Node, w.Holder) && !IsOthers(t.Claims, w.Rollout.UID):
		t.Step = StepReleaseUnclaimed
	case counts:
		w.ask(t)
		w.markOutdated(t)
	}
}

// IsOthers reports whether another NodeRollout than this one has its turn on a node with these claims. That rollout orders the agent.
func IsOthers(claims []v1alpha1.Claim, rollout types.UID) bool {
	return slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool {
		return strings.HasPrefix(c.Rollout, HolderOf("")) && c.UID != rollout && !c.RecordsResult()
	})
}

// askAgain is the least time before a host is asked again because other hosts offer a newer release. It limits the writes to all nodes
// if one agent keeps offering new versions.
const askAgain = 30 * time.Minute

// ask orders the agent to look for updates: if it was not asked yet, has an order of an earlier turn, or other hosts have found a newer
// release since its last answer. After a failed check the agent retries by itself.
func (w *World) ask(t *Unit) {
	r := &t.Report
	ordered := slices.Contains(v1alpha1.HostActionsOfTurn, r.Wanted)
	switch {
	case IsOthers(t.Claims, w.Rollout.UID):
	case ordered && t.Claim == nil && w.Host.DetectOnly:
		// Another operator updates it.
	case ordered || r.MustBeAsked():
		t.Step = StepAsk
	case w.isOvertaken(r):
		if next := r.Checked.Add(askAgain); w.Now.Before(next) {
			t.WakeAt(next)
			return
		}
		t.Step = StepAsk
		if t.Verdict.State == v1alpha1.UnitOutdated {
			t.Verdict.Reason, t.Verdict.Message = v1alpha1.ReasonHostSilent, "the host is asked again: others offer "+w.newest
		}
	}
}

// markOutdated makes the unit one that may be started, unless its host is updated or the verdict says why not.
func (w *World) markOutdated(t *Unit) {
	v := &t.Verdict
	t.Unit.State, t.Unit.Reason, t.Unit.Message = v.State, v.Reason, v.Message
	t.WakeAt(v.RetryAt)
	if t.Claim != nil || v.State != v1alpha1.UnitOutdated {
		return
	}
	if v.Reason == v1alpha1.ReasonHostSilent && w.Host.Version == "" && t.Report.wasUpdated() {
		// The agent looks for updates again, as after each turn.
		t.Unit.State, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitUpdated, "", ""
		return
	}
	t.Unit.Rank = max(1, rollout.Rank(t.Node.UID, w.Rollout.UID, w.Revision))
}

// RunsAnotherVersion reports whether an updated host does not run the revision, because it offers no update. It is false if versions have no name.
func (w *World) RunsAnotherVersion(t *Unit) bool {
	return w.Revision != "" && !strings.HasPrefix(w.Revision, numbered) && !sameVersion(t.Report.Version, w.Revision)
}
