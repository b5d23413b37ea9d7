// SPDX-License-Identifier: Apache-2.0

package target

import (
	"fmt"
	"slices"
	"strings"

	"moult.dev/moult/internal/cli/text"
)

// Target is an object that a command line names.
type Target struct {
	// Kind of the object; nil when the command line does not name it.
	Kind *Kind
	Name string
}

// Means reports whether objects of a kind are meant.
func (t Target) Means(k *Kind) bool { return t.Kind == nil || t.Kind == k }

// Parse reads NAME, kind/NAME or kind.group/NAME, where the kind is one of these.
func Parse(arg string, of ...*Kind) (Target, error) {
	kind, name, hasKind := strings.Cut(arg, "/")
	if !hasKind {
		kind, name = "", arg
	}
	if name == "" || strings.Contains(name, "/") {
		return Target{}, fmt.Errorf("%q is not the name of %s", arg, names(of))
	}
	if !hasKind {
		return Target{Name: name}, nil
	}
	i := slices.IndexFunc(of, func(k *Kind) bool { return k.hasName(kind) })
	if i < 0 {
		words := make([]string, len(of))
		for i, k := range of {
			words[i] = k.Singular
		}
		return Target{}, fmt.Errorf("%q is not the name of %s: the word before the slash must be %s", arg, names(of), text.Or(words))
	}
	return Target{of[i], name}, nil
}

// hasName reports whether this names the kind: plan, plans, plan.upgrade.cattle.io, plans.v1.upgrade.cattle.io.
func (k *Kind) hasName(text string) bool {
	word, group, hasGroup := strings.Cut(strings.ToLower(text), ".")
	if word != k.Singular && !slices.Contains(k.Aliases, word) {
		return false
	}
	return !hasGroup || group == k.Resource.Group || group == k.Resource.Version+"."+k.Resource.Group
}

// names is "a Plan", "a Node or a Plan", or "a Node, a Plan or an ExtendedDaemonSet".
func names(of []*Kind) string {
	all := make([]string, len(of))
	for i, k := range of {
		all[i] = k.Article + " " + k.Name
	}
	return text.Or(all)
}

// Ambiguous is the error that objects of several kinds have the name.
func Ambiguous(name string, kinds []*Kind) error {
	var there, args []string
	for _, k := range kinds {
		there, args = append(there, k.Article+" "+k.Name), append(args, k.Short+"/"+name)
	}
	return fmt.Errorf("there are %s named %q: say %s", text.And(there), name, text.Or(args))
}
