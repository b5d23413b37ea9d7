// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// cell is the state of a node in the fleet, as a letter: the most urgent of its units.
type cell byte

// The cells, the most urgent first.
const (
	cellFailed   cell = 'F'
	cellUpdating cell = 'U'
	cellSoaking  cell = 'S'
	cellWaiting  cell = 'W'
	cellNext     cell = 'N'
	cellUpdated  cell = 'D'
	cellNone     cell = '-' // no rollout selects it
)

const cells = "FUSWND-"

var cellWords = map[cell]string{
	cellFailed: "failed", cellUpdating: "updating", cellSoaking: "soaking", cellWaiting: "waiting", cellNext: "next",
	cellUpdated: "updated", cellNone: "in no rollout",
}

var stateCells = map[v1alpha1.UnitState]cell{
	v1alpha1.UnitFailed: cellFailed, v1alpha1.UnitUpdating: cellUpdating, v1alpha1.UnitSoaking: cellSoaking, v1alpha1.UnitUpdated: cellUpdated,
}

func cellOf(n *view.Node) cell {
	if n.State == v1alpha1.UnitOutdated && n.Reason == "" {
		return cellNext
	}
	return cmp.Or(stateCells[n.State], cellWaiting)
}

// letters is one letter for each node.
type letters []byte

// MarshalText makes it a string in JSON.
func (l letters) MarshalText() ([]byte, error) { return l, nil }

// group is the nodes with one value of a label.
type group struct {
	Name   string   `json:"name"`
	Nodes  []string `json:"nodes"`
	States letters  `json:"states"` // cells
	Marks  letters  `json:"marks"`  // 'x': not ready; 'c': cordoned; else '.'
	Texts  []int    `json:"texts"`  // each an index of the fleet's texts
}

// fleet is all nodes in a compact form, with each distinct text once.
type fleet struct {
	Groups []*group `json:"groups"`
	Texts  []string `json:"texts"`
}

// Labels by which nodes are grouped: a zone, and the pools of the clouds and of others.
var groupLabels = []string{
	corev1.LabelTopologyZone, "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool",
	"karpenter.sh/nodepool", "node.kubernetes.io/instance-type",
}

