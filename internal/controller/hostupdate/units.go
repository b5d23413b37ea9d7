// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// Steps that only host updates have.
const (
	stepAsk      turn.Step = "ask"      // say stabilize: the agent finds out what its host has to offer
	stepReturn   turn.Step = "return"   // release a node whose claim a person has removed
	stepPrepare  turn.Step = "prepare"  // say prepare-update once more: somebody has removed the order
	stepPerform  turn.Step = "perform"  // say perform-update
	stepCall     turn.Step = "call"     // label the node for the hooks before the reboot
	stepCordon   turn.Step = "cordon"   // cordon the node
	stepDrain    turn.Step = "drain"    // take the drain as far as it goes now
	stepReboot   turn.Step = "reboot"   // say reboot-update
	stepWithdraw turn.Step = "withdraw" // say stabilize in the middle of a turn: the order is gone, and the host is judged by what it does
	stepChanged  turn.Step = "changed"  // record in the claim that the host runs what it should, and label the node for the hooks after the reboot
	stepTell     turn.Step = "tell"     // set the node's conditions
)

// unit is one node's part in the rollout.
type unit struct {
	turn.Turn
	known *rollout.Node
	// report is what the host says of itself, and speaks whether there is a label that names its interface.
	report hostupdate.Report
	speaks bool
	// again is true for a host that is to be asked again for what others have to offer, and before what it had said that was asked so, until it
	// answers.
	again  bool
	before *hostupdate.Report
	// verdict is what the rollout wants of the host.
	verdict hostupdate.Verdict
}

// units judges every node that the rollout selects, or still has something on.
func units(w *world, s fleet.Snapshot) []*unit {
	w.memo.begin(w, len(s.Objects))
	w.healthy = turn.Healthy(w.fleet, w.rollout.Spec.Health)
	all := make([]*unit, 0, len(s.Objects))
	for _, n := range s.Objects {
		known := s.Nodes[n.Name]
		t := &unit{Turn: turn.Turn{Node: n, Claim: node.Held(known.Claims, w.rollout.UID), Unreadable: known.ClaimError != ""}, known: known}
		t.report, t.speaks = hostupdate.Read(n)
		selected := w.selector.Matches(labels.Set(n.Labels))
		t.Unit.OptedOut = n.Labels[w.optOut] == v1alpha1.LabelNodeRolloutDisabled
		if t.Counted = selected && t.speaks; t.Counted {
			t.before = w.memo.unanswered(t)
		} else if selected && !t.Unit.OptedOut {
			w.unlabelled++
		}
		if t.Counted || t.Claim != nil || t.marked(w) || node.Tainted(n, w.taint) {
			all = append(all, t)
		}
	}
	w.survey(all)
	for _, t := range all {
		t.judge(w)
	}
	w.awaits(all)
	return all
}

// patience is how long those whose order counts wait for agents to answer.
const patience = time.Minute

// awaits keeps units from being started before their time while others do not know yet whether they are to be: the node that the operator runs on,
// and where the strategy gives an order all of them. An agent that is not there holds nobody up for long.
func (w *world) awaits(all []*unit) {
	if !w.ready {
		return
	}
	silent, name := 0, ""
	var end time.Time
	for _, t := range all {
		if !t.awaited() {
			delete(w.memo.silent, t.Node.UID)
			continue
		}
		since, known := w.memo.silent[t.Node.UID]
		if !known {
			since = w.now
			w.memo.silent[t.Node.UID] = since
		}
		if until := since.Add(patience); w.now.Before(until) {
			if silent++; name == "" {
				name = t.Node.Name
			}
			if until.After(end) {
				end = until
			}
		}
	}
	if silent == 0 {
		return
	}
	s := w.rollout.Spec.Strategy
	ordered := s != nil && len(s.Order) > 0
	for _, t := range all {
		if t.Claim == nil && t.Unit.State == v1alpha1.UnitOutdated && t.Unit.Reason == "" && (ordered || t.Node.Name == w.own) {
			t.Unit.Reason = v1alpha1.ReasonHostSilent
			t.Unit.Message = fmt.Sprintf("others may come first: the agents of %s have not said yet whether there is an update; they are waited for until %s",
				others(name, silent), end.UTC().Format(time.RFC3339))
			t.WakeAt(end)
		}
	}
}

