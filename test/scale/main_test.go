// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want func(o options) bool
	}{
		{"defaults", nil, func(o options) bool {
			return slices.Equal(o.sizes, sizes{1000}) && o.concurrency == 50 && o.podSeconds == 1.5 && !o.noBare && !o.guarded && len(o.args) == 0
		}},
		{"one size", []string{"--nodes", "100"}, func(o options) bool { return slices.Equal(o.sizes, sizes{100}) }},
		{"sizes", []string{"--nodes=100, 1000,5000"}, func(o options) bool {
			return slices.Equal(o.sizes, sizes{100, 1000, 5000}) && o.sizes.String() == "100,1000,5000"
		}},
		{"guarded", []string{"--guarded", "--no-bare"}, func(o options) bool { return o.guarded && !o.guardedFirst && o.noBare }},
		{"guarded first", []string{"--guarded-first"}, func(o options) bool { return o.guarded && o.guardedFirst }},
		{"flags of the operator", []string{"--nodes", "7", "--", "--threads", "4"}, func(o options) bool {
			return slices.Equal(o.sizes, sizes{7}) && slices.Equal(o.args, []string{"--threads", "4"})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := parse(test.args)
			if err != nil || !test.want(o) {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--nodes", ""}, {"--nodes", "0"}, {"--nodes", "100,,5"}, {"--nodes", "many"}, {"--nodes", "-1"},
		{"--concurrency", "0"}, {"--pod-seconds", "0"}, {"--pod-seconds", "-1"},
	} {
		if o, err := parse(args); err == nil {
			t.Errorf("%q is %+v", args, o)
		}
	}
}

func TestIdeal(t *testing.T) {
	o := options{concurrency: 50, podSeconds: 1.5}
	for _, test := range []struct {
		parts []int
		want  time.Duration
	}{
		{[]int{1000}, 30 * time.Second},
		{[]int{5000}, 150 * time.Second},
		{[]int{1001}, 31500 * time.Millisecond},
		{[]int{1}, 1500 * time.Millisecond},
		{[]int{50, 100, 850}, 30 * time.Second},
		{[]int{10, 90}, 4500 * time.Millisecond},
	} {
		if got := o.ideal(test.parts...); got != test.want {
			t.Errorf("%v: got %s, want %s", test.parts, got, test.want)
		}
	}
	if got := o.patienceFor(1000); got != 4*time.Minute {
		t.Errorf("patience is %s", got)
	}
	o.timeout = time.Minute
	if got := o.patienceFor(1000); got != time.Minute {
		t.Errorf("patience is %s, and was given", got)
	}
}

// The waves cost nothing where the nodes are a multiple of the concurrency, and always take every node once.
func TestWaves(t *testing.T) {
	for _, test := range []struct {
		nodes, concurrency int
		want               []int
	}{
		{1, 50, []int{1}},
		{50, 50, []int{50}},
		{60, 50, []int{50, 10}},
		{100, 50, []int{50, 50}},
		{1000, 50, []int{50, 100, 850}},
		{1000, 30, []int{30, 120, 850}},
		{5000, 50, []int{50, 500, 4450}},
	} {
		got := waves(test.nodes, test.concurrency)
		if !slices.Equal(got, test.want) {
			t.Errorf("%d nodes, %d at once: got %v, want %v", test.nodes, test.concurrency, got, test.want)
		}
		o := options{concurrency: test.concurrency, podSeconds: 1}
		if test.nodes%test.concurrency == 0 && o.ideal(got...) != o.ideal(test.nodes) {
			t.Errorf("%d nodes, %d at once: waves take %s, and without them it takes %s", test.nodes, test.concurrency, o.ideal(got...), o.ideal(test.nodes))
		}
	}
}
