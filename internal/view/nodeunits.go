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

// selection is which nodes a NodeRollout selects, for any mechanism.
type selection struct {
	cluster    *Cluster
	of         *v1alpha1.NodeRollout
	selector   labels.Selector
	selectable error
	// supposed is true if the spec may be newer than the status, as in a preview.
	supposed bool
}

// selected parses the NodeRollout's node selector.
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
	units

	world *hostupdate.World
	// invalid is the error in the spec.
	invalid error
	// ripens is when units may start that may not start now.
	ripens map[string]time.Time
}

// readHosts prepares a NodeRollout's units.
func (c *Cluster) readHosts(nr *v1alpha1.NodeRollout) *hosts {
	u := &hosts{selection: c.selected(nr), ripens: map[string]time.Time{}}
	u.world, u.invalid = hostupdate.NewWorld(nr, nil)
	u.world.Fleet, u.world.OwnNode, u.world.Now = c.fleet, c.ownNode, c.now
	return u
}

// problem says why the units can't be judged; else "".
func (u *hosts) problem() string {
	if !u.world.Ready {
		return u.invalid.Error()
	}
	return u.selection.problem()
}

// problem names the invalid field of the NodeRollout, so that its units can't be judged; else "".
func (u *selection) problem() string {
	spec := &u.of.Spec
	switch {
	case u.selectable != nil:
		return "spec.nodeSelector: " + u.selectable.Error()
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

// observe judges every node that the NodeRollout selects or claims, like its controller, and asks the engine.
// The node called named counts even if it opted out.
func (u *hosts) observe(named string) {
	turns := u.world.Units(u.cluster.objects())
	strategy := func(total int) rollout.Strategy { return u.world.Strategy(total, u.of.Status.Wave) }
	u.units = decide(u.cluster, turns, named, u.told(), u.problem() == "", strategy, u.line)
}

// line shows a unit, with the version that its host is updated to. The status knows more about a drain.
func (u *hosts) line(t *hostupdate.Unit, wait *rollout.Wait, status entry) Node {
	phase, since, message := hostupdate.Phase(t)
	line := u.cluster.line(t.Base(), wait, phase, since, message)
	line.Version = t.Report.Version
	target := t.Verdict.Version
	switch {
	case line.Phase != "":
		if status.Phase == phase && status.Message != "" {
			line.Message = status.Message
		}
		if t.Claim != nil && t.Claim.Failed == nil {
			target = hostupdate.VersionOf(t.Claim)
		}
	case line.State == v1alpha1.UnitOutdated && t.Unit.Reason != "" && !t.Verdict.RetryAt.IsZero():
		u.ripens[line.Node] = t.Verdict.RetryAt
	}
	if line.State != v1alpha1.UnitUpdated && hostupdate.CompareVersions(target, line.Version) != 0 {
		line.Target = target
	}
	return line
}

// wholeStatus reports whether the status lists all nodes that are not updated.
func (u *selection) wholeStatus() bool {
	s := &u.of.Status
	return s.Counts != nil && s.ObservedGeneration == u.of.Generation && int(s.Counts.Waiting) == len(s.Waiting) && len(s.Waiting) < v1alpha1.MaxListedUnits
}

// strategyFor is the NodeRollout's strategy, as its controller reads it. nodes excludes those that opted out.
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
