// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/rollout"
)

// selection is what a NodeRollout says of its nodes, whatever it does with them.
type selection struct {
	cluster    *Cluster
	of         *v1alpha1.NodeRollout
	selector   labels.Selector
	selectable error
	// supposed is true for one whose spec need not be the one that its status is of.
	supposed bool
}

// selected reads what the NodeRollout selects.
func (c *Cluster) selected(nr *v1alpha1.NodeRollout) selection {
	u := selection{cluster: c, of: nr}
	if u.selector, u.selectable = metav1.LabelSelectorAsSelector(&nr.Spec.NodeSelector); u.selectable != nil {
		u.selector = labels.Nothing()
	}
	return u
}

// hosts are the units of one NodeRollout with hostUpdate.
type hosts struct {
	selection

	wish     hostupdate.Wish
	nodes    []Node
	optedOut int32
	// unlabelled are the nodes that are selected, and whose host has no interface that is known.
	unlabelled []string
	// ripens is when units that may not start yet may.
	ripens map[string]time.Time

	// asked is what the engine is asked about, with this strategy, and decision its answer.
	asked    []rollout.Unit
	strategy rollout.Strategy
	decision rollout.Decision
}

// readHosts finds out what a NodeRollout wants.
func (c *Cluster) readHosts(nr *v1alpha1.NodeRollout) *hosts {
	return &hosts{selection: c.selected(nr), ripens: map[string]time.Time{}, wish: hostupdate.WishOf(nr.Spec.HostUpdate, nr.Status.Releases)}
}

// problem says what of the NodeRollout can't be understood, so that its units can't be told, or "".
func (u *selection) problem() string {
	spec := &u.of.Spec
	switch {
	case u.selectable != nil:
		return "spec.nodeSelector: " + u.selectable.Error()
	case spec.HostUpdate == nil && spec.Replacement == nil:
		return "spec.hostUpdate or spec.replacement must be given"
	case invalid(u.of) && !u.supposed:
		return meta.FindStatusCondition(u.of.Status.Conditions, v1alpha1.ConditionStalled).Message
	}
	if spec.Drain != nil && spec.Drain.PodSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(spec.Drain.PodSelector); err != nil {
			return "spec.drain.podSelector: " + err.Error()
		}
	}
	if spec.Health != nil {
		for i := range spec.Health.Pods {
			if _, err := metav1.LabelSelectorAsSelector(&spec.Health.Pods[i].Selector); err != nil {
				return fmt.Sprintf("spec.health.pods[%d].selector: %v", i, err)
			}
		}
	}
	return ""
}

// observe judges every node that the NodeRollout selects or has a claim on, and asks the engine. A node that is named counts also where it has
// opted out.
func (u *hosts) observe(named string) {
	c, nr := u.cluster, u.of
	told := u.told()
	revision := u.revision()
	for i := range c.facts {
		f := &c.facts[i]
		own := held(f.claims, nr.UID)
		selected := u.selector.Matches(labels.Set(f.node.Labels))
		report, labelled := hostupdate.Read(f.node)
		switch {
		case own != nil:
		case !selected:
			continue
		case f.node.Labels[v1alpha1.LabelNodeRollout(nr.Name)] == v1alpha1.LabelNodeRolloutDisabled:
			if labelled {
				u.optedOut++
			}
			if f.node.Name == named {
				u.asked = append(u.asked, rollout.Unit{Node: named, State: v1alpha1.UnitOutdated, OptedOut: true})
			}
			continue
		case !labelled:
			u.unlabelled = append(u.unlabelled, f.node.Name)
			continue
		}
		line, ask := u.judge(f, &report, own, told[f.node.Name], revision)
		if own == nil {
			ask.Rank = max(1, rollout.Rank(f.node.UID, nr.UID, revision))
		}
		u.nodes, u.asked = append(u.nodes, line), append(u.asked, ask)
	}
	u.strategy = u.strategyFor(revision, len(u.nodes))
	if u.problem() == "" {
		u.decision = rollout.Decide(u.strategy, u.asked, c.fleet, c.now)
	}
	explain(u.nodes, u.decision.Waiting, told)
}

