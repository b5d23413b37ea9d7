// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"strings"
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

// hints say what to do about reasons. In them {arg} is the rollout on a command line, {name}, {namespace} and {node} are names, {agents} is the
// command that shows the agents of the node, and {logs} the one that shows what the Job wrote.
type hints map[v1alpha1.Reason]string

// waitHints are about reasons to wait, where more than time or others can help.
var waitHints = hints{
	v1alpha1.ReasonPaused:             "kubectl moult resume {arg}",
	v1alpha1.ReasonWaitingForApproval: "kubectl moult approve {arg}",
	v1alpha1.ReasonHalted:             "see what failed, mend it, then: kubectl moult retry {arg}",
	v1alpha1.ReasonWindowInvalid:      "correct the field that the message names",
	v1alpha1.ReasonStrategyInvalid:    "correct the field that the message names",
	v1alpha1.ReasonBudgetInvalid:      "correct the field that the message names",
	v1alpha1.ReasonClaimUnreadable:    "mend or remove the annotation " + v1alpha1.AnnotationClaims + " of the node",
	v1alpha1.ReasonHostnameShared:     "give each node a label kubernetes.io/hostname of its own",
	v1alpha1.ReasonMaxConcurrent:      "who has the slots: kubectl moult status {arg}",
}

var hostWaitHints = hints{
	v1alpha1.ReasonDetectOnly: "without spec.hostUpdate.detectOnly it would be updated",
	v1alpha1.ReasonVersionNotOffered: "leave spec.hostUpdate.version out to take what hosts offer, " +
		"or see which settings of the host keep it from offering that version",
	v1alpha1.ReasonHostSilent: "does the host's agent run? {agents}",
	v1alpha1.ReasonHostError:  "it is asked again, more and more seldom; the log of the host's agent says more: {agents}",
	v1alpha1.ReasonHostGone:   "a label must name the interface of the host, such as " + v1alpha1.HostProtocols[0].InterfaceLabel,
}

var machineWaitHints = hints{
	v1alpha1.ReasonDetectOnly: "without spec.replacement.detectOnly it would be replaced",
	v1alpha1.ReasonMachineUnknown: "is it in one of the scale sets of spec.replacement.scaleSets, in the account that the operator asks? " +
		"kubectl get node {node} -o jsonpath='{.spec.providerID}'",
	v1alpha1.ReasonMachineProtected: "take the protection off the machine in the cloud, or keep the rollout off its node: " +
		"kubectl label node {node} {label}",
	v1alpha1.ReasonSurgeExhausted:   "it waits for a machine that is being added or deleted; spec.replacement.surge says how many there may be at once",
	v1alpha1.ReasonScaleSetFull:     "raise the scale set's maximum, or set spec.replacement.onFull to DeleteFirst",
	v1alpha1.ReasonScaleSetBusy:     "it goes on when the cloud is done with the scale set; who else changes it, the cloud's activity log says",
	v1alpha1.ReasonScaleSetUnfit:    "set the scale set up as the message says: docs/cloud-azure.md, docs/cloud-aws.md and docs/cloud-gcp.md",
	v1alpha1.ReasonScaleSetNotFound: "does spec.replacement name the right scale sets, and the right subscription, region or project?",
	v1alpha1.ReasonCloudQuota: "ask the cloud for more quota, " +
		"or set spec.replacement.surge to 0: then a machine is deleted before the next is added",
	v1alpha1.ReasonCloudThrottled: "it goes on by itself; spec.replacement.checkPeriod says how often the cloud is asked while nothing is under way",
	v1alpha1.ReasonCloudDenied: "give the operator the rights that docs/cloud-azure.md, docs/cloud-aws.md or docs/cloud-gcp.md lists; " +
		"its log has the cloud's answer",
	v1alpha1.ReasonCloudError:         "it is tried again by itself; the operator's log has the cloud's answer",
	v1alpha1.ReasonReplacementPending: "its replacement is not ready yet: kubectl moult status nr/{name}",
	v1alpha1.ReasonEtcdUnhealthy:      "mend the member of etcd that the message names: until then no node leaves the control plane",
}

const (
	hintTurnTimeout  = "if turns may take longer, raise spec.strategy.turnTimeout"
	hintDrainTimeout = "spec.drain says what a drain may do and how long it may take; which PodDisruptionBudget held it, the message says"
	hintDrainRefused = "spec.drain.force gives leave to evict pods that no controller would make again, " +
		"spec.drain.deleteEmptyDirData those with emptyDir volumes"
)

