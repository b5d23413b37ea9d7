// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// daemonSet is one ExtendedDaemonSet, and what is on the nodes of it.
type daemonSet struct {
	cluster *Cluster
	eds     *edsv1.ExtendedDaemonSet
	key     types.NamespacedName
	// spec has its defaults filled in, and problem is what is wrong with it.
	spec    *edsv1.ExtendedDaemonSetSpec
	problem string

	// hash is the revision that is wanted, target the set of it, and active that of all nodes but the canary's; nil where it is not
	// there, or not to be seen.
	hash           string
	target, active *edsv1.ExtendedDaemonSetReplicaSet
	// wished stands for a target that is not there yet.
	wished *edsv1.ExtendedDaemonSetReplicaSet
	// sets are all, by age, and revisions by name.
	sets      []*edsv1.ExtendedDaemonSetReplicaSet
	revisions map[string]*edsv1.ExtendedDaemonSetReplicaSet
	settings  []*edsv1.ExtendedDaemonsetSetting
	// pods are by their nodes. looked is true when there are any to be seen, and partial when not all are.
	pods            map[string][]*corev1.Pod
	looked, partial bool
	placers         map[*edsv1.ExtendedDaemonSetReplicaSet]*daemon.Placer
	// onCanary are the nodes of the canary that goes on.
	onCanary map[string]bool
	// migrates is true while pods of a DaemonSet are among them.
	migrates bool

	spots []spot
	lines []Node
	// known is true when all pods are: then the engine has been asked, about these units, with this strategy.
	known    bool
	asked    []rollout.Unit
	strategy rollout.Strategy
	decision rollout.Decision
	creation creation
	// trial is the canary that goes on.
	trial *trial
}

// spot is a node, what is on it of the ExtendedDaemonSet, and what should be.
type spot struct {
	*fact
	want      *edsv1.ExtendedDaemonSetReplicaSet
	placement daemon.Placement
	overrides daemon.Overrides
	// canary is true for a node of the canary.
	canary bool
	// fresh is the pod of the revision that the node should have, old an outdated one, and going one that is to go.
	fresh, old, going *pod
	// ended is one that has ended and is in the way of another, and extra one that goes whatever happens.
	ended, extra *pod
	// kept is true when the old pod belongs to a DaemonSet, which would make it again.
	kept bool
	// blamed says why what happens on the node is not the pods' doing, or "".
	blamed string
	// without says why no pod is made now on a node that has none; its Reason is empty where one is.
	without rollout.Wait
}

// pod is one, and how it does.
type pod struct {
	*corev1.Pod
	look daemon.Look
}

func (p *pod) available() bool { return p != nil && p.look.Available }

// daemonSet looks at an ExtendedDaemonSet.
func (c *Cluster) daemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	d := c.readDaemonSet(eds)
	if c.facts == nil || d.problem != "" || d.active == nil && !AtRest(eds) || !d.looked && !AtRest(eds) {
		d.list()
		return d
	}
	d.known = d.looked && !d.partial && d.active != nil
	d.survey(d.wanted())
	switch {
	case d.known:
		d.decide()
		d.describe()
	case AtRest(eds):
		d.presume()
	default:
		d.list()
	}
	return d
}

