// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// header is the first line of every file that people write.
const header = "// SPDX-License-Identifier: Apache-2.0\n"

// TestHeaders checks that every Go file says its license.
func TestHeaders(t *testing.T) {
	for _, f := range sources(t) {
		raw, err := os.ReadFile(f.abs)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(raw, []byte(header)) && !generated(raw) {
			t.Errorf("%s does not start with %q", f.path, strings.TrimSpace(header))
		}
	}
}

// TestMakeTargets checks that every target of which a page speaks is in the Makefile.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	spoken := regexp.MustCompile("(?m)(?:`|^|^\\$ )make ([a-z][a-z0-9-]*)")
	for _, page := range pages(t) {
		for _, found := range spoken.FindAllStringSubmatch(read(t, page), -1) {
			if !bytes.Contains(makefile, []byte("\n"+found[1]+":")) {
				t.Errorf("%s speaks of make %s, which is no target", page, found[1])
			}
		}
	}
}

// TestPackageNames checks that packages are named after what they do.
func TestPackageNames(t *testing.T) {
	for _, f := range sources(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), f.abs, nil, parser.PackageClauseOnly)
		if err != nil {
			t.Errorf("parsing %s: %v", f.path, err)
			continue
		}
		name := strings.TrimSuffix(parsed.Name.Name, "_test")
		if slices.Contains([]string{"common", "helper", "helpers", "misc", "shared", "types", "util", "utils"}, name) {
			t.Errorf("%s: package %s says nothing of what it does", f.path, name)
		}
	}
}

// TestPackageDocs checks that every package that people write says in one comment what it is.
func TestPackageDocs(t *testing.T) {
	documented := map[string]int{}
	for _, f := range sources(t) {
		raw, err := os.ReadFile(f.abs)
		if err != nil {
			t.Fatal(err)
		}
		if f.test() || generated(raw) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.abs, raw, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("parsing %s: %v", f.path, err)
			continue
		}
		documented[f.dir] += 0
		if parsed.Doc != nil {
			documented[f.dir]++
		}
	}
	for dir, n := range documented {
		if n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}

// source is one Go file of the root module.
type source struct {
	// abs is where it is, path and dir its place relative to the root, with slashes.
	abs, path, dir string
}

// test reports whether it is a test.
func (f source) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// sources lists the Go files of the root module.
func sources(t *testing.T) []source {
	t.Helper()
	top := root(t)
	var all []source
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(p, "go.mod"))
			other := err == nil && p != top
			hidden := rel != "." && strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")
			if other || hidden || rel == "bin" || slices.Contains([]string{"node_modules", "testdata", "vendor"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(rel, ".go") {
			all = append(all, source{abs: p, path: rel, dir: path.Dir(rel)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// generated reports whether a file says that it is.
func generated(raw []byte) bool {
	head, _, _ := bytes.Cut(raw, []byte("\npackage "))
	for line := range bytes.Lines(head) {
		if bytes.HasPrefix(line, []byte("// Code generated ")) && bytes.HasSuffix(line, []byte(" DO NOT EDIT.\n")) {
			return true
		}
	}
	return false
}

// root is the folder of the root module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
