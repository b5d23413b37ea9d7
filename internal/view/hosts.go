// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// Host is the state that the operator and the host's agent exchange on its Node.
type Host struct {
	// Label is the key of the label that names the interface of the host, and Interface its value.
	Label     string `json:"label"`
	Interface string `json:"interface"`
	// Wanted is the ordered action. Active is the action that the host took up. State is its progress.
	Wanted v1alpha1.HostAction `json:"wanted,omitempty"`
	Active v1alpha1.HostAction `json:"active,omitempty"`
	State  v1alpha1.HostState  `json:"state,omitempty"`
	// Update says whether there is an update: true, false or unknown.
	Update string `json:"update,omitempty"`
	// Version is what the host runs, Previous what it ran before, and Target the update that it offers. Each may be empty.
	// Asked is the version that the operator ordered.
	Version  string `json:"version,omitempty"`
	Previous string `json:"previous,omitempty"`
	Target   string `json:"target,omitempty"`
	Asked    string `json:"asked,omitempty"`
	// Error says why the last action failed.
	Error string `json:"error,omitempty"`
	// Attempts counts how often the host began to fetch the update.
	Attempts int `json:"attempts,omitempty"`
	// Checked is when the agent last wrote the result of a check. A check with nothing new writes nothing.
	Checked *metav1.Time `json:"checked,omitempty"`
}

// hostOf reads the host's state from its Node; nil if no label names its interface.
func hostOf(n *corev1.Node) *Host {
	r, ok := hostupdate.Read(n)
	if !ok {
		return nil
	}
	return &Host{
		Label: r.Protocol.InterfaceLabel, Interface: r.Interface, Wanted: r.Wanted, Active: r.Active, State: r.State, Update: r.Update,
		Version: r.Version, Previous: n.Annotations[v1alpha1.AnnotationHostPrevious], Target: r.Target,
		Asked: n.Annotations[v1alpha1.AnnotationHostWanted], Error: r.Error, Attempts: r.Attempts, Checked: timeOrNil(r.Checked),
	}
}

// hosts are the units of one NodeRollout with hostUpdate.
type hosts struct {
	units
	world *hostupdate.World
	// blockedUntil is when hosts may be updated that may not be updated now.
	blockedUntil map[string]time.Time
}

// hosts judges every node that the NodeRollout selects or claims, like its controller, and asks the engine. In a preview the spec may be
// newer than the status.
func (c *Cluster) hosts(nr *v1alpha1.NodeRollout, named string, preview *Supposition) *hosts {
	w, err := hostupdate.NewWorld(nr, nil)
	if w.Ready {
		err = nil // It is about the strategy, which the engine judges.
	}
	u := &hosts{units: c.describe(nr, err, preview), world: w, blockedUntil: map[string]time.Time{}}
	if u.problem != "" || c.nodes == nil {
		return u
	}
	w.Fleet, w.OwnNode, w.Now = c.fleet, c.ownNode, c.now
	turns := w.Units(c.nodes)
	r := &u.described
	r.Version, r.Revision, r.Versions, r.RolledBack = w.Revision, w.Revision, w.Versions, w.RolledBack
	r.Unlabelled = int32(len(w.Unlabelled))
	u.conditions.message = w.Note()
	u.decided = true
	decide(&u.units, turns, named, func(total int) rollout.Strategy { return nodeturn.Strategy(nr, w.Revision, w.OwnNode, total) }, u.line)
	return u
}

// line shows a unit, with the version that its host is updated to.
func (u *hosts) line(t *hostupdate.Unit, wait *rollout.Wait) Node {
	phase, since, message := hostupdate.Phase(t)
	line := u.units.line(t.Base(), wait, phase, since, message)
	line.Version = t.Report.Version
	target := t.Verdict.Version
	switch {
	case line.Phase != "" && t.Claim != nil && t.Claim.Failed == nil:
		target = hostupdate.VersionOf(t.Claim)
	case line.State == v1alpha1.UnitOutdated && t.Unit.Reason != "" && !t.Verdict.RetryAt.IsZero():
		u.blockedUntil[line.Node] = t.Verdict.RetryAt
	}
	line.Recovers = t.Recovers
	if line.State != v1alpha1.UnitUpdated && hostupdate.CompareVersions(target, line.Version) != 0 {
		line.Target = target
	}
	return line
}

// unselected says why a NodeRollout does not concern the node; else "".
func (u *hosts) unselected(n *corev1.Node) string {
	if u.cluster.claimOn(n.Name, u.world.Rollout.UID) != nil {
		return ""
	}
	why := u.unmetRequirements(u.world.Selector, n)
	if _, ok := hostupdate.Read(n); why == "" && !ok {
		why = "no label names the interface of the node's host, such as " + v1alpha1.HostProtocols[0].InterfaceLabel
	}
	return why
}

// preview says what the NodeRollout would do, and what is not known about that.
func (u *hosts) preview(s Supposition) Preview {
	var notes []string
	if age := u.world.Host.MinimumAge; age != nil && age.Duration > 0 && s.New {
		notes = append(notes, "Releases are known from when the operator first sees them: before, spec.hostUpdate.minimumAge does not begin.")
	}
	v := u.units.preview(s, u.blockedUntil, notes)
	v.Unlabelled = u.world.Unlabelled
	return v
}
