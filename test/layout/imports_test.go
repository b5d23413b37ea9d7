// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestImports checks what each file imports, for every operating system and build tag at once.
func TestImports(t *testing.T) {
	undeclared := map[string]bool{}
	for _, f := range sources(t) {
		if f.test() {
			continue
		}
		l, ok := layerOf(f.dir)
		if !ok {
			undeclared[f.dir] = true
			continue
		}
		for _, p := range f.imports(t) {
			if why := l.allows(p); why != "" {
				t.Errorf("%s imports %s: %s (layer %s in test/layout/layers_test.go)", f.path, p, why, l.path)
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(undeclared)) {
		t.Errorf("%s has no layer: say in test/layout/layers_test.go what it may import", dir)
	}
}

// TestPureCodeReadsNoClock checks that time is a parameter of pure code.
func TestPureCodeReadsNoClock(t *testing.T) {
	for _, f := range sources(t) {
		if l, _ := layerOf(f.dir); !l.pure || f.test() {
			continue
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, f.abs, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parsing %s: %v", f.path, err)
			continue
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clocks, call.Sel.Name) {
					t.Errorf("%s:%d reads the clock: time.%s", f.path, files.Position(call.Pos()).Line, call.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestPureCodeReachesNothingImpure follows the imports of pure code. Kubernetes' API types are data to it, though
// their packages log a little: what they import does not count.
func TestPureCodeReachesNothingImpure(t *testing.T) {
	for _, p := range packages(t) {
		if l, _ := layerOf(strings.TrimPrefix(p.ImportPath, module+"/")); !l.pure {
			continue
		}
		for reached, by := range closure(t, p.ImportPath, slices.Concat(data, impure)) {
			if match(impure, reached) {
				t.Errorf("%s reaches %s: %s", p.ImportPath, reached, by)
			}
		}
	}
}

// TestProgramsStaySmall checks that the programs which run on every node and on people's machines do not carry the
// controllers and the clouds' SDKs.
func TestProgramsStaySmall(t *testing.T) {
	for program, unwanted := range map[string][]string{
		"cmd/moult-agent": append([]string{
			module + "/internal/cloud/...", module + "/internal/controller/...", module + "/internal/rollout/...",
			module + "/internal/cli/...",
			// The agent takes less than 25 MB of memory: every typed API that it links would cost some. Of controller-runtime it has the logger.
			"k8s.io/api/...", "k8s.io/client-go/kubernetes/...", "sigs.k8s.io/controller-runtime",
			"sigs.k8s.io/controller-runtime/pkg/client/...", "sigs.k8s.io/controller-runtime/pkg/cache/...",
			"sigs.k8s.io/controller-runtime/pkg/controller/...", "sigs.k8s.io/controller-runtime/pkg/manager/...",
		}, cloudSDKs...),
		"cmd/kubectl-moult": append([]string{
			module + "/internal/cloud/aws/...", module + "/internal/cloud/azure/...", module + "/internal/cloud/gcp/...",
			module + "/internal/controller/...", module + "/internal/agent/...",
		}, cloudSDKs...),
	} {
		t.Run(path.Base(program), func(t *testing.T) {
			if _, ok := graph(t)[module+"/"+program]; !ok {
				t.Skipf("there is no %s", program)
			}
			for reached, by := range closure(t, module+"/"+program, unwanted) {
				if match(unwanted, reached) {
					t.Errorf("it reaches %s: %s", reached, by)
				}
			}
		})
	}
}

// TestProgramsKnowTimeZones checks that each program which looks at windows brings the time zones that these name: an image has no file of
// them, nor has every machine of a person, and a window whose zone is not known is none.
func TestProgramsKnowTimeZones(t *testing.T) {
	const windows, zones = module + "/internal/rollout", "time/tzdata"
	programs := 0
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.ImportPath, module+"/cmd/") {
			continue
		}
		reached := closure(t, p.ImportPath, nil)
		if by := reached[windows]; by != "" {
			if programs++; reached[zones] == "" {
				t.Errorf("%s reaches no %s, but windows: %s", p.ImportPath, zones, by)
			}
		}
	}
	if programs < 2 {
		t.Errorf("%d programs look at windows", programs)
	}
}

// TestHeavyModules checks that the modules which build the test cluster stay out of the root module, its tests included.
func TestHeavyModules(t *testing.T) {
	for _, p := range graph(t) {
		for _, i := range p.Imports {
			if match(heavy, i) {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal(command(t, "go", "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if match(heavy, r.Path) || match(heavy, r.Path+"/x") {
			t.Errorf("go.mod requires %s", r.Path)
		}
	}
}

// TestRulesBite checks the rules themselves: each of these imports must be refused.
func TestRulesBite(t *testing.T) {
	for _, c := range []struct{ dir, imports string }{
		{"api/v1alpha1", "k8s.io/client-go/kubernetes"},
		{"api/v1alpha1", module + "/internal/rollout"},
		{"internal/rollout", "context"},
		{"internal/rollout", "k8s.io/utils/clock"},
		{"internal/rollout", "github.com/go-logr/logr"},
		{"internal/rollout", module + "/internal/node"},
		{"internal/drain", module + "/internal/events"},
		{"internal/events", module + "/internal/metrics"},
		{"internal/node", module + "/internal/rollout"},
		{"internal/controller/plan", module + "/internal/controller/budget"},
		{"internal/controller/plan", module + "/internal/agent/host"},
		{"internal/controller/plan", module + "/internal/cli"},
		{"internal/controller/replacement", module + "/internal/cloud/azure"},
		{"internal/controller/replacement", "github.com/aws/aws-sdk-go-v2/aws"},
		{"internal/agent/host", module + "/internal/controller"},
		{"internal/view", module + "/internal/controller/plan"},
		{"internal/cli/moult", module + "/internal/node"},
		{"internal/cloud/aws", module + "/internal/cloud/gcp"},
		{"internal/status", "testing"},
		{"internal/status", module + "/test/cluster"},
		{"cmd/moult", module + "/hack/image"},
		{"cmd/moult-agent", module + "/internal/rollout"},
		{"cmd/kubectl-moult", "google.golang.org/api/compute/v1"},
	} {
		if l, ok := layerOf(c.dir); !ok || l.allows(c.imports) == "" {
			t.Errorf("%s may import %s", c.dir, c.imports)
		}
	}
	for _, dir := range []string{"internal/helpers", "internal/controller/new", "internal/cloud/new", "pkg"} {
		if l, ok := layerOf(dir); ok {
			t.Errorf("%s has the layer %s, want none", dir, l.path)
		}
	}
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
	ForTest    string
	Module     *struct{ Main bool }
}

// graph is every package that this module or its tests import, however indirectly, by import path. A package that does
// not compile is listed with what is known of it: the compiler complains elsewhere.
var graph = func() func(*testing.T) map[string]goPackage {
	var once sync.Once
	all := map[string]goPackage{}
	return func(t *testing.T) map[string]goPackage {
		t.Helper()
		once.Do(func() {
			list := command(t, "go", "list", "-e", "-deps", "-test",
				"-json=ImportPath,Imports,Standard,ForTest,Module", "./...")
			for d := json.NewDecoder(strings.NewReader(string(list))); ; {
				var p goPackage
				if err := d.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				for i := range p.Imports {
					p.Imports[i], _, _ = strings.Cut(p.Imports[i], " ")
				}
				all[p.ImportPath] = p
			}
		})
		if len(all) == 0 {
			t.Fatal("go list lists no package")
		}
		return all
	}
}()

// packages are the packages of this module, in order and without their tests.
func packages(t *testing.T) []goPackage {
	t.Helper()
	all := graph(t)
	var own []goPackage
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if p := all[p]; p.Module != nil && p.Module.Main && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			own = append(own, p)
		}
	}
	return own
}

// closure returns all packages that a package imports, each with the chain of imports that leads there. It does not
// follow the imports of the packages in leaves, nor those of the standard library.
func closure(t *testing.T, start string, leaves []string) map[string]string {
	t.Helper()
	all := graph(t)
	reached := map[string]string{start: start}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		p := all[queue[0]]
		if p.Standard || match(leaves, p.ImportPath) {
			continue
		}
		for _, i := range p.Imports {
			if reached[i] == "" {
				reached[i] = reached[p.ImportPath] + " → " + i
				queue = append(queue, i)
			}
		}
	}
	delete(reached, start)
	return reached
}

// command runs a command at the root of the module and returns what it prints.
func command(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return out
}

// imports returns the paths that a file imports.
func (f source) imports(t *testing.T) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), f.abs, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("parsing %s: %v", f.path, err)
		return nil
	}
	var all []string
	for _, i := range parsed.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}
