// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
)

// script is a world in which what happens is written down, and a page of docs/walkthroughs says how it goes.
type script struct {
	*world
	next map[*party]time.Time
}

// acts lets a rollout act on what is true now.
func (s script) acts(p *party) { s.later(p, len(s.history)-1) }

// later lets a rollout act on the present, though it has seen only what was before.
func (s script) later(p *party, view int) {
	s.next[p] = s.act(p, view, math.MaxInt).Next
	s.check()
}

// killed lets a rollout act until it has written so often.
func (s script) killed(p *party, writes int) {
	s.act(p, len(s.history)-1, writes)
	s.say(nil, "%s is killed there, and started again.", p.name)
	s.check()
}

// wakes lets time pass until a rollout has asked to be woken, and lets it act.
func (s script) wakes(p *party) {
	if s.next[p].IsZero() {
		s.fail("%s does not ask to be woken", p.name)
	}
	s.now = s.next[p]
	s.acts(p)
}

// succeeds lets changes succeed, and the rollout see it.
func (s script) succeeds(p *party, names ...string) {
	for _, name := range names {
		s.ends(p, name, succeeded)
	}
	s.say(nil, "The change of %s succeeds on %s.", p.name, enumerate(names))
	s.acts(p)
}

// serves lets the pods of a rollout that works beside be available, and the rollout see it.
func (s script) serves(p *party, names ...string) {
	for _, name := range names {
		s.serve(p, name, true)
	}
	s.say(nil, "What %s runs on %s is available.", p.name, enumerate(names))
	s.acts(p)
}

func (s script) fails(p *party, name string) {
	s.ends(p, name, broken)
	s.say(nil, "The change of %s fails on %s.", p.name, name)
	s.acts(p)
}

// rest lets everything that is under way succeed, and what follows from it, until nothing is under way.
func (s script) rest(p *party, each time.Duration) {
	for {
		var names []string
		for name, run := range p.changes {
			if run.outcome == running {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return
		}
		slices.Sort(names)
		s.passes(each)
		s.succeeds(p, names...)
	}
}

func (s script) passes(d time.Duration) { s.now = s.now.Add(d) }

// person and event say what a person, or something, does.
func (s script) event(format string, args ...any) { s.say(nil, format, args...) }

// wants introduces a rollout.
func (s script) wants(p *party, what string) *party {
	s.add(p)
	s.say(nil, "%s wants %s on every node: %s.", p.name, p.wants(), what)
	return p
}

// walkthrough is one page.
type walkthrough struct {
	file, title, intro string
	// shows is a strategy or budget that the page shows, by a title.
	shows []shown
	nodes []string
	zone  string
	// start is when it begins; zero is noon.
	start time.Time
	play  func(s script)
}

type shown struct {
	title, text string
}

func strategyOf(t testing.TB, text string) *v1alpha1.Strategy {
	spec := &v1alpha1.Strategy{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func budgetOf(t testing.TB, text string) v1alpha1.NodeDisruptionBudgetSpec {
	var spec v1alpha1.NodeDisruptionBudgetSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestWalkthroughs compares what rollouts do with what the documents say; go test -update writes them anew.
func TestWalkthroughs(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "walkthroughs")
	var index strings.Builder
	fmt.Fprintf(&index, "# Walkthroughs\n\nEach page shows one rollout, step by step: what people do, what Moult decides, and with which reason the other nodes wait.\n"+
		"The engine's tests write these pages and compare them: this is what Moult does.\n\n"+
		"A line such as `os says that node-1 waits` is in the rollout's status, in Events and in `kubectl moult why`.\n"+
		"The word at its end is the [reason](../reference/reasons.md).\n\n| page | what it shows |\n|---|---|\n")
	for _, page := range walkthroughs(t) {
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", page.title, page.file, strings.ReplaceAll(page.intro, "\n", " "))
		t.Run(page.file, func(t *testing.T) { page.compare(t, folder) })
	}
	golden(t, filepath.Join(folder, "README.md"), index.String())
}

func (page *walkthrough) compare(t *testing.T, folder string) {
	w := newWorld(&whole)
	if !page.start.IsZero() {
		w.now = page.start
	}
	for _, node := range page.nodes {
		name, zone, _ := strings.Cut(node, "/")
		labels := map[string]string{}
		if zone != "" {
			labels["topology.kubernetes.io/zone"] = zone
		}
		w.join(name, labels)
	}
	for name := range w.present() {
		w.edit(name, func(m *machine) { m.evictions = 1 })
	}
	if page.zone != "" {
		var err error
		if w.zone, err = time.LoadLocation(page.zone); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if v, ok := recover().(violation); ok {
			t.Fatalf("%s\n%s", v.text, w.story.String())
		}
	}()
	page.play(script{w, map[*party]time.Time{}})
	golden(t, filepath.Join(folder, page.file+".md"), page.markdown(w))
}

var (
	reasonAtEnd = regexp.MustCompile(` \(([A-Z]\w+)\)\.$`)
)

// markdown is the page: what happens at each moment is a list.
func (page *walkthrough) markdown(w *world) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n%s\n", page.title, page.intro)
	for _, shown := range page.shows {
		fmt.Fprintf(&text, "\n%s:\n\n```yaml\n%s\n```\n", shown.title, strings.TrimSpace(shown.text))
	}
	const clock = len("Mon Jan 02 15:04")
	for line := range strings.Lines(w.story.String()) {
		line = strings.TrimSuffix(line, "\n")
		if at := strings.TrimSpace(line[:clock]); at != "" {
			fmt.Fprintf(&text, "\n**%s**\n\n", strings.Join(strings.Fields(at), " "))
		}
		what := reasonAtEnd.ReplaceAllString(line[clock+2:], ". `$1`")
		for _, p := range w.parties {
			if rest, ok := strings.CutPrefix(what, p.name+" "); ok {
				what = "`" + p.name + "` " + rest
				break
			}
		}
		fmt.Fprintf(&text, "- %s\n", what)
	}
	return text.String()
}

// golden compares with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it anew:\n%s", path, diff)
	}
}
