// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"slices"

	"k8s.io/client-go/tools/cache"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// need is something that only a person can change.
type need struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Message   string `json:"message"`
	// Command is what helps; empty if no single command does.
	Command string `json:"command,omitempty"`
}

// needs lists what needs a person, in the order of the rollouts and budgets.
func needs(s *shown) []need {
	all := []need{}
	for i := range s.rollouts {
		all = append(all, needsOf(&s.rollouts[i])...)
	}
	for i := range s.budgets {
		b := &s.budgets[i]
		usedUp := slices.ContainsFunc(b.Holders, func(h v1alpha1.BudgetHolder) bool { return !slices.Contains(byTurns, h.Cause) })
		if b.State == view.BudgetInvalid || b.State == view.BudgetExhausted && usedUp {
			all = append(all, need{source.Budget.Name, "", b.Name, string(b.State) + ", " + b.Line(), "kubectl describe ndb " + b.Name})
		}
	}
	return all
}

// byTurns are why nodes are unavailable that will be available again by themselves.
var byTurns = []v1alpha1.UnavailableCause{v1alpha1.CauseClaimed, v1alpha1.CauseMinReadySeconds, v1alpha1.CauseDaemonPod}

// needsOf lists what a rollout needs of a person.
func needsOf(r *view.Rollout) (all []need) {
	arg, c, w := source.Arg(r.Kind, r.Namespace, r.Name), r.Canary, r.Wave
	add := func(message, command string) { all = append(all, need{r.Kind, r.Namespace, r.Name, message, command}) }
	var failed []string
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == v1alpha1.UnitFailed && n.RetryAt == nil && !n.ContinuesFailed() {
			failed = append(failed, n.Node)
		}
	}
	if c != nil && c.State != view.CanaryProgressing {
		did, verb := "paused", "unpause"
		if c.State == view.CanaryFailed {
			did, verb = "failed", "reset"
		}
		add("canary "+c.Revision+" "+did+colon(string(c.Reason))+colon(c.Message), "kubectl eds canary "+verb+" "+r.Name+" -n "+r.Namespace)
	}
	switch {
	case c != nil && c.State == view.CanaryFailed:
	case r.Halted != "":
		add("halted: "+r.Halted, text.When(r.Kind != source.DaemonSet.Name, "kubectl moult retry %s", arg))
	case r.State == view.Stalled:
		add("stalled"+colon(r.Message), "")
	case len(failed) > 0:
		add(text.Count(len(failed), "node")+" failed: "+text.Some(few, failed, ", "), "kubectl moult why "+failed[0])
	}
	if r.PolicyMissing != "" {
		add(r.PolicyMissing, "kubectl moult check")
	}
	if w != nil && w.State == v1alpha1.WaveWaitingForApproval && r.State != view.Complete {
		add("wave "+w.Name+" waits for approval", "kubectl moult approve "+arg)
	}
	return all
}

// drawNeeds writes what needs a person, with the command that helps.
func drawNeeds(s *shown) (l text.Lines) {
	for i, n := range needs(s) {
		if i == 0 {
			l.Add(text.Bold.Of("Needs a person"))
		}
		name := cache.NewObjectName(n.Namespace, n.Name).String()
		l.Add(
			text.Red.Of("  ! "), text.Plain.Of(n.Kind+" "), text.Bold.Of(name), text.Plain.Of(": "+n.Message),
			text.Dim.When(n.Command != "", "  (%s)", n.Command),
		)
	}
	return l
}