// readDaemonSet finds out what belongs to an ExtendedDaemonSet.
func (c *Cluster) readDaemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	d := &daemonSet{
		cluster: c, eds: eds, key: types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}, hash: RevisionOf(eds),
		spec:      daemon.Defaulted(&eds.Spec, modeOf(eds)),
		revisions: map[string]*edsv1.ExtendedDaemonSetReplicaSet{}, placers: map[*edsv1.ExtendedDaemonSetReplicaSet]*daemon.Placer{},
		onCanary: map[string]bool{},
	}
	if err := daemon.Validate(d.spec); err != nil {
		d.problem = err.Error()
	}
	for i := range c.daemons.Revisions {
		rs := &c.daemons.Revisions[i]
		owner := metav1.GetControllerOf(rs)
		if rs.Namespace == eds.Namespace && rs.Labels[edsv1.LabelName] == eds.Name && rs.DeletionTimestamp == nil && (owner == nil || owner.UID == eds.UID) {
			d.sets = append(d.sets, rs)
			d.revisions[rs.Name] = rs
		}
	}
	slices.SortFunc(d.sets, func(a, b *edsv1.ExtendedDaemonSetReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	d.active = d.revisions[eds.Status.ActiveReplicaSet]
	for _, rs := range d.sets {
		if hashOf(rs) == d.hash && (d.target == nil || rs == d.active) {
			d.target = rs
		}
	}
	if canary := eds.Status.Canary; canary != nil {
		for _, name := range canary.Nodes {
			d.onCanary[name] = true
		}
	}
	for i := range c.daemons.Settings {
		s := &c.daemons.Settings[i]
		if s.Namespace == eds.Namespace && s.DeletionTimestamp == nil && s.Status.Status == edsv1.SettingValid && s.Spec.Reference != nil && s.Spec.Reference.Name == eds.Name {
			d.settings = append(d.settings, s)
		}
	}
	d.readPods()
	return d
}

// modeOf is how a canary that does not say so ends: its controller knows, and its status shows.
func modeOf(eds *edsv1.ExtendedDaemonSet) edsv1.ValidationMode {
	if w := eds.Status.Wave; eds.Status.Canary != nil && w != nil && w.ApproveWith != "" {
		return edsv1.ValidationModeManual
	}
	return edsv1.ValidationModeAuto
}

// readPods sorts the pods by their nodes.
func (d *daemonSet) readPods() {
	of, ok := d.cluster.daemons.Pods[d.key]
	d.looked, d.partial = ok, of.Partial
	d.pods = make(map[string][]*corev1.Pod, len(of.Items))
	for i := range of.Items {
		p := &of.Items[i]
		node := daemon.NodeOf(p)
		if node == "" {
			continue
		}
		switch owner := metav1.GetControllerOf(p); {
		case p.Labels[edsv1.LabelName] == d.eds.Name && (owner == nil || owner.Kind == kindReplicaSet):
			d.pods[node] = append(d.pods[node], p)
		case TakesOver(d.eds, p):
			d.migrates = true
			d.pods[node] = append(d.pods[node], p)
		}
	}
}

const (
	kindReplicaSet = "ExtendedDaemonSetReplicaSet"
	kindDaemonSet  = "DaemonSet"
)

// TakesOver reports whether a pod belongs to the DaemonSet that an ExtendedDaemonSet takes over from, or was left by it.
func TakesOver(eds *edsv1.ExtendedDaemonSet, p *corev1.Pod) bool {
	from := eds.Annotations[edsv1.AnnotationOldDaemonset]
	if _, ours := p.Labels[edsv1.LabelName]; from == "" || ours {
		return false
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		_, revised := p.Labels["controller-revision-hash"]
		return revised && p.GenerateName == from+"-"
	}
	return owner.Kind == kindDaemonSet && owner.Name == from
}

func hashOf(rs *edsv1.ExtendedDaemonSetReplicaSet) string {
	return cmp.Or(rs.Spec.TemplateGeneration, rs.Annotations[edsv1.AnnotationTemplateHash])
}

// ofSet is the name of the revision that a pod was made for, or "".
func ofSet(p *corev1.Pod) string {
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == kindReplicaSet {
		return owner.Name
	}
	return ""
}

func lost(rs *edsv1.ExtendedDaemonSetReplicaSet) bool {
	return rs != nil && edsv1.IsConditionTrue(rs.Status.Conditions, edsv1.ConditionCanaryFailed)
}

// tries reports whether a canary goes on, or is about to.
func (d *daemonSet) tries() bool {
	return d.target != nil && d.target != d.active && d.spec.Strategy.Canary != nil && !lost(d.target)
}

// wanted says which revision a node should have.
func (d *daemonSet) wanted() func(node string) (*edsv1.ExtendedDaemonSetReplicaSet, bool) {
	active := d.active
	if active == nil {
		active = d.wish() // It is not to be seen, and what is at rest has what it wants.
	}
	tries := d.tries() && d.eds.Status.Canary != nil && d.eds.Status.Canary.ReplicaSet == d.target.Name
	return func(node string) (*edsv1.ExtendedDaemonSetReplicaSet, bool) {
		if tries && d.onCanary[node] {
			return d.target, true
		}
		return active, false
	}
}

// survey finds out what is on each node, and what should be.
func (d *daemonSet) survey(wanted func(node string) (*edsv1.ExtendedDaemonSetReplicaSet, bool)) {
	d.spots = nil
	for _, f := range d.cluster.byName {
		s := spot{fact: f}
		s.want, s.canary = wanted(f.node.Name)
		s.placement = d.place(f, s.want)
		pods := d.pods[f.node.Name]
		if !s.placement.Keep && len(pods) == 0 {
			continue
		}
		if s.placement.Keep {
			// What can't be read of a node's annotations is not for a pod to suffer from.
			s.overrides, _ = daemon.OverridesOf(d.key, s.want.Spec.Template.Spec.Containers, f.node, d.settings)
		}
		s.blamed = f.blame()
		s.sort(d, pods)
		d.spots = append(d.spots, s)
	}
}

// place says whether pods of a revision belong on a node. None do where that can't be read.
func (d *daemonSet) place(f *fact, rs *edsv1.ExtendedDaemonSetReplicaSet) daemon.Placement {
	placer, ok := d.placers[rs]
	if !ok {
		var err error
		if placer, err = daemon.NewPlacer(d.spec.Selector, &rs.Spec.Template); err != nil {
			d.problem, placer = err.Error(), nil
		}
		d.placers[rs] = placer
	}
	if placer == nil {
		return daemon.Placement{Why: d.problem}
	}
	return placer.Place(f.node)
}

// sort says of each pod on the node what it is.
func (s *spot) sort(d *daemonSet, pods []*corev1.Pod) {
	var fresh, old []*pod
	for _, o := range pods {
		p := &pod{Pod: o, look: daemon.LookAt(o, time.Duration(d.spec.MinReadySeconds)*time.Second, d.cluster.now)}
		owner := metav1.GetControllerOf(o)
		switch {
		case owner != nil && owner.Kind == kindDaemonSet:
			if !p.look.Terminating && !p.look.Failed {
				s.old, s.kept = p, true
			}
		case p.look.Terminating:
			s.going = p
		case !s.placement.Keep:
			s.extra = p
		case p.look.Failed:
			s.ended = p
		case ofSet(o) == s.want.Name && daemon.UpToDate(o, hashOf(s.want), s.overrides):
			fresh = append(fresh, p)
		default:
			old = append(old, p)
		}
	}
	s.fresh = best(fresh)
	if p := best(old); p != nil {
		s.old, s.kept = p, false
	}
	if s.fresh == nil || s.old == nil || s.kept || d.surges() {
		return
	}
	// One of two goes that are there without surge.
	if s.fresh.available() || !s.old.available() {
		s.extra, s.old = s.old, nil
	} else {
		s.extra, s.fresh = s.fresh, nil
	}
}

// best is the pod that stays, of several.
func best(all []*pod) *pod {
	if len(all) == 0 {
		return nil
	}
	rank := func(p *pod) int {
		switch {
		case p.look.Available:
			return 0
		case p.look.Ready:
			return 1
		case p.Spec.NodeName != "":
			return 2
		}
		return 3
	}
	return slices.MinFunc(all, func(a, b *pod) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// surges reports whether new pods are started beside old ones.
func (d *daemonSet) surges() bool {
	s := &d.spec.Strategy
	return s.Type != edsv1.StrategyOnDelete && daemon.Count(s.RollingUpdate.MaxSurge, max(len(d.cluster.facts), 1)) > 0
}

// blame says why what happens to pods on a node is not their own doing, or "": it is not ready, or somebody works on it.
func (f *fact) blame() string {
	if !f.ready {
		return "the node is not ready"
	}
	for i := range f.claims {
		if c := &f.claims[i]; !c.Parked() {
			return "claimed by " + c.Rollout
		}
	}
	for i := range f.node.Status.Conditions {
		c := &f.node.Status.Conditions[i]
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

// claimed reports whether a rollout has the node.
func (f *fact) claimed() bool {
	return slices.ContainsFunc(f.claims, func(c v1alpha1.Claim) bool { return !c.Parked() })
}

// settled is how long after a node has become ready what has restarted there is put down to the node.
const settled = time.Minute

// excused reports whether what a pod suffers is its node's doing: the node is to blame now, or it has rebooted since.
func (s *spot) excused(p *pod) bool {
	if s.blamed != "" {
		return true
	}
	var ready time.Time
	for i := range s.node.Status.Conditions {
		if c := &s.node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			ready = c.LastTransitionTime.Time
		}
	}
	return !p.look.LastRestart.IsZero() && !ready.IsZero() && !p.look.LastRestart.After(ready.Add(settled)) && p.CreationTimestamp.Time.Before(ready)
}

// state is how a spot stands in the rolling update.
func (s *spot) state() v1alpha1.UnitState {
	switch {
	case s.fresh.available() && (s.old == nil || s.kept):
		return v1alpha1.UnitUpdated
	case s.fresh == nil && s.old != nil && s.going == nil:
		return v1alpha1.UnitOutdated
	}
	return v1alpha1.UnitUpdating
}

// counts reports whether the node is one that should have a pod, or has one. What a DaemonSet keeps where the ExtendedDaemonSet's own
// may not be is the DaemonSet's alone.
func (s *spot) counts() bool {
	return s.placement.Create || s.fresh != nil || s.old != nil && s.placement.Keep
}

// eligible are the nodes that the rolling update goes over.
func (d *daemonSet) eligible() int {
	n := 0
	for i := range d.spots {
		if !d.spots[i].canary && d.spots[i].counts() {
			n++
		}
	}
	return n
}
