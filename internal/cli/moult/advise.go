// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"slices"
	"strings"
	"time"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// hints say what to do about a reason, one hint a line. {arg} is the rollout on a command line. {name}, {namespace} and {node} are names.
// {label} is the label that opts out. {agents} is the command that shows the node's agents,
// {logs} the command that shows the Job's log.
type hints map[v1alpha1.Reason]string

const (
	hintCorrect = "correct the field that the message names"
	hintAgents  = "the log of the host's agent says more: {agents}"
)

// waitHints are about reasons to wait, where a person can help.
var waitHints = hints{
	v1alpha1.ReasonPaused:             "kubectl moult resume {arg}",
	v1alpha1.ReasonWaitingForApproval: "kubectl moult approve {arg}",
	v1alpha1.ReasonHalted:             "see what failed, mend it, then: kubectl moult retry {arg}",
	v1alpha1.ReasonWindowInvalid:      hintCorrect,
	v1alpha1.ReasonStrategyInvalid:    hintCorrect,
	v1alpha1.ReasonBudgetInvalid:      hintCorrect,
	v1alpha1.ReasonClaimUnreadable:    "correct or remove the annotation that the message names: kubectl annotate node NODE KEY-",
	v1alpha1.ReasonHostnameShared:     "give each node a label kubernetes.io/hostname of its own",
	v1alpha1.ReasonMaxConcurrent:      "who has the slots: kubectl moult status {arg}",

	v1alpha1.ReasonVersionNotOffered: "leave spec.hostUpdate.version out to take what hosts offer, " +
		"or see which settings of the host keep it from offering that version",
	v1alpha1.ReasonHostSilent: "does the host's agent run? {agents}",
	v1alpha1.ReasonHostError:  "the operator asks it again, after longer and longer pauses; " + hintAgents,
	v1alpha1.ReasonHostGone:   "a label must name the interface of the host, such as " + v1alpha1.HostProtocols[0].InterfaceLabel,

	v1alpha1.ReasonMachineUnknown:   "does another Node have the same provider id? kubectl get nodes -o custom-columns=NAME:.metadata.name,ID:.spec.providerID",
	v1alpha1.ReasonMachineProtected: "remove the machine's protection in the cloud, or keep the rollout off its node: kubectl label node {node} {label}",
	v1alpha1.ReasonScaleSetFull:     "raise the scale set's maximum, or set spec.replacement.onFull to DeleteFirst",
	v1alpha1.ReasonScaleSetUnfit:    "change the scale set as the message says: azure.md, aws.md or gcp.md in docs/operations",
	v1alpha1.ReasonScaleSetNotFound: "does spec.replacement name the right scale sets, and the right subscription, region or project?",
	v1alpha1.ReasonCloudQuota: "ask the cloud for more quota, " +
		"or set spec.replacement.surge to 0: then a machine is deleted before the next is added",
	v1alpha1.ReasonCloudDenied:        "give the operator the rights in azure.md, aws.md or gcp.md in docs/operations; its log has the cloud's answer",
	v1alpha1.ReasonReplacementPending: "its replacement is not ready yet: kubectl moult status nr/{name}",
	v1alpha1.ReasonEtcdUnhealthy:      "mend the member of etcd that the message names: until then no node leaves the control plane",
}

// failedHints are about failed turns.
var failedHints = hints{
	v1alpha1.ReasonJobFailed:   "see what it wrote: {logs}",
	v1alpha1.ReasonJobLost:     "look on the node how far the change came: it may have been done",
	v1alpha1.ReasonTurnTimeout: "if turns may take longer, raise spec.strategy.turnTimeout",
	v1alpha1.ReasonDrainTimeout: "the message says which PodDisruptionBudget or pod held the drain; " +
		"spec.drain says what it may do and how long it may take",
	v1alpha1.ReasonDrainRefused: "spec.drain.force allows to evict pods that no controller would make again, " +
		"{emptyDir} those with emptyDir volumes",

	v1alpha1.ReasonHostUpdateFailed: hintAgents,
	v1alpha1.ReasonNotRebooted:      "look on the host what keeps it from rebooting, such as an inhibitor; its agent: {agents}",
	v1alpha1.ReasonVersionUnchanged: "look why the host does not boot its update: after a boot that fails it returns to what it ran before",
	v1alpha1.ReasonRebootTimeout: "look at the machine's console; if its boot takes longer, raise spec.hostUpdate.rebootTimeout. " +
		"If it returns with its update, it is updated all the same",

	v1alpha1.ReasonReplacementFailed: "see why machines of the image do not join: its console and the kubelet's log; " +
		"spec.replacement.keepFailedFor keeps the next one for that\n" +
		"restore the scale set's image with moult set-image, or let spec.replacement.rollback do it; " +
		"if machines take longer, raise spec.replacement.replacementReady.timeout",
	v1alpha1.ReasonDeleteFailed: "see in the cloud what keeps the machine from being deleted, such as a lock or a protection: kubectl describe nr {name}",
}

const hintNext = "nothing keeps it back: it is started within moments. If it is not, does the operator run?"

// agentPatience is how long an agent may take to act on an order.
const agentPatience = 2 * time.Minute

// advisor says what a person may do about a node's part in a rollout.
type advisor struct {
	*view.Why
	part *view.Part
	fill *strings.Replacer
	all  []string
}

