// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// ofHost says what to do about a node of a NodeRollout.
func ofHost(p *view.Part, w *view.Why, named string, now time.Time) []string {
	r, u, node := &p.Rollout, &p.Unit, w.Node.Name
	switch {
	case p.OptedOut:
		return []string{"the label " + v1alpha1.LabelNodeRollout(r.Name) + "=" + v1alpha1.LabelNodeRolloutDisabled + " keeps it out: without it the node is selected"}
	case u.State == v1alpha1.UnitFailed:
		return append(aboutFailedHost(u.Reason, node), again(node, u)...)
	case u.State == v1alpha1.UnitOutdated && p.Place > 0 && !p.Waits():
		return []string{"nothing keeps it back: it is started within moments. If it is not, does the operator run?"}
	case u.InTurn() && w.Node.Host == nil:
		return []string{"somebody has taken the label off that names the host's interface: the turn ends, and the node is given back"}
	case u.InTurn() && unheard(w.Node.Host, u, now):
		return []string{"does the host's agent run? " + agents(node)}
	}
	var all []string
	for _, c := range p.Checks {
		advice := aboutHost(c.Reason, node)
		if advice == "" {
			advice = about(c.Reason, w, named)
		}
		if advice != "" && !slices.Contains(all, advice) {
			all = append(all, advice)
		}
	}
	return all
}

// agents is the command that shows the agents of a node.
func agents(node string) string {
	return "kubectl get pods -A -l " + agentLabel + " --field-selector spec.nodeName=" + node
}

// agentLabel is the label of the pods of the agents that the shipped DaemonSets make.
const agentLabel = "app.kubernetes.io/name=moult-agent"

// patience is how long an agent may take to take up what it is told before somebody should look.
const patience = 2 * time.Minute

// unheard reports whether the agent has not taken up for long what it is told.
func unheard(h *view.Host, p *view.Node, now time.Time) bool {
	return h.Wanted != h.Active && p.Since != nil && now.Sub(p.Since.Time) > patience && p.Phase != v1alpha1.PhaseDraining
}

// aboutFailedHost says what to look at after a failed turn.
func aboutFailedHost(r v1alpha1.Reason, node string) []string {
	switch r {
	case v1alpha1.ReasonHostUpdateFailed:
		return []string{"the log of the host's agent says more: " + agents(node)}
	case v1alpha1.ReasonNotRebooted:
		return []string{"look on the host what keeps it from rebooting, such as an inhibitor; its agent: " + agents(node)}
	case v1alpha1.ReasonVersionUnchanged:
		return []string{"look why the host does not boot what it was given: after a boot that fails it goes back to what it ran before"}
	case v1alpha1.ReasonRebootTimeout:
		return []string{"look at the machine's console; if its boot takes longer, raise spec.hostUpdate.rebootTimeout. If it comes back as it should be, it is updated all the same"}
	case v1alpha1.ReasonDrainRefused:
		return []string{"spec.drain.force gives leave to evict pods that no controller would make again, spec.drain.deleteEmptyDirData those with emptyDir volumes"}
	case v1alpha1.ReasonDrainTimeout:
		return []string{"spec.drain says what a drain may do and how long it may take; which PodDisruptionBudget held it, the message says"}
	case v1alpha1.ReasonTurnTimeout:
		return []string{"if turns may take longer, raise spec.strategy.turnTimeout"}
	}
	return nil
}

// aboutHost says what to do about a reason why a host is not updated; "" where that is not for its rollout alone to say.
func aboutHost(r v1alpha1.Reason, node string) string {
	switch r {
	case v1alpha1.ReasonDetectOnly:
		return "without spec.hostUpdate.detectOnly it would be updated"
	case v1alpha1.ReasonVersionNotOffered:
		return "leave spec.hostUpdate.version out to take what hosts offer, or see which settings of the host keep it from offering that version"
	case v1alpha1.ReasonHostSilent:
		return "does the host's agent run? " + agents(node)
	case v1alpha1.ReasonHostError:
		return "it is asked again, more and more seldom; the log of the host's agent says more: " + agents(node)
	case v1alpha1.ReasonHostGone:
		return "a label must name the interface of the host, such as " + v1alpha1.HostProtocols[0].InterfaceLabel
	}
	return ""
}
