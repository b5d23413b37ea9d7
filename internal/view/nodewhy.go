// SPDX-License-Identifier: Apache-2.0

package view

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
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
	// Checked is when a check for updates last gave a different answer.
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
		Asked: n.Annotations[v1alpha1.AnnotationHostWanted], Error: r.Error, Attempts: r.Attempts, Checked: known(r.Checked),
	}
}

// whyNodeRollouts adds the node's part in each NodeRollout.
func (c *Cluster) whyNodeRollouts(w *Why, f *fact) {
	for i := range c.nodeRollouts {
		nr := &c.nodeRollouts[i]
		u := c.unitsOf(nr)
		if why := u.unselected(f); why != "" {
			w.Others = append(w.Others, Other{Kind: KindNodeRollout, Name: nr.Name, Message: why})
			continue
		}
		u.observe(f.node.Name)
		w.Rollouts = append(w.Rollouts, u.part(f.node.Name))
	}
}

// unselected says why a NodeRollout does not concern the node; else "".
func (u *hosts) unselected(f *fact) string {
	if held(f.claims, u.of.UID) != nil {
		return ""
	}
	if problem := u.problem(); problem != "" && !invalid(u.of) {
		return problem
	}
	if !u.selector.Matches(labels.Set(f.node.Labels)) {
		return asksFor(u.selector, f)
	}
	if _, ok := hostupdate.Read(f.node); !ok {
		return "no label names the interface of the node's host, such as " + v1alpha1.HostProtocols[0].InterfaceLabel
	}
	return ""
}

// part is the node's part in a NodeRollout that selects or claims it.
func (u *hosts) part(name string) Part {
	part := newPart(u.rollout(), u.asked, name)
	if u.problem() == "" {
		u.cluster.explain(&part, u.strategy, u.asked, name, u.told()[name])
	}
	return part
}
