// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/tier"
)

func TestAdd(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Capacity = 2 })
	o := a.prepare(cloud.Change{Add: 2, Zone: zones[1], Token: "one"})
	p := a.done(a.send(o))
	a.settled(4)
	machines := a.World.Machines("workers")
	expect(t, "what was added", []string{machines[2].ID, machines[3].ID}, p.Added)
	for _, m := range machines[2:] {
		expect(t, "its zone", zones[1], m.Zone)
	}
	// The zone with the fewest, where none is wanted or the wanted one is not the group's.
	for n, zone := range []string{"", "eu-north-1a"} {
		p = a.done(a.send(a.prepare(cloud.Change{Add: 1, Zone: zone, Token: fmt.Sprint("more", n)})))
		a.settled(5 + n)
		m := a.World.Machines("workers")[4+n]
		expect(t, "what was added", []string{m.ID}, p.Added)
		expect(t, "its zone", []string{zones[2], zones[0]}[n], m.Zone)
	}
}

func TestAddIsDoneOnce(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	o := a.prepare(cloud.Change{Add: 2, Token: "one"})
	first := a.send(o)
	a.settled(5)
	again := a.send(o)
	p := a.done(again)
	expect(t, "the same", a.done(first), p)
	expect(t, "sent when it was sent", first, a.send(first))
	a.settled(5)
	slices.Sort(p.Added)
	want := a.ids()[3:]
	slices.Sort(want)
	expect(t, "what was added", want, p.Added)
}

func TestSpotAloneIsLaunched(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Settings["policy"] = "spot" })
	a.done(a.send(a.prepare(cloud.Change{Add: 1, Token: "one"})))
	expect(t, "launches", 1, a.Calls()["LaunchInstances"])
}

func TestGroupThatTakesNoLaunch(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Settings["noLaunchInstances"] = "1" })
	c := a.fresh()
	s := a.describe()
	o, err := c.ScaleSet("workers").Prepare(t.Context(), &s, cloud.Change{Add: 1, Token: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ScaleSet("workers").Send(t.Context(), o); cloud.KindOf(err) != cloud.KindInvalid {
		t.Error(err)
	}
	a.settled(3)
}

func TestAddAtTheMaximum(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	s := a.describe()
	if _, err := a.workers().Prepare(t.Context(), &s, cloud.Change{Add: 8, Token: "one"}); cloud.KindOf(err) != cloud.KindFull {
		t.Error(err)
	}
	s.Max = 3 // by tag
	if _, err := a.workers().Prepare(t.Context(), &s, cloud.Change{Add: 1, Token: "one"}); cloud.KindOf(err) != cloud.KindFull {
		t.Error(err)
	}
	o := a.prepare(cloud.Change{Add: 1, Token: "one"})
	a.edit(func(s *clouds.Set) { s.Max = 3 })
	if _, err := a.workers().Send(t.Context(), o); cloud.KindOf(err) != cloud.KindFull {
		t.Error(err)
	}
	a.settled(3)
	a.edit(func(s *clouds.Set) { s.Max = 4 })
	a.done(a.send(o))
	a.settled(4)
}

func TestNoRoom(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	a.Fault(clouds.Fault{Kind: clouds.Quota, Call: "Add"})
	o := a.prepare(cloud.Change{Add: 2, Token: "one"})
	o = a.send(o)
	if p, err := a.ended(o); cloud.KindOf(err) != cloud.KindQuota || len(p.Added) != 0 || !strings.Contains(err.Error(), "vCPU") {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := a.ended(o); cloud.KindOf(err) != cloud.KindQuota {
		t.Errorf("asked again: %v", err)
	}
	a.ClearFaults()
	a.settled(3)
	a.done(a.send(a.prepare(cloud.Change{Add: 2, Token: "two"})))
	a.settled(5)
}

func TestRoomForSome(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Settings["room"] = "1" })
	o := a.prepare(cloud.Change{Add: 3, Token: "one"})
	for range 2 {
		p, err := a.ended(a.send(o))
		if cloud.KindOf(err) != cloud.KindQuota || !strings.Contains(err.Error(), "1 launched") {
			t.Error(err)
		}
		expect(t, "what was added", a.ids()[3:], p.Added)
	}
	a.settled(4)
}

