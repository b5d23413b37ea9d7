// SPDX-License-Identifier: Apache-2.0

package target

import (
	"fmt"
	"slices"
	"strings"
)

// Target is an object that a command line names.
type Target struct {
	// Kind of the object; nil when the command line does not say.
	Kind *Kind
	Name string
}

// Parse reads NAME, kind/NAME or kind.group/NAME, where the kind is one of these.
func Parse(arg string, of ...*Kind) (Target, error) {
	kind, name, said := strings.Cut(arg, "/")
	if !said {
		kind, name = "", arg
	}
	if name == "" || strings.Contains(name, "/") {
		return Target{}, fmt.Errorf("%q is not the name of %s", arg, names(of))
	}
	if !said {
		return Target{Name: name}, nil
	}
	i := slices.IndexFunc(of, func(k *Kind) bool { return k.called(kind) })
	if i < 0 {
		return Target{}, fmt.Errorf("%q is not the name of %s: before the slash stands %s", arg, names(of), prefixes(of))
	}
	return Target{of[i], name}, nil
}

// called reports whether this names the kind: plan, plans, plan.upgrade.cattle.io, plans.v1.upgrade.cattle.io.
func (k *Kind) called(text string) bool {
	word, group, said := strings.Cut(strings.ToLower(text), ".")
	if word != k.Singular && !slices.Contains(k.Aliases, word) {
		return false
	}
	return !said || group == k.Resource.Group || group == k.Resource.Version+"."+k.Resource.Group
}

// names is "a Plan", "a Node or a Plan", or "a Node, a Plan or an ExtendedDaemonSet".
func names(of []*Kind) string {
	all := make([]string, len(of))
	for i, k := range of {
		all[i] = k.Article + " " + k.Name
	}
	return either(all)
}

func prefixes(of []*Kind) string {
	all := make([]string, len(of))
	for i, k := range of {
		all[i] = k.Singular
	}
	return either(all)
}

func either(of []string) string {
	last := len(of) - 1
	if last == 0 {
		return of[0]
	}
	return strings.Join(of[:last], ", ") + " or " + of[last]
}