// failedHints are about failed turns; several are apart by a line break.
var failedHints = hints{
	v1alpha1.ReasonJobFailed:    "see what it wrote: {logs}",
	v1alpha1.ReasonJobLost:      "look on the node how far the change came: it may have been done",
	v1alpha1.ReasonTurnTimeout:  "see what it wrote: {logs}\n" + hintTurnTimeout,
	v1alpha1.ReasonDrainTimeout: "the log of the container drain says what it waited for; spec.drain says what it may do and how long it may take",
}

var hostFailedHints = hints{
	v1alpha1.ReasonHostUpdateFailed: "the log of the host's agent says more: {agents}",
	v1alpha1.ReasonNotRebooted:      "look on the host what keeps it from rebooting, such as an inhibitor; its agent: {agents}",
	v1alpha1.ReasonVersionUnchanged: "look why the host does not boot what it was given: after a boot that fails it goes back to what it ran before",
	v1alpha1.ReasonRebootTimeout: "look at the machine's console; if its boot takes longer, raise spec.hostUpdate.rebootTimeout. " +
		"If it comes back as it should be, it is updated all the same",
	v1alpha1.ReasonDrainRefused: hintDrainRefused,
	v1alpha1.ReasonDrainTimeout: hintDrainTimeout,
	v1alpha1.ReasonTurnTimeout:  hintTurnTimeout,
}

var machineFailedHints = hints{
	v1alpha1.ReasonReplacementFailed: "see why machines of the image do not join: its console and the kubelet's log; " +
		"spec.replacement.keepFailedFor keeps the next one for that\n" +
		"set the scale set's image back with moult set-image, or let spec.replacement.rollback do it; " +
		"if machines take longer, raise spec.replacement.replacementReady.timeout",
	v1alpha1.ReasonDeleteFailed: "see in the cloud what keeps the machine from being deleted, such as a lock or a protection: kubectl describe nr {name}",
	v1alpha1.ReasonDrainRefused: hintDrainRefused,
	v1alpha1.ReasonDrainTimeout: hintDrainTimeout,
	v1alpha1.ReasonTurnTimeout:  hintTurnTimeout,
}