func TestStateOfLargeGroups(t *testing.T) {
	t.Parallel()
	n := 150
	if tier.All {
		n = 600
	}
	a := start(t, func(s *clouds.Set) { s.Capacity, s.Max = n, 2*n })
	o := a.prepare(cloud.Change{Add: 100, Token: "one"})
	o = a.send(o)
	if p := a.done(o); len(p.Added) != 100 || len(o.State) > 16<<10 {
		t.Errorf("%d machines, %d bytes", len(p.Added), len(o.State))
	}
	a.settled(n + 100)
	o = a.prepare(cloud.Change{Delete: a.ids()[:100], Token: "two"})
	o = a.send(o)
	if len(o.State) > 16<<10 {
		t.Errorf("%d bytes", len(o.State))
	}
	a.done(o)
	a.settled(n)
}

func TestDelete(t *testing.T) {
	t.Parallel()
	// Terminating twice would lower the capacity twice.
	a := startWith(t, clouds.Options{DeleteTime: time.Hour}, func(s *clouds.Set) { s.Settings["decrementsTwice"] = "1" })
	ids := a.ids()
	o := a.prepare(cloud.Change{Delete: []string{ids[0], "i-00000000000000000", ids[1]}, Token: "one"})
	// The answers to both terminations are lost.
	a.Fault(clouds.Fault{Kind: clouds.DropAfter, Call: "TerminateInstanceInAutoScalingGroup", Times: 2})
	if _, err := a.workers().Send(t.Context(), o); cloud.KindOf(err) != cloud.KindUnavailable {
		t.Fatal(err)
	}
	sent := a.send(o)
	a.send(o)
	a.send(sent)
	expect(t, "the capacity", 1, a.set().Capacity)
	expect(t, "terminations", 2, a.Calls()["TerminateInstanceInAutoScalingGroup"])
	_, p, err := a.workers().Poll(t.Context(), sent)
	expect(t, "the progress", cloud.Progress{}, p)
	if err != nil {
		t.Error(err)
	}
	if got := a.ids(); !slices.Equal(got, ids[2:]) {
		t.Errorf("machines %v", got)
	}
}

func TestDeleteEnds(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	ids := a.ids()
	o := a.prepare(cloud.Change{Delete: ids[:2], Token: "one"})
	if err := a.Kill("workers", ids[0], true); err != nil {
		t.Fatal(err)
	}
	expect(t, "the progress", cloud.Progress{Done: true}, a.done(a.send(o)))
	a.settled(1)
	o = a.prepare(cloud.Change{Delete: ids[:2], Token: "two"})
	expect(t, "of those that are gone", cloud.Progress{Done: true}, a.done(a.send(o)))
	a.settled(1)
}

func TestDeleteAtTheMinimum(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *clouds.Set) { s.Min = 2 })
	ids := a.ids()
	s := a.describe()
	_, err := a.workers().Prepare(t.Context(), &s, cloud.Change{Delete: ids[:2], Token: "one"})
	if cloud.KindOf(err) != cloud.KindInvalid || !strings.Contains(err.Error(), "3 of at least 2") {
		t.Error(err)
	}
	o := a.prepare(cloud.Change{Delete: ids[:1], Token: "two"})
	a.edit(func(s *clouds.Set) { s.Min = 3 })
	o = a.send(o)
	if _, err := a.ended(o); cloud.KindOf(err) != cloud.KindInvalid || !strings.Contains(err.Error(), "min size") {
		t.Error(err)
	}
	a.settled(3)
}

// A machine that is protected, at whatever time, stays, and keeps no others from being deleted.
func TestDeleteProtected(t *testing.T) {
	t.Parallel()
	for _, state := range []string{clouds.Running, clouds.Failed} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			a := start(t, nil)
			ids := a.ids()
			edit := func(protected bool) {
				t.Helper()
				if err := a.EditMachine("workers", ids[0], func(m *clouds.Machine) { m.Protected, m.State = protected, state }); err != nil {
					t.Fatal(err)
				}
			}
			protected := func(id string) bool {
				t.Helper()
				is, err := a.workers().(cloud.Protector).Protected(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				return is
			}
			o := a.prepare(cloud.Change{Delete: ids[:2], Token: "one"})
			edit(true)
			expect(t, "who is protected", []bool{true, false}, []bool{protected(ids[0]), protected(ids[2])})
			if _, err := a.ended(a.send(o)); cloud.KindOf(err) != cloud.KindInvalid || !strings.Contains(err.Error(), ids[0]+" of workers, it is protected from termination") {
				t.Error(err)
			}
			expect(t, "who stays", []string{ids[0], ids[2]}, a.ids())
			edit(false)
			a.done(a.send(a.prepare(cloud.Change{Delete: ids[:1], Token: "two"})))
			expect(t, "who stays", ids[2:], a.ids())
		})
	}
}

