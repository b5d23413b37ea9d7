// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// peerPages are the systems that Moult takes over. testdata/peers has for each a file with its names, one a line, and a page with tables of
// every name, from which the reference pages on compatibility are made. The names of fields are in testdata of config/crd. The tables of a
// kind's fields are below a heading with its name.
var peerPages = []struct {
	peer string
	// kinds are the kinds of the peer that Moult has, and the files with their fields.
	kinds map[string]string
}{
	{"system-upgrade-controller", map[string]string{"Plan": "plans"}},
	{"bottlerocket-update-operator", nil},
	{"brupop", nil},
	{"dogswatch", nil},
	{"ducklett", nil},
	{"extendeddaemonset", map[string]string{
		"ExtendedDaemonSet": "extendeddaemonsets", "ExtendedDaemonSetReplicaSet": "extendeddaemonsetreplicasets", "ExtendedDaemonsetSetting": "extendeddaemonsetsettings",
	}},
}

// TestPeerTables checks that each name of a peer is in a table of its page in testdata/peers, whose columns are the name, what Moult does with it, and the test
// that proves it. What Moult does not do has a reason in place of the test.
func TestPeerTables(t *testing.T) {
	declared := testsOf(t)
	for _, peer := range peerPages {
		t.Run(peer.peer, func(t *testing.T) {
			page := "test/layout/testdata/peers/" + peer.peer + ".md"
			rows := provenRows(read(t, page))
			all, below := map[string]bool{}, map[string]map[string]bool{}
			for _, r := range rows {
				if below[r.heading] == nil {
					below[r.heading] = map[string]bool{}
				}
				for _, name := range code.FindAllStringSubmatch(r.cells[0], -1) {
					all[name[1]], below[r.heading][name[1]] = true, true
				}
				tests := mention.FindAllStringSubmatch(r.cells[len(r.cells)-1], -1)
				if reason := regexp.MustCompile(`not carried over: \S`); len(tests) == 0 && !slices.ContainsFunc(r.cells, reason.MatchString) {
					t.Errorf("%s:%d: %s has neither a test nor a reason: `TestX` in the last column, or `not carried over: …`", page, r.line, r.cells[0])
				}
				for _, m := range tests {
					if in := declared.find(m[1], m[3], m[4]); len(in) > 1 {
						t.Errorf("%s:%d: %s is in several folders, say in which: `%s` (`folder`): %v", page, r.line, m[0], m[1], in)
					}
				}
			}
			for name := range strings.Lines(read(t, "test/layout/testdata/peers/"+peer.peer+".txt")) {
				if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, "# ") && !covers(all, name) {
					t.Errorf("%s: %s is in no table that has a column `test`", page, name)
				}
			}
			for kind, fields := range peer.kinds {
				for _, field := range leaves(read(t, "config/crd/testdata/"+fields+".txt")) {
					if !covers(below[kind], field) {
						t.Errorf("%s: %s of %s is in no table that has a column `test`, below the heading %s", page, field, kind, kind)
					}
				}
			}
		})
	}
}

// TestNamedTestsExist checks that every test that a page names is there: `TestX`, `TestX/subtest`, and `TestX` (`folder/file_test.go`).
// TestX… stands for all tests whose names begin so, and so does the pattern of -run.
func TestNamedTestsExist(t *testing.T) {
	declared := testsOf(t)
	pages := pages(t)
	for _, pattern := range []string{"test/layout/testdata/peers/*.md", "examples/*.yaml", "examples/*/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			pages = append(pages, strings.TrimPrefix(filepath.ToSlash(f), filepath.ToSlash(root(t))+"/"))
		}
	}
	for _, page := range pages {
		for i, line := range strings.Split(read(t, page), "\n") {
			for _, m := range mention.FindAllStringSubmatch(line, -1) {
				name, begins, sub, place := m[1], m[2] != "" || strings.Contains(line, "-run"), m[3], m[4]
				if begins {
					if !slices.ContainsFunc(slices.Collect(maps.Keys(declared.files)), func(is string) bool { return strings.HasPrefix(is, name) }) {
						t.Errorf("%s:%d: there is no test whose name begins with %s", page, i+1, name)
					}
				} else if len(declared.find(name, sub, place)) == 0 {
					t.Errorf("%s:%d: there is no test %s: not of this name, or not of this subtest or place", page, i+1, m[0])
				}
			}
		}
	}
}

var (
	// mention is a test that a page names: its name, "…", a subtest, and where it is.
	mention = regexp.MustCompile("\\b(Test[A-Z]\\w*)(…?)(?:/([^`]+))?(?:` \\(`([^`]+)`\\))?")
	code    = regexp.MustCompile("`([^`]+)`")
)

// tests are those of the root module.
type tests struct {
	// files has the files of each test by its name.
	files map[string][]string
	// words has the string literals of each folder's tests. The names of subtests are among them.
	words map[string]map[string]bool
}