// advise says what a person may do.
func advise(w *view.Why, p *view.Part, now time.Time) []string {
	r, u, h := &p.Rollout, &p.Unit, w.Node.Host
	isHost := r.Kind == source.NodeRollout.Name && !p.Replaces
	emptyDir := "spec.drain.deleteEmptyDirData"
	if r.Kind == source.Plan.Name {
		emptyDir = "spec.drain.deleteEmptydirData"
	}
	a := &advisor{Why: w, part: p, fill: strings.NewReplacer(
		"{emptyDir}", emptyDir, "{arg}", source.Arg(r.Kind, r.Namespace, r.Name), "{name}", r.Name, "{namespace}", r.Namespace, "{node}", w.Node.Name,
		"{label}", optOut(r)+"="+upgradev1.LabelDisabled,
		"{agents}", "kubectl get pods -A -l app.kubernetes.io/name=moult-agent --field-selector spec.nodeName="+w.Node.Name,
		"{logs}", "kubectl logs -n "+r.Namespace+" -l "+upgradev1.LabelPlan+"="+r.Name+","+upgradev1.LabelNode+"="+w.Node.Name+" --all-containers",
	)}
	switch {
	case r.Kind == source.DaemonSet.Name:
		a.daemon()
	case p.OptedOut:
		a.add("the label {label} keeps it out: without it the node is selected")
	case u.State == v1alpha1.UnitFailed:
		a.failed()
	case u.State == view.Untold && u.Reason == "" && p.Replaces:
		a.add("the operator's metrics and the cloud show which machines are outdated: kubectl get nr {name} -o jsonpath='{.status.scaleSets}'")
	case u.State == v1alpha1.UnitOutdated && p.Place > 0 && !p.Waits():
		a.add(hintNext)
	case isHost && u.InTurn() && h != nil && h.Wanted != h.Active && u.Since != nil && now.Sub(u.Since.Time) > agentPatience && u.Phase != v1alpha1.PhaseDraining:
		a.wait(v1alpha1.ReasonHostSilent)
	default:
		if p.Replaces {
			a.wait(u.Reason)
		}
		for _, c := range p.Checks {
			a.wait(c.Reason)
		}
	}
	return a.all
}

// add adds lines, each once.
func (a *advisor) add(lines string) {
	for line := range strings.SplitSeq(a.fill.Replace(lines), "\n") {
		if line != "" && !slices.Contains(a.all, line) {
			a.all = append(a.all, line)
		}
	}
}

// failed says what to look at after a failed turn, and how to retry it.
func (a *advisor) failed() {
	u := &a.part.Unit
	a.add(failedHints[u.Reason])
	if u.ContinuesFailed() {
		if !a.part.Replaces {
			a.add("it ends by itself when the node is healthy")
		}
		return
	}
	retry := "{node}"
	if a.part.Replaces && u.Phase != "" {
		retry = "{arg}" // The Node has no claim to retry.
	}
	if u.RetryAt != nil {
		a.add("it is tried again by itself at " + u.RetryAt.UTC().Format(time.RFC3339) + "; at once: kubectl moult retry " + retry)
	} else {
		a.add("mend it, then: kubectl moult retry " + retry + "; any change of the rollout but of its strategy tries it again too")
	}
}

// wait says what to do about a reason to wait.
func (a *advisor) wait(reason v1alpha1.Reason) {
	a.add(waitHints[reason])
	switch reason {
	case v1alpha1.ReasonBudgetPaused:
		paused := func(b view.Budget) bool {
			return slices.ContainsFunc(b.BlockedBy, func(block v1alpha1.BudgetBlock) bool { return block.Gate == reason })
		}
		if i := slices.IndexFunc(a.Budgets, paused); i >= 0 {
			a.add("kubectl moult resume ndb/" + a.Budgets[i].Name)
		}
	case v1alpha1.ReasonClaimed:
		if slices.ContainsFunc(a.Rollouts, func(p view.Part) bool { return p.Unit.State == v1alpha1.UnitFailed && !p.Unit.Skipped }) {
			a.add("it failed there: mend that first, or it keeps the node")
		}
	}
}

// daemon says what to do about a daemon's pod, and about its canary.
func (a *advisor) daemon() {
	p, r := a.part, &a.part.Rollout
	for _, o := range p.Pods {
		if o.Message != "" && o.Deleted == nil {
			a.add("see what keeps the pod from being ready: kubectl describe pod " + o.Name + " -n {namespace}")
		}
	}
	if c := r.Canary; c != nil && c.State == view.CanaryFailed {
		a.add("change the template, or try the same again: kubectl eds canary reset {name} -n {namespace}")
	} else if c != nil && c.State == view.CanaryPaused && (p.Unit.Canary || len(p.Checks) > 0) {
		a.add("when that is mended: kubectl eds canary unpause {name} -n {namespace}; or end it: kubectl eds canary fail {name} -n {namespace}")
	}
	for _, c := range p.Checks {
		switch {
		case c.Reason == v1alpha1.ReasonPaused && c.Name == "canary":
		case c.Reason == v1alpha1.ReasonPaused && r.PausedBy != "":
			a.add(unpauseCommand(r.PausedBy, r.Namespace, r.Name))
		case c.Reason == v1alpha1.ReasonHalted:
			a.add("see which pods do not start: kubectl moult status {arg}")
		case c.Reason == v1alpha1.ReasonOnDelete && len(p.Pods) > 0:
			a.add("kubectl delete pod " + p.Pods[0].Name + " -n {namespace}")
		default:
			a.wait(c.Reason)
		}
	}
	if p.Unit.State == v1alpha1.UnitOutdated && len(p.Checks) > 0 && !p.Waits() {
		a.add(hintNext)
	}
}