// The capacity does not count a machine in standby: its deletion would lower the capacity for nothing.
func TestDeleteStandby(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	ids := a.ids()
	if err := a.EditMachine("workers", ids[0], func(m *clouds.Machine) { m.State = "Standby" }); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ended(a.send(a.prepare(cloud.Change{Delete: ids[:2], Token: "one"}))); cloud.KindOf(err) != cloud.KindInvalid || !strings.Contains(err.Error(), "standby") {
		t.Error(err)
	}
	expect(t, "who stays", []string{ids[0], ids[2]}, a.ids())
	expect(t, "the capacity", 1, a.describe().Capacity)
}

// If AWS refuses in the middle of many terminations, those that it accepted are known, and the others follow.
func TestDeleteInParts(t *testing.T) {
	t.Parallel()
	for fault, want := range map[clouds.FaultKind]cloud.Kind{clouds.Throttled: "", clouds.Unavailable: "", clouds.Denied: cloud.KindDenied} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			a := start(t, func(s *clouds.Set) { s.Settings["decrementsTwice"] = "1" })
			ids := a.ids()
			o := a.prepare(cloud.Change{Delete: ids[:2], Token: "one"})
			a.Fault(clouds.Fault{Kind: fault, Call: "TerminateInstanceInAutoScalingGroup", Set: ids[1], Times: 1})
			o = a.send(o)
			if _, err := a.ended(o); cloud.KindOf(err) != want {
				t.Errorf("%v, want %q", err, want)
			}
			left := ids[2:]
			if want != "" {
				left = ids[1:]
			}
			expect(t, "who stays", left, a.ids())
			expect(t, "the capacity", len(left), a.set().Capacity)
		})
	}
}

// The activities of all machines are read, also those of the last ones.
func TestManyActivities(t *testing.T) {
	t.Parallel()
	a := startWith(t, clouds.Options{DeleteTime: time.Hour}, func(s *clouds.Set) { s.Capacity, s.Max = 60, 60 })
	ids := a.ids()
	a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: 50})
	o := a.send(a.prepare(cloud.Change{Delete: ids, Token: "one"}))
	for _, id := range ids[50:] {
		if err := a.EditMachine("workers", id, func(m *clouds.Machine) { m.State = clouds.Running }); err != nil {
			t.Fatal(err)
		}
	}
	if _, p, err := a.workers().Poll(t.Context(), o); err != nil || p.Done {
		t.Errorf("%+v %v", p, err)
	}
}

func TestDeleteThatFails(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: 1})
	o := a.send(a.prepare(cloud.Change{Delete: a.ids()[:1], Token: "one"}))
	if _, err := a.ended(o); cloud.KindOf(err) != cloud.KindFailed || !strings.Contains(err.Error(), clouds.ErrFailed.Error()) {
		t.Error(err)
	}
	a.settled(3)
}

func TestRetained(t *testing.T) {
	t.Parallel()
	a := startWith(t, clouds.Options{DeleteTime: time.Hour}, nil)
	ids := a.ids()
	o := a.send(a.prepare(cloud.Change{Delete: ids[:1], Token: "one"}))
	if _, p, err := a.workers().Poll(t.Context(), o); err != nil || p.Done {
		t.Errorf("while it goes: %+v %v", p, err)
	}
	if err := a.EditMachine("workers", ids[0], func(m *clouds.Machine) { m.State = "Terminating:Retained" }); err != nil {
		t.Fatal(err)
	}
	expect(t, "the progress", cloud.Progress{Done: true}, a.done(o))
	machines, err := a.workers().Machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range machines {
		listed = append(listed, m.ID)
	}
	expect(t, "the machines", ids[1:], listed)
	expect(t, "the capacity", 2, a.describe().Capacity)
	a.done(a.send(a.prepare(cloud.Change{Delete: ids[:1], Token: "two"})))
	expect(t, "the capacity", 2, a.describe().Capacity)
}

