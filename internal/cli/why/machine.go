// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// drawMachine writes which part the node's machine has in a turn.
func drawMachine(l *text.Page, m *view.Machine, now time.Time) {
	said := "  machine " + cmp.Or(m.Machine, "unknown") + " of scale set " + m.ScaleSet
	by := ""
	switch {
	case m.Replaces && m.Node != "":
		said = "  machine " + cmp.Or(m.Replacement, "unknown") + " of scale set " + m.ScaleSet
		by = " takes the place of that of node " + m.Node
	case m.Replaces:
		said = "  machine " + cmp.Or(m.Replacement, "unknown") + " of scale set " + m.ScaleSet
		by = " has taken the place of " + cmp.Or(m.Machine, "another")
	case m.ReplacementNode != "":
		by = " is replaced by that of node " + m.ReplacementNode
	case m.Replacement != "":
		by = " is replaced by machine " + m.Replacement + ", which has no node yet"
	default:
		by = " is to be replaced"
	}
	line := text.Line{text.Plain.Of(said + by + ": "), text.Yellow.Of(string(m.Phase)), text.Plain.Of(ago(&m.PhaseSince, now) + " (NodeRollout/" + m.Rollout + ")")}
	if m.Failed != nil {
		line = append(line, text.Red.Of("  "+string(m.Failed.Reason)))
	}
	l.Add(line...)
}

// ofMachine says what to do about a node of a NodeRollout that replaces machines.
func ofMachine(p *view.Part, w *view.Why, named string) []string {
	r, u, node := &p.Rollout, &p.Unit, w.Node.Name
	switch {
	case p.OptedOut:
		return []string{"the label " + v1alpha1.LabelNodeRollout(r.Name) + "=" + v1alpha1.LabelNodeRolloutDisabled + " keeps it out: without it the node is selected"}
	case u.State == v1alpha1.UnitFailed && u.Lasts():
		return aboutFailedMachine(u.Reason, r.Name)
	case u.State == v1alpha1.UnitFailed && u.Phase != "": // No claim says so, by which it could be asked for on the node.
		return append(aboutFailedMachine(u.Reason, r.Name), again(named, u)...)
	case u.State == v1alpha1.UnitFailed:
		return append(aboutFailedMachine(u.Reason, r.Name), again(node, u)...)
	case u.State == view.Untold && u.Reason == "":
		return []string{"the operator's metrics and the cloud tell which machines are outdated: kubectl get nr " + r.Name + " -o jsonpath='{.status.scaleSets}'"}
	case u.State == v1alpha1.UnitOutdated && p.Place > 0 && !p.Waits():
		return []string{"nothing keeps it back: its turn begins within moments. If it does not, does the operator run, with the controller replacement?"}
	}
	var all []string
	add := func(reason v1alpha1.Reason) {
		advice := aboutMachine(reason, r.Name, node)
		if advice == "" {
			advice = about(reason, w, named)
		}
		if advice != "" && !slices.Contains(all, advice) {
			all = append(all, advice)
		}
	}
	add(u.Reason)
	for _, c := range p.Checks {
		add(c.Reason)
	}
	return all
}

// aboutFailedMachine says what to look at after a failed turn.
func aboutFailedMachine(r v1alpha1.Reason, rollout string) []string {
	switch r {
	case v1alpha1.ReasonReplacementFailed:
		return []string{
			"see why machines of the image do not join: its console and the kubelet's log; spec.replacement.keepFailedFor keeps the next one for that",
			"set the scale set's image back with moult set-image, or let spec.replacement.rollback do it; if machines take longer, raise spec.replacement.replacementReady.timeout",
		}
	case v1alpha1.ReasonDeleteFailed:
		return []string{"see in the cloud what keeps the machine from being deleted, such as a lock or a protection: kubectl describe nr " + rollout}
	case v1alpha1.ReasonDrainRefused:
		return []string{"spec.drain.force gives leave to evict pods that no controller would make again, spec.drain.deleteEmptyDirData those with emptyDir volumes"}
	case v1alpha1.ReasonDrainTimeout:
		return []string{"spec.drain says what a drain may do and how long it may take; which PodDisruptionBudget held it, the message says"}
	case v1alpha1.ReasonTurnTimeout:
		return []string{"if turns may take longer, raise spec.strategy.turnTimeout"}
	}
	return nil
}

// aboutMachine says what to do about a reason why a machine is not replaced; "" where that is not for its rollout alone to say.
func aboutMachine(r v1alpha1.Reason, rollout, node string) string {
	switch r {
	case v1alpha1.ReasonDetectOnly:
		return "without spec.replacement.detectOnly it would be replaced"
	case v1alpha1.ReasonMachineUnknown:
		return "is it in one of the scale sets of spec.replacement.scaleSets, in the account that the operator asks? kubectl get node " + node + " -o jsonpath='{.spec.providerID}'"
	case v1alpha1.ReasonMachineProtected:
		return "take the protection off the machine in the cloud, or keep the rollout off its node: kubectl label node " + node + " " + v1alpha1.LabelNodeRollout(rollout) + "=" + v1alpha1.LabelNodeRolloutDisabled
	case v1alpha1.ReasonSurgeExhausted:
		return "it waits for a machine that is being added or deleted; spec.replacement.surge says how many there may be at once"
	case v1alpha1.ReasonScaleSetFull:
		return "raise the scale set's maximum, or set spec.replacement.onFull to DeleteFirst"
	case v1alpha1.ReasonScaleSetBusy:
		return "it goes on when the cloud is done with the scale set; who else changes it, the cloud's activity log says"
	case v1alpha1.ReasonScaleSetUnfit:
		return "set the scale set up as the message says: docs/cloud-azure.md, docs/cloud-aws.md and docs/cloud-gcp.md"
	case v1alpha1.ReasonScaleSetNotFound:
		return "does spec.replacement name the right scale sets, and the right subscription, region or project?"
	case v1alpha1.ReasonCloudQuota:
		return "ask the cloud for more quota, or set spec.replacement.surge to 0: then a machine is deleted before the next is added"
	case v1alpha1.ReasonCloudThrottled:
		return "it goes on by itself; spec.replacement.checkPeriod says how often the cloud is asked while nothing is under way"
	case v1alpha1.ReasonCloudDenied:
		return "give the operator the rights that docs/cloud-azure.md, docs/cloud-aws.md or docs/cloud-gcp.md lists; its log has the cloud's answer"
	case v1alpha1.ReasonCloudError:
		return "it is tried again by itself; the operator's log has the cloud's answer"
	case v1alpha1.ReasonReplacementPending:
		return "its replacement is not ready yet: kubectl moult status nr/" + rollout
	case v1alpha1.ReasonEtcdUnhealthy:
		return "mend the member of etcd that the message names: until then no node leaves the control plane"
	}
	return ""
}