// fleet groups the nodes by the value of a label.
func (s *State) fleet(label string) fleet {
	type unit struct {
		cell cell
		text string
	}
	units := make(map[string]unit, len(s.Nodes))
	for _, r := range s.Rollouts {
		for j := range r.Nodes {
			n := &r.Nodes[j]
			c := cellOf(n)
			if known, ok := units[n.Node]; ok && strings.IndexByte(cells, byte(known.cell)) <= strings.IndexByte(cells, byte(c)) {
				continue
			}
			units[n.Node] = unit{c, r.Kind + " " + r.FullName() + ": " + text.JoinNonEmpty(", ", cellWords[c], string(n.Phase), string(n.Reason))}
		}
	}
	all := fleet{Groups: []*group{}, Texts: []string{}}
	groups, texts := map[string]*group{}, map[string]int{}
	for _, of := range s.Nodes {
		n := cmp.Or(units[of.Name], unit{cellNone, cellWords[cellNone]})
		i, known := texts[n.text]
		if !known {
			i = len(all.Texts)
			texts[n.text], all.Texts = i, append(all.Texts, n.text)
		}
		value := cmp.Or(of.Labels[label], "(none)")
		if groups[value] == nil {
			groups[value] = &group{Name: value}
		}
		in := groups[value]
		in.Nodes, in.Texts = append(in.Nodes, of.Name), append(in.Texts, i)
		in.States, in.Marks = append(in.States, byte(n.cell)), append(in.Marks, markOf(of))
	}
	all.Groups = slices.AppendSeq(all.Groups, maps.Values(groups))
	slices.SortFunc(all.Groups, func(a, b *group) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func markOf(n *corev1.Node) byte {
	switch {
	case !view.IsNodeReady(n):
		return 'x'
	case n.Spec.Unschedulable:
		return 'c'
	}
	return '.'
}

func fleetJSON(r *http.Request, at *State, out io.Writer) error {
	return json.NewEncoder(out).Encode(at.fleet(groupBy(r)))
}

// groupBy returns the label by which a request groups nodes.
func groupBy(r *http.Request) string { return cmp.Or(r.URL.Query().Get("by"), groupLabels[0]) }

func (s *Server) fleetPage(r *http.Request, at *State) (string, g.Group, error) {
	const title = "Fleet"
	by := groupBy(r)
	var rows []g.Group
	for _, r := range at.Rollouts {
		rows = append(rows, g.Group{
			rolloutLink(&r),
			g.Group{state(string(r.State)), words(text.When(r.Paused, " (paused)"), " ", text.Since(r.Since, at.At))},
			words(r.Version),
			words(text.JoinNonEmpty(", ", fmt.Sprintf("%d of %d updated", r.Counts.Updated, r.Counts.Total),
				text.When(r.Counts.Updating > 0, "%d updating", r.Counts.Updating), text.When(r.Counts.Failed > 0, "%d failed", r.Counts.Failed))),
			words(r.Message),
		})
	}
	act := list("act", g.Map(view.Needs(at.Rollouts, at.Budgets), need))
	budgets := list("gauges", g.Map(at.Budgets, func(b view.Budget) g.Node { return gauge(&b) }))
	rollouts := table("Rollouts", []string{"Rollout", "State", "Version", "Nodes", "Message"}, rows)
	all := section("rollouts", "Rollouts", cmp.Or(rollouts, line("", "There are none.")))
	if at.restricted {
		return title, append(heading(title, at), section("act", "Needs a person", act), all), nil
	}
	return title, append(heading(title, at),
		section("act", "Needs a person", cmp.Or(act, line("", "Nothing."))),
		all,
		section("budgets", "Budgets", cmp.Or(budgets, line("", "There are none."))),
		section("nodes", "Nodes",
			h.Form(h.Class("by"), h.Action("/"),
				h.Label(g.Text("Group by label "), h.Input(h.Name("by"), h.List("labels"), h.Value(by), g.Attr("spellcheck", "false"))), g.Text(" "), button("Group"),
				h.DataList(h.ID("labels"), g.Map(groupLabels, func(l string) g.Node { return h.Option(h.Value(l)) }))),
			legend(),
			h.Div(h.ID("fleet"), h.Data("by", by)),
			h.P(h.ID("tip"), h.Role("status")),
			countTable(by, at.fleet(by).Groups),
		),
	), nil
}

// legend explains the cells, which the browser draws.
func legend() g.Node {
	key := func(kind, letter, name string) g.Node {
		return g.Group{
			h.Canvas(h.Class("key"), h.Data(kind, letter), h.Width("14"), h.Height("14"), h.Aria("hidden", "true")), g.Text(" " + name),
		}
	}
	var all []g.Node
	for _, c := range []cell(cells) {
		all = append(all, key("cell", string(c), cellWords[c]))
	}
	return list("legend", append(all, key("mark", "c", "cordoned"), key("mark", "x", "not ready")))
}

// countTable counts the nodes of each group by their state.
func countTable(by string, groups []*group) g.Node {
	columns := []string{"Group", "Nodes"}
	for _, c := range []cell(cells) {
		columns = append(columns, cellWords[c])
	}
	var rows []g.Group
	for _, of := range groups {
		row := g.Group{words(of.Name), g.Text(strconv.Itoa(len(of.Nodes)))}
		for _, c := range []byte(cells) {
			row = append(row, g.Text(strconv.Itoa(bytes.Count(of.States, []byte{c}))))
		}
		rows = append(rows, row)
	}
	return table("Nodes by "+by, columns, rows)
}

// gauge shows how much of a budget is used up, and by what.
func gauge(b *view.Budget) g.Node {
	var meter g.Node
	if b.Limit != nil {
		limit := max(*b.Limit, 1)
		meter = g.El("meter", g.Attr("min", "0"), g.Attr("max", strconv.Itoa(limit)), g.Attr("low", strconv.Itoa(limit-1)), g.Attr("optimum", "0"),
			h.Value(strconv.Itoa(min(b.Unavailable, limit))), h.Aria("label", "Used up of budget "+b.Name))
	}
	holders := folded("budget-"+b.Name, "Used up by", list("", g.Map(b.Holders, func(by v1alpha1.BudgetHolder) g.Node {
		return g.Group{nodeLink(by.Node), words(" ", by.Message)}
	})))
	return g.Group{h.Strong(words(b.Name)), g.Text(" "), state(string(b.State)), g.Text(" "), meter, words(" ", b.Line()), line("dim", blockedBy(b)), holders}
}

// mostNodes is how many failed nodes of a rollout are named.
const mostNodes = 20

// need shows what needs a person.
func need(n view.Need) g.Node {
	name := n.Kind + " " + n.FullName()
	about := words(name)
	if n.Cause != view.NeedBudget {
		about = link(rolloutPath(n.Kind, n.Namespace, n.Name), name)
	}
	message := text.JoinNonEmpty("; ", n.Message, text.When(len(n.Nodes) > 0, "failed: %s", text.Count(len(n.Nodes), "node")))
	named := n.Nodes[:min(len(n.Nodes), mostNodes)]
	return g.Group{about, words(": ", message), list("nodes", g.Map(named, nodeLink))}
}

func blockedBy(b *view.Budget) string {
	var all []string
	for _, block := range b.BlockedBy {
		all = append(all, string(block.Gate)+": "+block.Message)
	}
	return strings.Join(all, "; ")
}