func TestGroupThatIsGone(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	o := a.prepare(cloud.Change{Delete: a.ids()[:1], Token: "one"})
	gone := a.fresh().ScaleSet("nobody")
	o, err := gone.Send(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, p, err := gone.Poll(t.Context(), o); err != nil || !p.Done {
		t.Errorf("%+v %v", p, err)
	}
}

func TestChangesThatAreNone(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	for _, c := range []cloud.Change{
		{}, {Add: 1, Image: "ami-1"}, {Add: 1, Delete: []string{"i-1"}}, {Delete: []string{"i-1"}, Image: "ami-1"},
		{Image: "flatcar"}, {Image: double.TemplateID("workers") + ":7"}, {Image: "lt-0:1"},
	} {
		c.Token = "one"
		if _, err := a.workers().Prepare(t.Context(), &cloud.Set{}, c); cloud.KindOf(err) != cloud.KindInvalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, o := range []cloud.Operation{{}, {State: "{"}, {State: "{}"}, {State: `{"add":"?"}`}, {Token: "t", State: `{"add":1,"image":"ami-1"}`}} {
		if _, err := a.workers().Send(t.Context(), o); cloud.KindOf(err) != cloud.KindInvalid {
			t.Errorf("sending %+v: %v", o, err)
		}
		if _, _, err := a.workers().Poll(t.Context(), o); cloud.KindOf(err) != cloud.KindInvalid {
			t.Errorf("polling %+v: %v", o, err)
		}
	}
}

func TestSetImage(t *testing.T) {
	t.Parallel()
	lt := double.TemplateID("workers")
	for _, tc := range []struct {
		name, spec, image string
		mixed             bool
		want              string
		// spec that the group has afterwards; empty for the number.
		then string
	}{
		{name: "an AMI", image: double.ImageID("three"), want: lt + ":3"},
		{name: "an AMI, in a mixed instances policy", image: double.ImageID("three"), mixed: true, want: lt + ":3"},
		{name: "an AMI, at $Latest", spec: "$Latest", image: double.ImageID("three"), want: lt + ":3", then: "$Latest"},
		{name: "the same AMI", image: double.ImageID("two"), want: lt + ":2"},
		{name: "the version before", image: lt + ":1", want: lt + ":1"},
		{name: "the version before, in a mixed instances policy", image: lt + ":1", mixed: true, want: lt + ":1"},
		{name: "the version before, from $Latest", spec: "$Latest", image: lt + ":1", want: lt + ":1"},
		{name: "the same version", image: lt + ":2", want: lt + ":2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := start(t, func(s *clouds.Set) {
				if s.Settings["launchTemplate"] = tc.spec; tc.mixed {
					s.Settings["policy"] = "spot"
				}
			})
			a.describe()
			a.edit(func(s *clouds.Set) { s.Image = "two" })
			expect(t, "before", lt+":2", a.describe().Image)
			o := a.prepare(cloud.Change{Image: tc.image, Token: "one"})
			sent := a.send(o)
			a.send(o)
			expect(t, "the progress", cloud.Progress{Done: true}, a.done(sent))
			expect(t, "after", tc.want, a.describe().Image)
			expect(t, "as it stands there", tc.then, a.set().Settings["launchTemplate"])
			a.settled(3)
		})
	}
}

func TestImageSetByOthers(t *testing.T) {
	t.Parallel()
	lt := double.TemplateID("workers")
	for _, image := range []string{double.ImageID("three"), lt + ":1"} {
		for _, spec := range []string{"", "$Latest"} {
			a := start(t, func(s *clouds.Set) { s.Settings["launchTemplate"] = spec })
			a.describe()
			a.edit(func(s *clouds.Set) { s.Image = "two" })
			o := a.prepare(cloud.Change{Image: image, Token: "one"})
			a.edit(func(s *clouds.Set) { s.Image = "of others" })
			if _, err := a.workers().Send(t.Context(), o); cloud.KindOf(err) != cloud.KindConflict {
				t.Errorf("%s %s: %v", image, spec, err)
			}
			expect(t, "the image", "of others", a.describe().ImageName)
		}
	}
}

