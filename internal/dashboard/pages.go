// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"embed"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

//go:embed assets
var assets embed.FS

// styles are the classes of styled text.
var styles = map[text.Style]string{text.Bold: "bold", text.Dim: "dim", text.Red: "red", text.Green: "green", text.Yellow: "yellow"}

// cluster stands for the namespace of rollouts that have none.
const cluster = "-"

func rolloutPath(kind, namespace, name string) string {
	return "/rollouts/" + url.PathEscape(kind) + "/" + url.PathEscape(cmp.Or(namespace, cluster)) + "/" + url.PathEscape(name)
}

func nodePath(name string) string { return "/nodes/" + url.PathEscape(name) }

// rolloutOf returns the rollout that a path names.
func rolloutOf(r *http.Request) (kind, namespace, name string) {
	if namespace = r.PathValue("namespace"); namespace == cluster {
		namespace = ""
	}
	return r.PathValue("kind"), namespace, r.PathValue("name")
}

// page returns a handler of one kind of page. With ?part it sends only the main part, which replaces the one that the browser shows.
func (s *Server) page(content func(*http.Request, *State) (title string, main g.Group, err error)) http.HandlerFunc {
	return s.answer("text/html; charset=utf-8", func(r *http.Request, at *State, out io.Writer) error {
		title, main, err := content(r, at)
		switch {
		case err != nil:
			return err
		case r.URL.Query().Has("part"):
			return main.Render(out)
		}
		return document(title, at, main, viewerOf(r).loggedIn).Render(out)
	})
}

// document is a whole page.
func document(title string, state *State, main g.Group, loggedIn bool) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.TitleEl(g.Text(title+" · Moult")),
			h.Link(h.Rel("stylesheet"), h.Href("/assets/dashboard.css")),
			h.Link(h.Rel("icon"), h.Href("/assets/icon.svg")),
			h.NoScript(h.Meta(g.Attr("http-equiv", "refresh"), h.Content("10"))),
			h.Script(h.Src("/assets/dashboard.js"), h.Defer()),
		),
		h.Body(
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to the content")),
			h.Header(
				h.A(h.Class("brand"), h.Href("/"), g.Text("Moult")),
				h.Nav(h.Aria("label", "Pages"), h.A(h.Href("/"), g.Text("Fleet"))),
				h.Form(h.Action("/nodes"), h.Role("search"),
					h.Label(g.Text("Node "), h.Input(h.Name("name"), h.AutoComplete("off"), g.Attr("spellcheck", "false"))), g.Text(" "), button("Find")),
				h.P(h.ID("stale"), h.Role("status")),
				g.If(loggedIn, h.Form(h.Action("/logout"), h.Method("post"), button("Log out"))),
			),
			h.Main(h.ID("main"), h.TabIndex("-1"), h.Aria("label", title), h.Data("version", strconv.Itoa(state.version)), main),
		),
	))
}

func button(name string) g.Node { return h.Button(g.Text(name)) }

// words is text of others: control characters in it become blanks.
func words(all ...string) g.Node { return g.Text(text.Clean(strings.Join(all, ""))) }

// line is a paragraph; nothing without text.
func line(class string, parts ...string) g.Node {
	if strings.Join(parts, "") == "" {
		return nil
	}
	return h.P(h.Class(class), words(parts...))
}

// heading begins a page.
func heading(title string, state *State) g.Group {
	all := g.Group{h.H1(words(title)), line("at", "State of "+state.At.UTC().Format("2006-01-02 15:04:05 MST")), line("bad", state.Stale)}
	for _, note := range state.Notes {
		all = append(all, line("note", note))
	}
	return all
}

// section is a part with a heading. Without content it is left out.
func section(id, title string, content ...g.Node) g.Node {
	if !slices.ContainsFunc(content, func(n g.Node) bool { return n != nil }) {
		return nil
	}
	return h.Section(h.Aria("labelledby", id), h.H2(h.ID(id), g.Text(title)), g.Group(content))
}

// table may be wider than a phone. The first cell of each row is its heading.
func table(label string, columns []string, rows []g.Group) g.Node {
	if len(rows) == 0 {
		return nil
	}
	return h.Div(h.Class("wide"), h.TabIndex("0"), h.Role("region"), h.Aria("label", label), h.Table(
		h.THead(h.Tr(g.Map(columns, func(name string) g.Node { return h.Th(h.Scope("col"), g.Text(name)) }))),
		h.TBody(g.Map(rows, func(row g.Group) g.Node {
			return h.Tr(h.Th(h.Scope("row"), row[0]), g.Map(row[1:], func(cell g.Node) g.Node { return h.Td(cell) }))
		})),
	))
}

// folded is content that a person may open; nothing without content.
func folded(id, title string, content g.Node) g.Node {
	if content == nil {
		return nil
	}
	return h.Details(h.ID(id), h.Summary(g.Text(title)), content)
}

func list(class string, items []g.Node) g.Node {
	if len(items) == 0 {
		return nil
	}
	return h.Ul(h.Class(class), g.Map(items, func(item g.Node) g.Node { return h.Li(item) }))
}

func state(of string) g.Node { return h.Span(h.Class("state "+of), g.Text(of)) }

func link(to, name string) g.Node { return h.A(h.Href(to), words(name)) }

func nodeLink(name string) g.Node { return link(nodePath(name), name) }

func rolloutLink(r *view.Rollout) g.Node {
	return link(rolloutPath(r.Kind, r.Namespace, r.Name), r.Kind+" "+r.FullName())
}

func nodeLinks(nodes []view.Node) g.Node {
	return list("nodes", g.Map(nodes, func(n view.Node) g.Node { return nodeLink(n.Node) }))
}

// styled is the output of a command.
func styled(label string, lines text.Lines) g.Node {
	if len(lines) == 0 {
		return nil
	}
	return h.Pre(h.Class("lines"), h.TabIndex("0"), h.Role("region"), h.Aria("label", label), g.Map(lines, func(l text.Line) g.Node {
		return g.Group{g.Map(l, func(p text.Piece) g.Node { return h.Span(h.Class(styles[p.Style]), words(p.Text)) }), g.Text("\n")}
	}))
}

// toCopy lists commands.
func toCopy(commands ...string) g.Node {
	return section("commands", "Commands", list("commands", g.Map(commands, func(c string) g.Node {
		return g.Group{h.Code(words(c)), g.Text(" "), h.Button(h.Type("button"), h.Class("copy"), g.Text("Copy"))}
	})))
}
