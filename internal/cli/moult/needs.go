// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"slices"

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
		r := &s.rollouts[i]
		for _, n := range needsOf(r) {
			all = append(all, need{r.Kind, r.Namespace, r.Name, n[0], n[1]})
		}
	}
	for i := range s.budgets {
		if b := &s.budgets[i]; needsPerson(b) {
			message := string(b.State) + ", " + b.Line()
			for j := range b.BlockedBy {
				message += "; " + text.JoinNonEmpty(": ", string(b.BlockedBy[j].Gate), b.BlockedBy[j].Message)
			}
			all = append(all, need{source.Budget.Name, "", b.Name, message, "kubectl describe ndb " + b.Name})
		}
	}
	return all
}

// needsOf lists what a rollout needs of a person: a message and a command each.
func needsOf(r *view.Rollout) (all [][2]string) {
	arg := source.Arg(r.Kind, r.Namespace, r.Name)
	add := func(message, command string) { all = append(all, [2]string{message, command}) }
	var failed []string
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == v1alpha1.UnitFailed && n.RetryAt == nil && !n.ContinuesFailed() {
			failed = append(failed, n.Node)
		}
	}
	c, w := r.Canary, r.Wave
	switch {
	case c != nil && c.State == view.CanaryFailed:
		add("canary "+c.Revision+" failed"+colon(string(c.Reason))+colon(c.Message), "kubectl eds canary reset "+r.Name+" -n "+r.Namespace)
	case r.Halted != "":
		add("halted: "+r.Halted, text.When(r.Kind != source.DaemonSet.Name, "kubectl moult retry %s", arg))
	case r.State == view.Stalled:
		add("stalled"+colon(r.Message), "")
	case len(failed) > 0:
		add(text.Count(len(failed), "node")+" failed: "+text.Some(few, failed, ", "), "kubectl moult why "+failed[0])
	}
	if c != nil && c.State == view.CanaryPaused {
		add("canary "+c.Revision+" paused"+colon(string(c.Reason))+colon(c.Message), "kubectl eds canary unpause "+r.Name+" -n "+r.Namespace)
	}
	if w != nil && w.State == v1alpha1.WaveWaitingForApproval && r.State != view.Complete {
		add("wave "+w.Name+" waits for approval", "kubectl moult approve "+arg)
	}
	return all
}

// needsPerson reports whether a budget is invalid, or used up by nodes that are unavailable for another reason than a turn.
func needsPerson(b *view.Budget) bool {
	return b.State == view.BudgetInvalid || b.State == view.BudgetExhausted && slices.ContainsFunc(b.Holders, func(h v1alpha1.BudgetHolder) bool {
		return !slices.Contains([]v1alpha1.UnavailableCause{v1alpha1.CauseClaimed, v1alpha1.CauseMinReadySeconds, v1alpha1.CauseDaemonPod}, h.Cause)
	})
}

// drawNeeds writes what needs a person, with the command that helps.
func drawNeeds(s *shown) text.Lines {
	var l text.Lines
	for i, n := range needs(s) {
		if i == 0 {
			l.Add(text.Bold.Of("Needs a person"))
		}
		name := text.JoinNonEmpty("/", n.Namespace, n.Name)
		l.Add(text.Red.Of("  ! "), text.Plain.Of(n.Kind+" "), text.Bold.Of(name), text.Plain.Of(": "+n.Message), text.Dim.When(n.Command != "", "  (%s)", n.Command))
	}
	return l
}
