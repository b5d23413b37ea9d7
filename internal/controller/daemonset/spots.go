// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// spot is one node, what is on it of the ExtendedDaemonSet, and what should be.
type spot struct {
	node  *corev1.Node
	known *rollout.Node
	// want is the revision that the node should have.
	want      *edsv1.ExtendedDaemonSetReplicaSet
	placement daemon.Placement
	overrides daemon.Overrides
	// canary is true for a node of the canary.
	canary bool
	// fresh is the pod of that revision, and old an outdated one; either may be nil.
	fresh, old *held
	// promised is since when a pod has been made that is not to be seen yet.
	promised time.Time
	// kept is true when the old pod belongs to a DaemonSet that is still there, and would make it again.
	kept bool
	// going is true while a pod has not gone yet that is to go.
	going bool
	// stuck is true when that takes longer than it should.
	stuck bool
	// ended is true while a pod that has ended is in the node's way, until it may be deleted.
	ended bool
	// refused is when the API server last refused the pod that is missing; zero: it did not.
	refused time.Time
	// extra are to be deleted, whatever else is done.
	extra []*corev1.Pod
	// blamed says why what happens on the node is not the pods' doing, or "".
	blamed string
}

// held is a pod and how it does.
type held struct {
	pod  *corev1.Pod
	look daemon.Look
}

func (h *held) available() bool { return h != nil && h.look.Available }

// revision is what there is of one set.
type revision struct {
	set *edsv1.ExtendedDaemonSetReplicaSet
	// pods are all that were made for it, also those that go.
	pods, current, ready, available, desired, ignored int
}

// survey finds out what is on each node, and what should be. Where a canary goes on its nodes should have the revision that
// is tried, and all others the active one.
func (p *pass) survey() error {
	p.revisions = make(map[string]*revision, len(p.sets))
	for _, rs := range p.sets {
		p.revisions[rs.Name] = &revision{set: rs}
	}
	active, err := p.placer(p.active)
	if err != nil {
		return err
	}
	p.targetSite, err = p.placer(p.target)
	if err != nil {
		return err
	}
	canary, tries := map[string]bool{}, p.tries()
	if c := p.eds.Status.Canary; c != nil && c.ReplicaSet == p.target.Name && tries {
		for _, name := range c.Nodes {
			canary[name] = true
		}
	}
	byNode, promised := p.sortPods(), p.expected.promised(p.key)
	p.memo.begin(p.eds, p.settings)
	p.spots = make([]spot, 0, len(p.nodes))
	p.unplaced = map[string]string{}
	for _, n := range p.nodes {
		s := spot{node: n, known: p.fleet.Nodes[n.Name], want: p.active, canary: canary[n.Name]}
		from := active
		if s.canary {
			s.want, from = p.target, p.targetSite
		}
		at := p.memo.look(n, from, func() placed { return p.place(n, from) })
		s.placement, s.overrides = at.placement, at.overrides
		if at.problem != "" {
			p.unplaced[n.Name] = at.problem
		}
		pods := byNode[n.Name]
		delete(byNode, n.Name)
		if !s.placement.Keep && len(pods) == 0 && (!tries || !p.memo.look(n, p.targetSite, func() placed { return p.place(n, p.targetSite) }).placement.Create) {
			continue
		}
		s.blamed = p.blame(s.known)
		s.sort(p, pods)
		s.promised = promised[n.Name]
		p.spots = append(p.spots, s)
	}
	for _, left := range byNode {
		for _, pod := range left {
			if pod.DeletionTimestamp == nil && !p.expected.deleted(p.key, pod) {
				p.orphans = append(p.orphans, pod)
			}
		}
	}
	p.tally()
	return nil
}

// site is what decides of a node whether a pod of a revision belongs there.
type site struct {
	set    *edsv1.ExtendedDaemonSetReplicaSet
	placer *daemon.Placer
}

func (p *pass) placer(rs *edsv1.ExtendedDaemonSetReplicaSet) (*site, error) {
	placer, err := daemon.NewPlacer(p.spec.Selector, &rs.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("reading where pods of revision %s belong, %w", rs.Name, err)
	}
	return &site{set: rs, placer: placer}, nil
}

func (p *pass) place(n *corev1.Node, at *site) placed {
	a := placed{placement: at.placer.Place(n)}
	if !a.placement.Keep {
		return a
	}
	var err error
	if a.overrides, err = daemon.OverridesOf(p.key, at.set.Spec.Template.Spec.Containers, n, p.settings); err != nil {
		a.problem = err.Error()
	}
	return a
}

// sortPods are the pods by their nodes.
func (p *pass) sortPods() map[string][]*corev1.Pod {
	byNode := make(map[string][]*corev1.Pod, len(p.pods))
	for _, pod := range p.pods {
		name := daemon.NodeOf(pod)
		byNode[name] = append(byNode[name], pod)
	}
	return byNode
}

