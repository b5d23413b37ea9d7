// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages lists the Markdown files that people read, relative to the root of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"}
	top := root(t)
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(p string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".md") {
			var rel string
			rel, err = filepath.Rel(top, p)
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLinks checks that every relative link of a page leads to a file, and to a heading of it where it names one.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, problem := range brokenLinks(page, read(t, page), func(file string) (string, error) {
			name := filepath.Join(root(t), filepath.FromSlash(file))
			if info, err := os.Stat(name); err != nil || info.IsDir() {
				return "", err
			}
			raw, err := os.ReadFile(name)
			return string(raw), err
		}) {
			t.Error(problem)
		}
	}
}

// TestMenu checks that the site's menu has every page, but for the pages that a page of the menu lists.
func TestMenu(t *testing.T) {
	menu := read(t, "hack/site/hugo.toml")
	for _, page := range pages(t) {
		name, ok := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(page, ".md")), "docs/")
		listed := name == "readme" || strings.HasPrefix(name, "reference/compatibility/") || strings.HasPrefix(name, "walkthroughs/") && name != "walkthroughs/readme"
		if ok && !listed && !strings.Contains(menu, `"`+name+`"`) {
			t.Errorf("%s is not in the menu of hack/site/hugo.toml", page)
		}
	}
}

var (
	fences   = regexp.MustCompile("(?ms)^ *```.*?^ *```[^\n]*\n")
	inline   = regexp.MustCompile("`[^`\n]+`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	text     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// brokenLinks says which links of a page lead nowhere.
func brokenLinks(page, body string, open func(string) (string, error)) (problems []string) {
	for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(fences.ReplaceAllString(body, ""), ""), -1) {
		to := m[1]
		if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		file, fragment, _ := strings.Cut(to, "#")
		target := body
		if file != "" {
			var err error
			if target, err = open(path.Join(path.Dir(page), file)); err != nil {
				problems = append(problems, fmt.Sprintf("%s links to %s: %v", page, to, err))
				continue
			}
		}
		if fragment != "" && !slices.Contains(anchors(target), fragment) {
			problems = append(problems, fmt.Sprintf("%s links to %s, which has no such heading", page, to))
		}
	}
	return problems
}

// anchors returns the anchors of a page's headings, as git hosts and the site make them.
func anchors(body string) (all []string) {
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(body, ""), -1) {
		plain := strings.ToLower(strings.TrimSpace(text.ReplaceAllString(m[1], "$1")))
		a := strings.ReplaceAll(noAnchor.ReplaceAllString(plain, ""), " ", "-")
		if n := seen[a]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", a, n))
		} else {
			all = append(all, a)
		}
		seen[a]++
	}
	return all
}

// TestLinksBite checks the check: what leads nowhere is found, and nothing else.
func TestLinksBite(t *testing.T) {
	open := func(name string) (string, error) {
		if name == "docs/other.md" {
			return "# Other\n\n```\n# Code\n```\n\n## A `b.c`, d\n\n## Other\n", nil
		}
		return "", fs.ErrNotExist
	}
	for to, want := range map[string]int{
		"other.md": 0, "other.md#a-bc-d": 0, "other.md#other-1": 0, "#here": 0, "https://example.com/x": 0,
		"gone.md": 1, "other.md#code": 1, "#gone": 1, "../docs/other.md#other": 0,
	} {
		if got := brokenLinks("docs/page.md", "# Here\n\n[x]("+to+") `[y](no.md)`\n", open); len(got) != want {
			t.Errorf("%s: %v", to, got)
		}
	}
}
