// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"
	"slices"

	"moult.dev/moult/internal/view"
)

// May reports whether a viewer may list the objects of a kind in a namespace. An empty namespace means all, or a kind without namespaces.
type May func(kind, namespace string) bool

type viewerKey struct{}

// viewer is who sends a request.
type viewer struct {
	may      May
	loggedIn bool
}

// ForViewer returns the request of a viewer with these rights. A request without rights is that of the user who runs the server. The pages of a
// viewer who is logged in have a button for POST /logout.
func ForViewer(r *http.Request, may May, loggedIn bool) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), viewerKey{}, viewer{may, loggedIn}))
}

func viewerOf(r *http.Request) viewer {
	v, _ := r.Context().Value(viewerKey{}).(viewer)
	return v
}

// seen returns the current state as the sender of a request may see it: whole, or the rollouts of some namespaces. The second has no messages,
// budgets and nodes, because these name rollouts of other namespaces, and only who may list Nodes may know them.
func (s *Server) seen(r *http.Request) *State {
	state, _ := s.current()
	may := viewerOf(r).may
	if state == nil || may == nil {
		return state
	}
	mayNot := func(kind string) bool { return !may(kind, "") }
	if !slices.ContainsFunc([]string{"Plan", "ExtendedDaemonSet", "NodeRollout", "NodeDisruptionBudget", "Node"}, mayNot) {
		return state
	}
	part := &State{At: state.At, Stale: state.Stale, restricted: true, version: state.version}
	part.Notes = append(part.Notes, "Only rollouts that you may list are shown, without messages and nodes: you may not list all rollouts, budgets and nodes.")
	for _, rollout := range state.Rollouts {
		if may(rollout.Kind, rollout.Namespace) {
			part.Rollouts = append(part.Rollouts, withoutMessages(rollout))
		}
	}
	return part
}

func withoutMessages(r view.Rollout) view.Rollout {
	r.Message, r.PolicyMissing, r.Budgets, r.ScaleSets, r.Nodes = "", "", nil, nil, nil
	if r.Halted != "" {
		r.Halted = "too many nodes have failed"
	}
	if r.Wave != nil {
		r.Wave = r.Wave.DeepCopy()
		r.Wave.Message = ""
	}
	if r.Canary != nil {
		r.Canary = &view.Canary{State: r.Canary.State, Revision: r.Canary.Revision, Reason: r.Canary.Reason}
	}
	return r
}
