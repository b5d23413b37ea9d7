// SPDX-License-Identifier: Apache-2.0

// Command apilint runs kube-api-linter over packages of API types. It fails on a finding that no exception of its configuration explains,
// and on an exception that explains nothing.
//
//	apilint .apilint.yaml ./api/v1alpha1
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/kube-api-linter/pkg/plugin/base"
	_ "sigs.k8s.io/kube-api-linter/pkg/registration"
	"sigs.k8s.io/yaml"
)

// configuration is the content of the configuration file.
type configuration struct {
	// Settings are those of kube-api-linter.
	Settings any `json:"settings"`
	// Exceptions are findings that stay.
	Exceptions []*exception `json:"exceptions"`
}

// exception explains the findings of one linter on the fields whose Type.Field matches one of these regular expressions.
type exception struct {
	Linter string   `json:"linter"`
	Fields []string `json:"fields"`
	Why    string   `json:"why"`

	fields *regexp.Regexp
	used   bool
}

// subject is what a finding is about: Type.Field, or the type.
var subject = regexp.MustCompile(`\b[A-Z]\w*\.[A-Z]\w*\b|field in \w+`)

func main() {
	findings, err := run(os.Args[1], os.Args[2:])
	for _, f := range findings {
		fmt.Fprintln(os.Stderr, f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apilint:", err)
	}
	if err != nil || len(findings) > 0 {
		os.Exit(1)
	}
}

// run returns the findings in these packages that stay unexplained.
func run(file string, patterns []string) (findings []string, _ error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var c configuration
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return nil, fmt.Errorf("reading %s, %w", file, err)
	}
	for _, e := range c.Exceptions {
		if e.Why == "" {
			return nil, fmt.Errorf("reading %s, the exception of %s for %s does not say why", file, e.Linter, e.Fields)
		}
		if e.fields, err = regexp.Compile("^(?:" + strings.Join(e.Fields, "|") + ")$"); err != nil {
			return nil, fmt.Errorf("reading %s, %w", file, err)
		}
	}
	linter, err := base.New(c.Settings)
	if err != nil {
		return nil, err
	}
	analyzers, err := linter.BuildAnalyzers()
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadAllSyntax}, patterns...)
	if err != nil {
		return nil, err
	}
	if packages.PrintErrors(loaded) > 0 {
		return nil, errors.New("the packages can't be loaded")
	}
	graph, err := checker.Analyze(analyzers, loaded, nil)
	if err != nil {
		return nil, err
	}
	for action := range graph.All() {
		if !action.IsRoot {
			continue
		}
		if action.Err != nil {
			return nil, fmt.Errorf("running %s, %w", action.Analyzer.Name, action.Err)
		}
		for _, d := range action.Diagnostics {
			about := subject.FindString(d.Message)
			i := slices.IndexFunc(c.Exceptions, func(e *exception) bool { return e.Linter == action.Analyzer.Name && e.fields.MatchString(about) })
			if i >= 0 {
				c.Exceptions[i].used = true
				continue
			}
			findings = append(findings, fmt.Sprintf("%s: %s: %s", action.Package.Fset.Position(d.Pos), action.Analyzer.Name, d.Message))
		}
	}
	for _, e := range c.Exceptions {
		if !e.used {
			findings = append(findings, fmt.Sprintf("%s: the exception of %s for %s is not needed", file, e.Linter, e.Fields))
		}
	}
	slices.Sort(findings)
	return slices.Compact(findings), nil
}