const (
	hintStarting = "nothing keeps it back: it is started within moments. If it is not, does the operator run?"
	hintReplaced = "nothing keeps it back: its turn begins within moments. If it does not, does the operator run, with the controller replacement?"
	hintOptedOut = "the label {label} keeps it out: without it the node is selected"
)

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
	r, u, node := &p.Rollout, &p.Unit, w.Node.Name
	label := upgradev1.LabelPlanHash(r.Name) + "=" + upgradev1.LabelDisabled
	if r.Kind == target.NodeRollout.Name {
		label = v1alpha1.LabelNodeRollout(r.Name) + "=" + v1alpha1.LabelNodeRolloutDisabled
	}
	a := &advisor{Why: w, part: p, fill: strings.NewReplacer(
		"{arg}", target.Arg(r.Kind, r.Namespace, r.Name), "{name}", r.Name, "{namespace}", r.Namespace, "{node}", node, "{label}", label,
		"{agents}", "kubectl get pods -A -l app.kubernetes.io/name=moult-agent --field-selector spec.nodeName="+node,
		"{logs}", "kubectl logs -n "+r.Namespace+" -l "+upgradev1.LabelPlan+"="+r.Name+","+upgradev1.LabelNode+"="+node+" --all-containers",
	)}
	next := u.State == v1alpha1.UnitOutdated && p.Place > 0 && !p.Waits()
	switch {
	case r.Kind == target.DaemonSet.Name:
		a.daemon()
	case p.OptedOut:
		a.add(hintOptedOut)
	case r.Kind == target.NodeRollout.Name && p.Replaces:
		a.machine(next)
	case r.Kind == target.NodeRollout.Name:
		a.host(next, now)
	case u.State == v1alpha1.UnitFailed:
		a.failed(failedHints, "{node}")
	case next:
		a.add(hintStarting)
	case u.State == v1alpha1.UnitOutdated:
		a.checks(nil)
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

// failed says what to look at after a failed turn, and how it is tried again.
func (a *advisor) failed(by hints, retry string) {
	u := &a.part.Unit
	a.add(by[u.Reason])
	if u.Skipped {
		a.add("the node was given back as it was, and the rollout goes on without it")
	}
	if u.RetryAt != nil {
		a.add("it is tried again by itself at " + u.RetryAt.UTC().Format(time.RFC3339) + "; at once: kubectl moult retry " + retry)
	} else {
		a.add("mend it, then: kubectl moult retry " + retry + "; any change of the rollout but of its strategy tries it again too")
	}
}

// checks says what to do about the checks that are not passed.
func (a *advisor) checks(own hints) {
	for _, c := range a.part.Checks {
		a.wait(own, c.Reason)
	}
}

// wait says what to do about a reason to wait.
func (a *advisor) wait(own hints, reason v1alpha1.Reason) {
	if hint, ok := own[reason]; ok {
		a.add(hint)
		return
	}
	a.add(waitHints[reason])
	switch reason {
	case v1alpha1.ReasonBudgetPaused:
		paused := func(b view.Budget) bool {
			return slices.ContainsFunc(b.BlockedBy, func(block view.Block) bool { return block.Gate == reason })
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

// host says what to do about a node whose host is updated.
func (a *advisor) host(next bool, now time.Time) {
	u, h := &a.part.Unit, a.Node.Host
	switch {
	case u.State == v1alpha1.UnitFailed:
		a.failed(hostFailedHints, "{node}")
	case next:
		a.add(hintStarting)
	case u.InTurn() && h == nil:
		a.add("somebody has taken the label off that names the host's interface: the turn ends, and the node is given back")
	case u.InTurn() && h.Wanted != h.Active && u.Since != nil && now.Sub(u.Since.Time) > agentPatience && u.Phase != v1alpha1.PhaseDraining:
		a.add("does the host's agent run? {agents}")
	default:
		a.checks(hostWaitHints)
	}
}

// machine says what to do about a node whose machine is replaced.
func (a *advisor) machine(next bool) {
	u := &a.part.Unit
	switch {
	case u.State == v1alpha1.UnitFailed && u.Lasts():
		a.add(machineFailedHints[u.Reason])
	case u.State == v1alpha1.UnitFailed && u.Phase != "": // No claim tells of it, so it cannot be retried by its node.
		a.failed(machineFailedHints, "{arg}")
	case u.State == v1alpha1.UnitFailed:
		a.failed(machineFailedHints, "{node}")
	case u.State == view.Untold && u.Reason == "":
		a.add("the operator's metrics and the cloud tell which machines are outdated: kubectl get nr {name} -o jsonpath='{.status.scaleSets}'")
	case next:
		a.add(hintReplaced)
	default:
		a.wait(machineWaitHints, u.Reason)
		a.checks(machineWaitHints)
	}
}

// canary says what to do about a canary that is paused or has failed.
func (a *advisor) canary() {
	c := a.part.Rollout.Canary
	if c == nil || !a.part.Unit.Canary && len(a.part.Checks) == 0 && c.State != view.CanaryFailed {
		return
	}
	switch c.State {
	case view.CanaryPaused:
		a.add("when that is mended: kubectl eds canary unpause {name} -n {namespace}; or give it up: kubectl eds canary fail {name} -n {namespace}")
	case view.CanaryFailed:
		a.add("change the template, or try the same again: kubectl eds canary reset {name} -n {namespace}")
	case view.CanaryProgressing:
	}
}

// daemon says what to do about a daemon's pod.
func (a *advisor) daemon() {
	p, r := a.part, &a.part.Rollout
	for i := range p.Pods {
		if o := &p.Pods[i]; o.Message != "" && o.Deleted == nil {
			a.add("see what keeps the pod from being ready: kubectl describe pod " + o.Name + " -n {namespace}")
		}
	}
	a.canary()
	for _, c := range p.Checks {
		switch {
		case c.Reason == v1alpha1.ReasonPaused && c.Name == "canary":
		case c.Reason == v1alpha1.ReasonPaused && r.PausedBy == edsv1.AnnotationRolloutFrozen:
			a.add("kubectl eds unfreeze-rollout {name} -n {namespace}")
		case c.Reason == v1alpha1.ReasonPaused && r.PausedBy != "":
			a.add("kubectl eds unpause-rolling-update {name} -n {namespace}")
		case c.Reason == v1alpha1.ReasonHalted:
			a.add("see which pods do not start: kubectl moult status {arg}")
		case c.Reason == v1alpha1.ReasonOnDelete && len(p.Pods) > 0:
			a.add("kubectl delete pod " + p.Pods[0].Name + " -n {namespace}")
		default:
			a.wait(nil, c.Reason)
		}
	}
	if p.Unit.State == v1alpha1.UnitOutdated && len(p.Checks) > 0 && !p.Waits() {
		a.add(hintStarting)
	}
}