// awaited reports whether the host is asked, and may turn out to be one that goes first.
func (t *unit) awaited() bool {
	silent := t.Unit.State == v1alpha1.UnitOutdated && t.Unit.Reason == v1alpha1.ReasonHostSilent
	again := t.Unit.Unoffered && (t.again || t.before != nil)
	return t.Counted && !t.Unit.OptedOut && (silent || again)
}

// others names the first of so many nodes.
func others(name string, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s and %d more", name, n-1)
}

// survey finds out what follows from all hosts together.
func (w *world) survey(all []*unit) {
	status := &w.rollout.Status
	w.releases, w.versions = releases(status.Releases, all, w.now), versions(all)
	w.wish = hostupdate.WishOf(&w.host, w.releases)
	w.latest, w.latestSince = w.wish.Latest()
	if !w.ready {
		return
	}
	before, complete := status.Revision, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
	if w.memo.known {
		before, complete = w.memo.before, w.memo.complete // What was written may not be read yet.
	}
	w.revision = w.wish.Revision(reports(all), before, complete)
}

// reports are the last answers of the hosts that count.
func reports(all []*unit) iter.Seq[*hostupdate.Report] {
	return func(yield func(*hostupdate.Report) bool) {
		for _, t := range all {
			if t.Counted && !t.Unit.OptedOut && !yield(t.answer()) {
				return
			}
		}
	}
}

// releases are the versions that hosts have to offer, and since when: those that were known, as long as any host offers or runs them, and
// those that are new.
func releases(known []v1alpha1.HostRelease, all []*unit, now time.Time) []v1alpha1.HostRelease {
	offered, there := map[string]bool{}, map[string]bool{}
	for r := range reports(all) {
		there[r.Version] = true
		// An agent that is asked again, or fails, has not taken back what it has said.
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
		return cmp.Or(hostupdate.CompareVersions(b.Version, a.Version), cmp.Compare(a.Version, b.Version))
	})
	return list[:min(len(list), v1alpha1.MaxListedReleases)]
}

// versions counts which versions run on how many nodes.
func versions(all []*unit) []v1alpha1.HostVersion {
	count := map[string]int32{}
	for r := range reports(all) {
		if r.Version != "" {
			count[r.Version]++
		}
	}
	var list []v1alpha1.HostVersion
	for version, n := range count {
		list = append(list, v1alpha1.HostVersion{Version: version, Nodes: n})
	}
	slices.SortFunc(list, func(a, b v1alpha1.HostVersion) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), hostupdate.CompareVersions(b.Version, a.Version), cmp.Compare(a.Version, b.Version))
	})
	return list[:min(len(list), v1alpha1.MaxListedReleases)]
}

// marked reports whether the rollout has left its mark on the node, that it is cordoned by it or kept from load balancers.
func (t *unit) marked(w *world) bool {
	_, excluded := t.Node.Labels[corev1.LabelNodeExcludeBalancers]
	return t.Node.Spec.Unschedulable && t.Node.Annotations[v1alpha1.AnnotationCordonedBy] == w.holder ||
		excluded && t.Node.Annotations[v1alpha1.AnnotationExcludedBy] == w.holder
}

// answer is what the host said last: while it is asked again for what others have to offer, that stands.
func (t *unit) answer() *hostupdate.Report {
	if t.before != nil {
		return t.before
	}
	return &t.report
}

// judge sets the unit's state and the next step.
func (t *unit) judge(w *world) {
	t.Unit.Node, t.Unit.State = t.Node.Name, v1alpha1.UnitUpdating
	t.verdict = w.wish.Judge(t.answer(), w.now)
	if t.Claim == nil {
		t.judgeUnclaimed(w)
	} else {
		t.judgeClaimed(w)
		t.Unit.Claimed = !t.Claim.Parked()
	}
	switch t.Unit.State {
	case v1alpha1.UnitUpdated:
		t.Unit.Unoffered = hostupdate.Unoffered(&t.report, w.revision)
	case v1alpha1.UnitOutdated:
		t.Unit.Unoffered = t.Claim == nil && t.verdict.Unoffered()
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitFailed:
	}
	if w.ready {
		t.KeepTaint(w.rollout.Spec.Strategy, w.taint)
	}
}