// Groups at $Latest of the same launch template have the version that is made for any of them, and none is made for the others.
func TestSharedTemplate(t *testing.T) {
	t.Parallel()
	latest := func(s *clouds.Set) { s.Settings["launchTemplate"] = "$Latest" }
	for _, image := range []string{"two", "one"} { // another one, and the one that they have, of which a person makes a newer version
		a := start(t, latest)
		if err := a.Create(t.Context(), clouds.Set{
			Name: "others", Image: "one", Capacity: 1, Settings: map[string]string{"template": "workers", "launchTemplate": "$Latest"},
		}); err != nil {
			t.Fatal(err)
		}
		c := cloud.Change{Image: double.ImageID(image), Token: "one"}
		first := a.prepare(c)
		others := a.fresh().ScaleSet("others")
		s, err := others.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Token = "two"
		second, err := others.Prepare(t.Context(), &s, c)
		if err != nil {
			t.Fatal(err)
		}
		a.send(first)
		if image == "one" {
			a.edit(func(s *clouds.Set) { s.Image = "one again" })
			a.edit(func(s *clouds.Set) { s.Image = "one" })
		}
		if second, err = others.Send(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if _, p, err := others.Poll(t.Context(), second); err != nil || !p.Done {
			t.Errorf("%+v %v", p, err)
		}
		if s, err = others.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, "the same version", a.describe().Image, s.Image)
		expect(t, "the same AMI", double.ImageID(image), s.ImageID)
		set, _ := a.Set("others")
		expect(t, "as it stands there", "$Latest", set.Settings["launchTemplate"])
		made := 0
		if image == "two" {
			made = 1
		}
		expect(t, "versions that were made", made, a.Calls()["CreateLaunchTemplateVersion"])
	}
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, before, during string }{
		{"not suspended", "", "AZRebalance"},
		{"suspended by others", "AZRebalance", "AZRebalance"},
		{"others are suspended", "ReplaceUnhealthy", "ReplaceUnhealthy,AZRebalance"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := start(t, func(s *clouds.Set) { s.Settings["suspended"] = tc.before })
			suspend := func(on bool) error { return a.workers().(cloud.Suspender).Suspend(t.Context(), on) }
			// Each call fails once, before and after it was done.
			for _, on := range []bool{true, false} {
				for _, call := range []string{"DescribeAutoScalingGroups", "CreateOrUpdateTags", "SuspendProcesses", "ResumeProcesses", "DeleteTags"} {
					a.Fault(clouds.Fault{Kind: clouds.DropBefore, Call: call, Times: 1})
					a.Fault(clouds.Fault{Kind: clouds.DropAfter, Call: call, Times: 1})
				}
				a.wait(func() error { return suspend(on) })
				a.wait(func() error { return suspend(on) })
				a.ClearFaults()
				want := tc.during
				if !on {
					want = tc.before
				}
				expect(t, "what is suspended", want, a.set().Settings["suspended"])
			}
			expect(t, "tags", 0, len(a.set().Tags))
		})
	}
}

// The figures that docs/operations/aws.md gives.
func TestCalls(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	a.edit(func(s *clouds.Set) { s.Image = "two" })
	c := a.fresh()
	g := c.ScaleSet("workers")
	var set cloud.Set
	look := func() {
		g := c.Look("workers")
		var err error
		if set, err = g.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Machines(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	calls := func() (n int) {
		for call, times := range a.Calls() {
			if call != "DescribeInstances" { // of which there is one each 1000 instances, and one each two here
				n += times
			}
		}
		return n
	}
	look()
	before := calls()
	look()
	expect(t, "a look", 5, calls()-before)
	before = calls()
	for _, change := range []cloud.Change{{Add: 1, Zone: zones[0], Token: "one"}, {Delete: a.ids()[:1], Token: "two"}} {
		o, err := g.Prepare(t.Context(), &set, change)
		if err != nil {
			t.Fatal(err)
		}
		if o, err = g.Send(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		polls := a.Calls()["DescribeAutoScalingGroups"]
		a.done(o)
		before += a.Calls()["DescribeAutoScalingGroups"] - polls
	}
	expect(t, "a replacement, without its looks and polls", 4, calls()-before)
}
