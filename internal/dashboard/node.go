// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"strings"

	g "maragu.dev/gomponents"

	"moult.dev/moult/internal/cli/text"
)

func (s *Server) nodePage(r *http.Request, at *State) (string, g.Group, error) {
	name := r.PathValue("node")
	if at.restricted {
		return "", nil, errMissing
	}
	why, known := s.read.Why(name)
	if !known {
		return "", nil, errMissing
	}
	var rows []g.Group
	for _, r := range at.Rollouts {
		for _, n := range r.Nodes {
			if n.Node == name {
				rows = append(rows, g.Group{
					rolloutLink(&r), words(string(n.State)), words(string(n.Phase)), words(text.Since(n.Since, at.At)),
					words(text.JoinNonEmpty(": ", string(n.Reason), n.Message)),
				})
			}
		}
	}
	title := "Node " + name
	return title, append(heading(title, at),
		section("parts", "Rollouts", cmp.Or(table("Rollouts", []string{"Rollout", "State", "Step", "For", "Reason"}, rows), line("", "No rollout selects it."))),
		section("why", "Why", styled("Why", why)),
		toCopy("kubectl moult why "+name),
	), nil
}

// findNode goes to the page of the node that a person looks for.
func (s *Server) findNode(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSpace(r.URL.Query().Get("name"))
	if name == "" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, nodePath(name), http.StatusSeeOther) //nolint:gosec // The path begins with /nodes/, and the name is escaped.
}