// judgeUnclaimed judges a node that the rollout has no claim on.
func (t *unit) judgeUnclaimed(w *world) {
	t.Unit.State = v1alpha1.UnitOutdated
	switch {
	case t.Unreadable:
		// Nobody may touch the node. One that was cordoned for the rollout holds its slot.
		if t.Unit.InTurn = t.marked(w); t.verdict.State == v1alpha1.UnitUpdated && !t.Unit.InTurn {
			t.Unit.State = v1alpha1.UnitUpdated
		}
	case !w.ready:
	case t.Counted && !t.Unit.OptedOut && t.report.Wanted == v1alpha1.HostActionReboot && (!w.wish.DetectOnly || t.marked(w)):
		if !t.taken() {
			t.Step, t.Unit.State = turn.StepAdopt, v1alpha1.UnitUpdating
		}
	case t.marked(w) && !t.others(w):
		t.Step = stepReturn
	case t.Counted && !t.Unit.OptedOut:
		t.ask(w)
		t.outdated(w)
	}
}

// taken reports whether somebody else has a claim that keeps the rollout's own away.
func (t *unit) taken() bool {
	return slices.ContainsFunc(t.known.Claims, func(c v1alpha1.Claim) bool { return !c.Parked() })
}

// others reports whether another rollout of this kind has the node, and speaks to its host.
func (t *unit) others(w *world) bool {
	return slices.ContainsFunc(t.known.Claims, func(c v1alpha1.Claim) bool {
		return strings.HasPrefix(c.Rollout, kind+"/") && c.UID != w.rollout.UID
	})
}

// ask lets the agent of a host that is in no turn find out what the host has to offer, where it does not know what to do, or has failed in
// that: then it is asked again, more and more seldom.
func (t *unit) ask(w *world) {
	r := &t.report
	ordered := r.Wanted == v1alpha1.HostActionPrepare || r.Wanted == v1alpha1.HostActionPerform || r.Wanted == v1alpha1.HostActionReboot
	switch {
	case t.others(w):
	case ordered && t.Claim == nil && w.wish.DetectOnly:
		// Somebody else brings it to something, and is not disturbed.
	case ordered || r.Fresh():
		t.Step = stepAsk
	case r.State == v1alpha1.HostStateError && r.Wanted == r.Active:
		if at := w.asked.failed(t.Node.UID, w.now); w.now.Before(at) {
			t.WakeAt(at)
		} else {
			t.Step = stepAsk
		}
	case r.Knows():
		w.asked.well(t.Node.UID)
		t.askAgain(w)
	}
}

// askAgain lets an agent look for what others have to offer: agents look by themselves at different times, so nobody knows yet whether that is for
// this host, too. It is asked once for each release, and no more often than each askAgain for whichever.
func (t *unit) askAgain(w *world) {
	told := w.memo.told[t.Node.UID]
	if told.latest == w.latest || !w.wish.Overtaken(&t.report, w.latest, w.latestSince) {
		return
	}
	if next := told.again.Add(askAgain); w.now.Before(next) {
		t.WakeAt(next)
		return
	}
	t.Step, t.again = stepAsk, true
}

// outdated is a unit that Decide may start, unless its host is as it should be.
func (t *unit) outdated(w *world) {
	v := &t.verdict
	t.Unit.State, t.Unit.Reason, t.Unit.Message = v.State, v.Reason, v.Message
	t.WakeAt(v.RetryAt)
	if w.memo.updated[t.Node.UID] {
		switch {
		case t.report.Knows() || t.report.State == v1alpha1.HostStateError:
			delete(w.memo.updated, t.Node.UID)
		case v.Reason == v1alpha1.ReasonHostSilent:
			// Its turn has ended well a moment ago, and it is looking for updates again.
			t.Unit.State, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitUpdated, "", ""
		}
	}
	if t.Unit.State == v1alpha1.UnitOutdated && t.Claim == nil {
		t.Unit.Rank = max(1, rollout.Rank(t.Node.UID, w.rollout.UID, w.revision))
	}
}