// judge tells a unit's state from its node's claim and from what its host says: as a line, and as the engine wants it.
func (u *hosts) judge(f *fact, report *hostupdate.Report, own *v1alpha1.Claim, status entry, revision string) (Node, rollout.Unit) {
	line := Node{
		Node: f.node.Name, State: v1alpha1.UnitOutdated, NotReady: !f.ready, Cordoned: f.node.Spec.Unschedulable, Version: report.Version,
	}
	var verdict hostupdate.Verdict
	switch {
	case own == nil:
		verdict = u.judgeUnclaimed(report, status)
		line.State = verdict.State
	case own.Failed != nil:
		verdict = u.wish.Judge(report, u.cluster.now)
		u.failed(&line, own, status)
	default:
		verdict.Version = hostupdate.VersionOf(own)
		phase, since := hostupdate.PhaseOf(own)
		line.State, line.Phase, line.Since, line.Started = turning(phase), phase, &since, &own.Since
		if line.Message = hostupdate.Awaits(f.node, report, own, u.hooks()); status.Phase == phase && status.Message != "" {
			line.Message = status.Message
		}
	}
	if line.State != v1alpha1.UnitUpdated && hostupdate.CompareVersions(verdict.Version, line.Version) != 0 {
		line.Target = verdict.Version
	}
	ask := rollout.Unit{
		Node: line.Node, State: line.State, Claimed: own != nil && !own.Parked(), Skipped: line.Skipped, Reason: line.Reason, Message: line.Message,
	}
	if line.RetryAt != nil {
		ask.RetryAt = line.RetryAt.Time
	}
	switch line.State {
	case v1alpha1.UnitUpdated:
		ask.Unoffered = hostupdate.Unoffered(report, revision)
	case v1alpha1.UnitOutdated:
		ask.Unoffered = own == nil && verdict.Unoffered()
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitFailed:
	}
	if line.State == v1alpha1.UnitOutdated {
		ask.Reason, ask.Message = verdict.Reason, verdict.Message
		if verdict.Reason != "" && !verdict.RetryAt.IsZero() {
			u.ripens[line.Node] = verdict.RetryAt
		}
	}
	return line, ask
}

// judgeUnclaimed judges a host whose node the rollout has no claim on.
func (u *hosts) judgeUnclaimed(report *hostupdate.Report, status entry) hostupdate.Verdict {
	v := u.wish.Judge(report, u.cluster.now)
	if v.Reason == v1alpha1.ReasonHostSilent && !report.Checked.IsZero() && u.wholeStatus() && status.state == "" {
		// Its turn has just ended, and it looks for updates again: the operator knows that it is updated.
		return hostupdate.Verdict{State: v1alpha1.UnitUpdated}
	}
	return v
}

// failed makes the line that of a turn that has failed.
func (u *hosts) failed(line *Node, own *v1alpha1.Claim, status entry) {
	line.Started = &own.Since
	if status.state == v1alpha1.UnitOutdated && status.Reason != own.Failed.Reason {
		return // The rollout has changed since, and it waits for another turn.
	}
	line.fails(own, u.of.Spec.Strategy)
	if status.state == v1alpha1.UnitUpdating && status.Message != "" {
		line.Message += "; " + status.Message // It is time to try again, and something keeps it back.
	}
}

// wholeStatus reports whether the status lists all nodes that are not updated.
func (u *selection) wholeStatus() bool {
	s := &u.of.Status
	return s.Counts != nil && s.ObservedGeneration == u.of.Generation && int(s.Counts.Waiting) == len(s.Waiting) && len(s.Waiting) < v1alpha1.MaxListedUnits
}

func (u *hosts) hooks() *v1alpha1.RebootHooks {
	if u.of.Spec.HostUpdate == nil {
		return nil
	}
	return u.of.Spec.HostUpdate.Hooks
}

// revision is what the nodes are brought to: what the status says, or what it will say where it is of an earlier spec.
func (u *hosts) revision() string {
	s := &u.of.Status
	if s.Revision != "" && s.ObservedGeneration == u.of.Generation && !u.supposed {
		return s.Revision
	}
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	return u.wish.Revision(func(yield func(*hostupdate.Report) bool) {
		for i := range u.cluster.facts {
			n := u.cluster.facts[i].node
			if report, ok := hostupdate.Read(n); ok && u.selector.Matches(labels.Set(n.Labels)) && !yield(&report) {
				return
			}
		}
	}, s.Revision, ready != nil && ready.Status == metav1.ConditionTrue)
}

// strategyFor is the NodeRollout's, as its controller reads it, for so many nodes that did not opt out.
func (u *selection) strategyFor(revision string, nodes int) rollout.Strategy {
	nr := u.of
	s := rollout.New(nr.Spec.Strategy, 1, nodes)
	s.UID, s.Revision, s.OwnNode = nr.UID, revision, u.cluster.ownNode
	s.Drains, s.Health = nr.Spec.Drain == nil || !nr.Spec.Drain.Disabled, rollout.NewHealth(nr.Spec.Health)
	s.Wave, s.Approved = nr.Status.Wave, nr.Annotations[v1alpha1.AnnotationApprove]
	return s
}

func (u *selection) told() map[string]entry {
	return entries(u.of.Status.Updating, u.of.Status.Waiting)
}