// find returns the folders of the tests of this name, which have this subtest and are in this place, if these are not empty.
func (d *tests) find(name, sub, place string) []string {
	in := map[string]bool{}
	for _, file := range d.files[name] {
		dir := path.Dir(file)
		if (sub == "" || d.words[dir][sub]) && (place == "" || strings.HasSuffix("/"+file, "/"+place) || strings.HasSuffix("/"+dir, "/"+place)) {
			in[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

func testsOf(t *testing.T) *tests {
	t.Helper()
	d := &tests{files: map[string][]string{}, words: map[string]map[string]bool{}}
	for _, f := range sources(t) {
		if !f.test() {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.abs, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parsing %s: %v", f.path, err)
			continue
		}
		if d.words[f.dir] == nil {
			d.words[f.dir] = map[string]bool{}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
					d.files[n.Name.Name] = append(d.files[n.Name.Name], f.path)
				}
			case *ast.BasicLit:
				if word, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					d.words[f.dir][word] = true
				}
			}
			return true
		})
	}
	return d
}

// row is a line of a table, below a heading.
type row struct {
	line    int
	heading string
	cells   []string
}

// provenRows returns the lines of a page's tables whose last column is called test.
func provenRows(text string) []row {
	var rows []row
	heading, inside, proven := "", false, false
	for i, line := range strings.Split(text, "\n") {
		if title := strings.TrimLeft(line, "#"); title != line {
			heading = strings.Trim(title, " `")
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "| "), `\|`, "¦"), "|")
		for c := range cells {
			cells[c] = strings.TrimSpace(cells[c])
		}
		switch {
		case !inside:
			inside, proven = true, cells[len(cells)-1] == "test"
		case proven && strings.Trim(cells[0], "-:") != "":
			rows = append(rows, row{i + 1, heading, cells})
		}
	}
	return rows
}

// covers reports whether the name, or "x.*" for all that is below x, is among the names.
func covers(names map[string]bool, name string) bool {
	if names[name] {
		return true
	}
	for i, c := range name {
		if c == '.' && names[name[:i]+".*"] {
			return true
		}
	}
	return false
}

// leaves returns the fields of spec and status that have no fields of their own. Lists and maps are left out of their paths.
func leaves(list string) []string {
	fields := map[string]bool{}
	for line := range strings.Lines(list) {
		field, _, _ := strings.Cut(strings.NewReplacer("[]", "", "{}", "").Replace(strings.TrimSpace(line)), " ")
		if strings.HasPrefix(field, "spec.") || strings.HasPrefix(field, "status.") {
			fields[field] = true
		}
	}
	for field := range maps.Clone(fields) {
		for i, c := range field {
			if c == '.' {
				delete(fields, field[:i])
			}
		}
	}
	return slices.Sorted(maps.Keys(fields))
}

// read returns a file of the root module.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTablesBite checks the checks: what is not proven, or not there, is found.
func TestTablesBite(t *testing.T) {
	text := "## Plan\n\n| Plan | Moult | test |\n|---|---|---|\n| `spec.a`, `spec.b.*` | x \\| y | `TestA` |\n\n| a | b |\n|---|---|\n| `spec.c` | |\n"
	rows := provenRows(text)
	if got := fmt.Sprint(rows); got != "[{5 Plan [`spec.a`, `spec.b.*` x ¦ y `TestA`]}]" {
		t.Errorf("rows are %s", got)
	}
	names := map[string]bool{"spec.a": true, "spec.b.*": true}
	for name, want := range map[string]bool{"spec.a": true, "spec.a.x": false, "spec.b.x.y": true, "spec.b": false, "spec.c": false} {
		if covers(names, name) != want {
			t.Errorf("%s is covered: %t, want %t", name, !want, want)
		}
	}
	if got := fmt.Sprint(leaves("spec object\nspec.a object\nspec.a.b[] array\nspec.a.b[].c string required\nkind string\nstatus.d{} string\n")); got != "[spec.a.b.c status.d]" {
		t.Errorf("leaves are %s", got)
	}
	d := &tests{files: map[string][]string{"TestA": {"x/a_test.go", "y/a_test.go"}}, words: map[string]map[string]bool{"x": {"sub": true}}}
	for _, tc := range []struct{ name, sub, place, want string }{
		{"TestA", "", "", "[x y]"}, {"TestA", "sub", "", "[x]"}, {"TestA", "", "y", "[y]"}, {"TestA", "", "y/a_test.go", "[y]"}, {"TestA", "other", "", "[]"}, {"TestB", "", "", "[]"},
	} {
		if got := fmt.Sprint(d.find(tc.name, tc.sub, tc.place)); got != tc.want {
			t.Errorf("%+v is in %s", tc, got)
		}
	}
}
