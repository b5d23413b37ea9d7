// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// bar shows how many nodes have which state, in thousandths of its width.
func bar(c v1alpha1.UnitCounts) g.Node {
	rect := func(class string, from, to int) g.Node {
		return g.El("rect", h.Class(class), g.Attr("x", strconv.Itoa(from)), h.Width(strconv.Itoa(to-from)), h.Height("12"))
	}
	all := g.Group{h.Class("bar"), g.Attr("viewBox", "0 0 1000 12"), g.Attr("preserveAspectRatio", "none"), h.Aria("hidden", "true"), rect("empty", 0, 1000)}
	from, done := 0, 0
	for _, part := range []struct {
		class string
		count int32
	}{{"updated", c.Updated}, {"updating", c.Updating}, {"failed", c.Failed}} {
		done += int(part.count)
		to := done * 1000 / max(1, int(c.Total))
		all = append(all, rect(part.class, from, to))
		from = to
	}
	return g.El("svg", all...)
}

func (s *Server) rolloutPage(request *http.Request, at *State) (string, g.Group, error) {
	kind, namespace, name := rolloutOf(request)
	i := slices.IndexFunc(at.Rollouts, func(r view.Rollout) bool { return r.Kind == kind && r.Namespace == namespace && r.Name == name })
	if i < 0 {
		return "", nil, errMissing
	}
	r := &at.Rollouts[i]
	title := r.Kind + " " + r.FullName()
	var failures []g.Node
	var turns []g.Group
	var updated []view.Node
	for _, n := range r.Nodes {
		switch n.State {
		case v1alpha1.UnitFailed:
			failures = append(failures, s.failure(r, &n, at.At))
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			turns = append(turns, g.Group{
				nodeLink(n.Node), words(cmp.Or(string(n.Phase), string(n.State))), words(text.Since(n.Since, at.At)), words(text.Since(n.Started, at.At)), words(n.Message),
			})
		case v1alpha1.UnitUpdated:
			updated = append(updated, n)
		}
	}
	var next, nextUnknown g.Node
	if r.State != view.Complete && !at.restricted {
		preview, err := s.read.Preview(request.Context(), kind, namespace, name)
		if err != nil {
			nextUnknown = line("note", "It is not known: ", err.Error())
		}
		next = styled("What comes next", preview)
	}
	var runs []g.Group
	for _, row := range view.HistoryRows(r.History) {
		runs = append(runs, g.Map(row, func(cell string) g.Node { return words(cell) }))
	}
	page := append(heading(title, at), summary(r, at.At)...)
	return title, append(page,
		section("failed", "Failed", list("failures", failures)),
		section("flight", "In a turn", table("In a turn", []string{"Node", "Step", "For", "Turn began", "Message"}, turns)),
		section("waiting", "Waiting", g.Map(view.WaitsOf(r.Nodes), func(w view.Waits) g.Node {
			return g.Group{
				h.H3(words(string(w.Reason), " "), h.Span(h.Class("dim"), g.Text(strconv.Itoa(len(w.Nodes))))), line("", w.Message),
				folded("wait-"+string(w.Reason), "Nodes", nodeLinks(w.Nodes)),
			}
		})...),
		section("updated", "Updated", folded("updated-nodes", text.Count(len(updated), "node"), nodeLinks(updated))),
		section("preview", "What comes next", next, nextUnknown),
		section("history", "History", table("History", view.HistoryColumns, runs)),
		toCopy(commands(r)...),
	), nil
}

// summary is what the rollout's page says of the rollout itself.
func summary(r *view.Rollout, now time.Time) g.Group {
	c := &r.Counts
	all := g.Group{
		h.P(state(string(r.State)), words(text.For(r.Since, now), text.When(r.Version != "", ", version "), r.Version,
			text.When(r.RolledBack != "", ", rolled back from %s", r.RolledBack))),
		line("", r.Message),
		line("warn", text.When(r.Paused, "It is paused"), text.When(r.PausedBy != "", " by annotation %s", r.PausedBy), text.When(r.Paused, ": nothing new starts.")),
		line("bad", text.When(r.Halted != "", "Halted: %s", r.Halted)),
		bar(*c),
		line("", fmt.Sprintf("%d of %d updated, %d updating, %d waiting, %d failed", c.Updated, c.Total, c.Updating, c.Waiting, c.Failed),
			text.When(r.OptedOut > 0, "; %d opted out", r.OptedOut), text.When(r.Unlabelled > 0, "; %d without an interface label", r.Unlabelled), ".",
			text.When(r.TurnSeconds > 0, " A turn takes about %d seconds.", r.TurnSeconds)),
	}
	if w := r.Wave; w != nil {
		all = append(all, line("", fmt.Sprintf("Wave %d of %d, %s: %s, %d of %d updated", w.Number, w.Of, w.Name, w.State, w.Updated, w.Nodes),
			text.When(w.Message != "", "; %s", w.Message)))
	}
	if c := r.Canary; c != nil {
		all = append(all, line("", text.JoinNonEmpty(": ", "Canary "+c.Revision, string(c.State), string(c.Reason), c.Message)))
	}
	return append(all, line("", text.When(len(r.Budgets) > 0, "Budgets: %s", strings.Join(r.Budgets, ", "))))
}

// failure is a node that has failed.
func (s *Server) failure(r *view.Rollout, n *view.Node, now time.Time) g.Node {
	all := g.Group{
		nodeLink(n.Node), words(" ", string(n.Reason), text.When(n.Since != nil, " %s ago", text.Since(n.Since, now)), ": ", n.Message),
		words(text.When(n.Skipped, " The rollout goes on without it.")),
	}
	if n.RetryAt != nil {
		all = append(all, words(" It is retried at ", n.RetryAt.UTC().Format(time.RFC3339), "."))
	}
	if s.read.Logs != nil {
		path := "/logs" + strings.TrimPrefix(rolloutPath(r.Kind, r.Namespace, r.Name), "/rollouts") + "/" + url.PathEscape(n.Node)
		all = append(all, folded("log-"+n.Node, "Last log lines",
			h.Pre(h.Class("lines"), h.TabIndex("0"), h.Role("region"), h.Aria("label", "Last log lines of "+n.Node), h.Data("log", path))))
	}
	return all
}

// arguments are the words before a rollout's name on a command line.
var arguments = map[string]string{"Plan": "plan/", "ExtendedDaemonSet": "eds/", "NodeRollout": "nr/"}

// commands are those that make sense for the rollout now.
func commands(r *view.Rollout) []string {
	arg := arguments[r.Kind] + r.Name + text.When(r.Namespace != "", " -n %s", r.Namespace)
	verbs := []string{"status"}
	switch {
	case r.PausedBy != "": // kubectl eds resumes it.
	case r.Paused:
		verbs = append(verbs, "resume")
	case r.State != view.Complete:
		verbs = append(verbs, "pause")
	}
	if w := r.Wave; w != nil && w.State == v1alpha1.WaveWaitingForApproval {
		verbs = append(verbs, "approve")
	}
	if r.Counts.Failed > 0 && r.Kind != "ExtendedDaemonSet" {
		verbs = append(verbs, "retry")
	}
	var all []string
	for _, verb := range verbs {
		all = append(all, "kubectl moult "+verb+" "+arg)
	}
	return all
}

// logs sends the last lines of what failed on a node.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	kind, namespace, name := rolloutOf(r)
	if s.read.Logs == nil {
		serveError(w, errMissing)
		return
	}
	lines, err := s.read.Logs(r.Context(), kind, namespace, name, r.PathValue("node"))
	if err != nil {
		serveError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(lines)) // The browser may be gone.
}

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