// sort says of each pod on the node what it is.
func (s *spot) sort(p *pass, pods []*corev1.Pod) {
	var fresh, old []*held
	minReady := time.Duration(p.spec.MinReadySeconds) * time.Second
	for _, pod := range pods {
		r := p.revisions[ofSet(pod)]
		if r != nil {
			r.pods++
		}
		h := &held{pod: pod, look: daemon.LookAt(pod, minReady, p.now)}
		p.at(h.look.Wake)
		switch {
		case p.kept[pod.UID]:
			s.keep(h)
		case h.look.Terminating || p.expected.deleted(p.key, pod):
			s.going = true
			s.stuck = s.stuck || h.look.Unresponsive
		case !s.placement.Keep:
			s.extra = append(s.extra, pod)
		case h.look.Failed || pod.Status.Phase == corev1.PodSucceeded:
			s.end(p, pod)
		case s.isFresh(pod):
			fresh = append(fresh, h)
		default:
			old = append(old, h)
		}
	}
	s.fresh = s.choose(fresh)
	if best := s.choose(old); best != nil {
		s.old, s.kept = best, false
	}
	if s.fresh == nil || s.old == nil || s.kept || p.surges() {
		return
	}
	// Two of them without surge: one was made by somebody who did not see the other.
	if s.fresh.available() || !s.old.available() {
		s.extra, s.old = append(s.extra, s.old.pod), nil
	} else {
		s.extra, s.fresh = append(s.extra, s.fresh.pod), nil
	}
}

// keep notes a pod that its DaemonSet keeps.
func (s *spot) keep(h *held) {
	if !h.look.Terminating && !h.look.Failed {
		s.old, s.kept = h, true
	}
}

// isFresh reports whether a pod is what the node should have.
func (s *spot) isFresh(pod *corev1.Pod) bool {
	return ofSet(pod) == s.want.Name && daemon.UpToDate(pod, hashOf(s.want), s.overrides)
}

// end deletes a pod that has ended, more and more seldom on the same node.
func (s *spot) end(p *pass, pod *corev1.Pod) {
	until := p.failures.until(pod.UID, place{p.key, s.node.Name}, p.now)
	if p.now.Before(until) {
		s.ended = true
		p.at(until)
		return
	}
	s.extra = append(s.extra, pod)
}

// choose keeps the best of several pods, and has the others deleted.
func (s *spot) choose(all []*held) *held {
	if len(all) == 0 {
		return nil
	}
	rank := func(h *held) int {
		switch {
		case h.look.Available:
			return 0
		case h.look.Ready:
			return 1
		case h.pod.Spec.NodeName != "":
			return 2
		}
		return 3
	}
	slices.SortFunc(all, func(a, b *held) int {
		return cmp.Or(rank(a)-rank(b), a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), strings.Compare(a.pod.Name, b.pod.Name))
	})
	for _, h := range all[1:] {
		s.extra = append(s.extra, h.pod)
	}
	return all[0]
}

// surges reports whether new pods are started beside old ones.
func (p *pass) surges() bool {
	surge := p.strategy.RollingUpdate.MaxSurge
	return surge != nil && daemon.Count(surge, max(len(p.nodes), 1)) > 0 && p.strategy.Type != edsv1.StrategyOnDelete
}

// blame says why what happens to pods on a node is not their own doing, or "": it is not ready, or somebody works on it.
func (p *pass) blame(n *rollout.Node) string {
	if n == nil {
		return "there is no such node"
	}
	if readiness(n) == nil {
		return "the node is not ready"
	}
	for i := range n.Claims {
		if c := &n.Claims[i]; !c.Parked() {
			return "claimed by " + c.Rollout
		}
	}
	for i := range n.Conditions {
		c := &n.Conditions[i]
		switch c.Type {
		case corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained:
			if c.Status == corev1.ConditionTrue {
				return string(c.Type)
			}
		default:
		}
	}
	return ""
}

// settled is how long after a node has become ready what has restarted there is put down to the node.
const settled = time.Minute

// excused reports whether what a pod suffers is its node's doing: the node is to blame now, or it was when the pod's
// container last ended: it has rebooted since. A quick reboot is not to be seen in the node's conditions, but in how the
// container ended.
func (s *spot) excused(h *held) bool {
	if s.blamed != "" || h != nil && h.look.Lost {
		return true
	}
	ready := readySince(s.known)
	return h != nil && !h.look.LastRestart.IsZero() && !ready.IsZero() && !h.look.LastRestart.After(ready.Add(settled)) &&
		h.pod.CreationTimestamp.Time.Before(ready)
}

// readiness is what says that a node is ready, or nil.
func readiness(n *rollout.Node) *corev1.NodeCondition {
	for i := range n.Conditions {
		if c := &n.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// readySince is since when a node is ready; zero when it is not, or nobody says since when.
func readySince(n *rollout.Node) time.Time {
	if c := readiness(n); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// belongs reports whether the node should have a pod, or has one. What a DaemonSet keeps on nodes where the ExtendedDaemonSet's own may
// not be is the DaemonSet's alone.
func (s *spot) belongs() bool {
	return s.placement.Create || s.fresh != nil || s.old != nil && s.placement.Keep
}

// tally counts the pods of each revision.
func (p *pass) tally() {
	for i := range p.spots {
		s := &p.spots[i]
		if s.belongs() {
			p.revisions[s.want.Name].desired++
		}
		for _, h := range []*held{s.fresh, s.old} {
			if h == nil {
				continue
			}
			r := p.revisions[ofSet(h.pod)]
			if r == nil {
				continue
			}
			r.current++
			if h.look.Ready {
				r.ready++
			}
			if h.look.Available {
				r.available++
			}
		}
	}
}

// state is how a spot stands in the rolling update.
func (s *spot) state() v1alpha1.UnitState {
	switch {
	case s.fresh.available() && (s.old == nil || s.kept):
		return v1alpha1.UnitUpdated
	case s.fresh == nil && s.old != nil && !s.going && s.promised.IsZero():
		return v1alpha1.UnitOutdated
	}
	return v1alpha1.UnitUpdating
}
