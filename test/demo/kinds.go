// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// The kinds of demo. Each has a file of its own name.
const (
	kindPlan         = "plan"
	kindBottlerocket = "bottlerocket"
	kindReplacement  = "replacement"
)

var kinds = map[string]func(*demo) kind{
	kindPlan:         func(d *demo) kind { return &planDemo{demo: d} },
	kindBottlerocket: func(d *demo) kind { return &bottlerocketDemo{demo: d} },
	kindReplacement:  func(d *demo) kind { return &replacementDemo{demo: d} },
}

func kindNames() string { return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") }

// kind is what one kind of demo does.
type kind interface {
	// fit checks whether there is what it needs, or makes do with less, before anything is started.
	fit() error
	// steps are what it does, one after the other.
	steps() []step
	// prove shows that everything is as it should be, or fails, and says what to try next.
	prove(ctx context.Context) error
}

// passing is a kind whose demo can't outlive this process.
type passing interface {
	kind
	// end ends what was started, however much of it there is. What went wrong before stands in err.
	end(ctx context.Context, err error) error
}

// step is one of a demo's.
type step struct {
	title string
	do    func(context.Context) error
}
