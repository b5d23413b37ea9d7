// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"k8s.io/client-go/tools/cache"

	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// need is something that only a person can change.
type need struct {
	view.Need
	// Command is what helps; empty if no single command does.
	Command string `json:"command,omitempty"`
}

// needs lists what needs a person, with the command that helps.
func needs(s *shown) []need {
	all := []need{}
	for _, n := range view.Needs(s.rollouts, s.budgets) {
		arg, command := source.Arg(n.Kind, n.Namespace, n.Name), ""
		switch n.Cause {
		case view.NeedCanaryPaused:
			command = "kubectl eds canary unpause " + n.Name + " -n " + n.Namespace
		case view.NeedCanaryFailed:
			command = "kubectl eds canary reset " + n.Name + " -n " + n.Namespace
		case view.NeedHalted:
			command = text.When(n.Kind != source.DaemonSet.Name, "kubectl moult retry %s", arg)
		case view.NeedFailed:
			n.Message, command = text.Count(len(n.Nodes), "node")+" failed: "+text.Some(few, n.Nodes, ", "), "kubectl moult why "+n.Nodes[0]
		case view.NeedPolicy:
			command = "kubectl moult check"
		case view.NeedApproval:
			command = "kubectl moult approve " + arg
		case view.NeedBudget:
			command = "kubectl describe ndb " + n.Name
		}
		all = append(all, need{n, command})
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
