// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/gcp"
)

// changes are one of each kind, with what has come of them in the end: how many machines were added and deleted, and the image.
func changes(p *project, set string) map[string]struct {
	change         cloud.Change
	added, deleted int
	image          string
} {
	return map[string]struct {
		change         cloud.Change
		added, deleted int
		image          string
	}{
		"add":    {cloud.Change{Add: 3, Token: "t1"}, 3, 0, "image-1"},
		"delete": {cloud.Change{Delete: p.ids(set)[1:3], Token: "t2"}, 0, 2, "image-1"},
		"image":  {cloud.Change{Image: "projects/moult-test/global/instanceTemplates/image-2", Token: "t3"}, 0, 0, "image-2"},
	}
}

// checkDone compares a set with what is to have come of a change that was done once.
func checkDone(t *testing.T, p *project, set string, before []string, c cloud.Change, added, deleted int, image string, progress cloud.Progress) {
	t.Helper()
	after := p.ids(set)
	s, _ := p.Set(set)
	if len(after) != len(before)+added-deleted || s.Capacity != len(after) || s.Image != image {
		t.Errorf("%d machines of %d, capacity %d, image %s", len(after), len(before), s.Capacity, s.Image)
	}
	for _, id := range c.Delete {
		if slices.Contains(after, id) {
			t.Errorf("%s is still there", id)
		}
	}
	got := slices.Sorted(slices.Values(progress.Added))
	want := slices.DeleteFunc(after, func(id string) bool { return slices.Contains(before, id) })
	if diff := gocmp.Diff(want, got, gocmp.Transformer("empty", func(ids []string) string { return strings.Join(ids, " ") })); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
}

// A process may end at any point, and the next one knows what was written down last. It may also send again what was sent.
func TestCrashes(t *testing.T) {
	for _, set := range []clouds.Set{zonal("pool", 4), regional("pool", 4), settings(zonal("pool", 4), double.PageSize, "1", double.Lasting, "0")} {
		for _, name := range []string{"add", "delete", "image"} {
			for _, crash := range []string{"never", "before sending", "after sending", "sends again", "after each poll", "sends and polls again"} {
				t.Run(strings.Join([]string{set.Name, set.Settings[double.Lasting], name, crash}, " "), func(t *testing.T) {
					p := newProject(t, set)
					before := p.ids(set.Name)
					test := changes(p, set.Name)[name]
					s := p.cloud(t).ScaleSet(set.Name)
					same := func() cloud.ScaleSet { return s }
					anew := func() cloud.ScaleSet { return p.cloud(t).ScaleSet(set.Name) }
					written := prepared(t, s, test.change)
					var progress cloud.Progress
					var err error
					switch crash {
					case "never":
						progress, err = polled(t, same, sent(t, same, written))
					case "before sending":
						progress, err = polled(t, anew, sent(t, anew, written))
					case "after sending": // what it has learned is lost
						sent(t, same, written)
						progress, err = polled(t, anew, sent(t, anew, written))
					case "sends again":
						o := sent(t, same, sent(t, same, written))
						sent(t, anew, written)
						progress, err = polled(t, same, o)
					case "after each poll":
						o := sent(t, same, written)
						await(t, "the end", func() bool {
							_, progress, err = anew().Poll(t.Context(), o)
							return err != nil || progress.Done
						})
					case "sends and polls again":
						if _, err := polled(t, same, sent(t, same, written)); err != nil {
							t.Fatal(err)
						}
						progress, err = polled(t, anew, sent(t, anew, written))
					}
					if err != nil {
						t.Fatal(err)
					}
					checkDone(t, p, set.Name, before, test.change, test.added, test.deleted, test.image, progress)
				})
			}
		}
	}
}

// Ids of requests are forgotten after a while. Names and the fingerprint then tell that something was done.
func TestForgottenRequests(t *testing.T) {
	for _, late := range []string{"false", "true"} {
		for _, name := range []string{"add", "delete", "image"} {
			t.Run(name+" "+late, func(t *testing.T) {
				set := settings(regional("pool", 4), double.Forgetful, "true", double.LateErrors, late)
				p := newProject(t, set)
				before := p.ids(set.Name)
				test := changes(p, set.Name)[name]
				anew := func() cloud.ScaleSet { return p.cloud(t).ScaleSet(set.Name) }
				written := prepared(t, anew(), test.change)
				sent(t, anew, written)
				if _, err := polled(t, anew, sent(t, anew, written)); err != nil {
					t.Fatal(err)
				}
				progress, err := polled(t, anew, sent(t, anew, written))
				if err != nil {
					t.Fatal(err)
				}
				checkDone(t, p, set.Name, before, test.change, test.added, test.deleted, test.image, progress)
			})
		}
	}
}

// Whatever goes wrong once on the wire, a change is done once.
func TestFaultsOfTheWire(t *testing.T) {
	kinds := map[clouds.FaultKind]cloud.Kind{
		clouds.Throttled: cloud.KindThrottled, clouds.Denied: cloud.KindDenied, clouds.Unavailable: cloud.KindUnavailable,
		clouds.DropBefore: cloud.KindUnavailable, clouds.DropAfter: cloud.KindUnavailable, clouds.Truncated: cloud.KindUnavailable, clouds.Twice: "",
	}
	sends := map[string]string{"add": "createInstances", "delete": "deleteInstances", "image": "patch"}
	for fault, kind := range kinds {
		for name, call := range sends {
			for _, set := range []clouds.Set{zonal("pool", 4), regional("pool", 4)} {
				t.Run(strings.Join([]string{string(fault), name, set.Name}, " "), func(t *testing.T) {
					p := newProject(t, set)
					before := p.ids(set.Name)
					test := changes(p, set.Name)[name]
					anew := func() cloud.ScaleSet { return p.cloud(t).ScaleSet(set.Name) }
					o := prepared(t, anew(), test.change)
					p.Fault(clouds.Fault{Kind: fault, Call: call, Times: 1})
					next, err := anew().Send(t.Context(), o)
					wantKind(t, "sending", err, kind, "group "+set.Name)
					if err != nil && next != o {
						t.Errorf("the operation has changed to %+v", next)
					}
					if fault == clouds.Throttled && cloud.RetryAfter(err).Seconds() != 3 {
						t.Errorf("again after %v, want 3s", cloud.RetryAfter(err))
					}
					o = sent(t, anew, next)
					// Asking is no end, however it goes wrong.
					for _, call := range []string{"operations.get", "listManagedInstances"} {
						p.Fault(clouds.Fault{Kind: fault, Call: call, Times: 2})
					}
					progress, err := polled(t, anew, o)
					if err != nil {
						t.Fatal(err)
					}
					checkDone(t, p, set.Name, before, test.change, test.added, test.deleted, test.image, progress)
				})
			}
		}
	}
}

// Reading says what has gone wrong.
func TestFaultsOfReading(t *testing.T) {
	set := zonal("pool", 2)
	for fault, kind := range map[clouds.FaultKind]cloud.Kind{
		clouds.Throttled: cloud.KindThrottled, clouds.Denied: cloud.KindDenied, clouds.Unavailable: cloud.KindUnavailable, clouds.Conflict: cloud.KindConflict,
		clouds.DropAfter: cloud.KindUnavailable, clouds.Truncated: cloud.KindUnavailable,
	} {
		t.Run(string(fault), func(t *testing.T) {
			p := newProject(t, set)
			s := p.cloud(t).ScaleSet(set.Name)
			p.Fault(clouds.Fault{Kind: fault, Call: "get"})
			_, err := s.Describe(t.Context())
			wantKind(t, "describing", err, kind, "reading group "+set.Name)
			p.ClearFaults()
			p.Fault(clouds.Fault{Kind: fault, Call: "listManagedInstances"})
			_, err = s.Machines(t.Context())
			wantKind(t, "listing", err, kind, "listing the machines of group "+set.Name)
		})
	}
}

// A machine that there is no quota for is not left to the group, which would go on trying.
func TestQuota(t *testing.T) {
	for _, set := range []clouds.Set{zonal("pool", 2), regional("pool", 2)} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(set.Name, " ", lost), func(t *testing.T) {
				p := newProject(t, set)
				s := p.cloud(t).ScaleSet(set.Name)
				p.Fault(clouds.Fault{Kind: clouds.Quota, Call: "Add", Times: 1})
				if lost { // the answer to what removes them
					p.Fault(clouds.Fault{Kind: clouds.DropAfter, Call: "deleteInstances", Times: 1})
				}
				_, err := did(t, s, cloud.Change{Add: 2, Token: "t"})
				wantKind(t, "adding", err, cloud.KindQuota, "Quota 'CPUS' exceeded")
				if got, err := s.Describe(t.Context()); err != nil || got.Capacity != 2 {
					t.Errorf("capacity %d, %v", got.Capacity, err)
				}
				if got, err := s.Machines(t.Context()); err != nil || len(got) != 2 {
					t.Errorf("machines %+v, %v", got, err)
				}
				// Later there is.
				progress, err := did(t, s, cloud.Change{Add: 2, Token: "u"})
				if err != nil || len(progress.Added) != 2 || len(p.ids(set.Name)) != 4 {
					t.Errorf("%+v, %v", progress, err)
				}
			})
		}
	}
}

// Of machines of which some can't be made, the others are used.
func TestSomeCannotBeMade(t *testing.T) {
	set := regional("pool", 2)
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	same := func() cloud.ScaleSet { return s }
	before := p.ids(set.Name)
	o := sent(t, same, prepared(t, s, cloud.Change{Add: 3, Token: "t"}))
	await(t, "machines", func() bool {
		return !slices.ContainsFunc(p.Machines(set.Name), func(m clouds.Machine) bool { return m.State != clouds.Running })
	})
	if err := p.EditMachine(set.Name, p.Machines(set.Name)[3].ID, func(m *clouds.Machine) { m.State, m.Message = clouds.Failed, "no luck" }); err != nil {
		t.Fatal(err)
	}
	progress, err := polled(t, same, o)
	wantKind(t, "adding", err, cloud.KindFailed, "INTERNAL_ERROR: no luck")
	if len(progress.Added) != 2 {
		t.Errorf("%+v", progress)
	}
	after := slices.DeleteFunc(p.ids(set.Name), func(id string) bool { return slices.Contains(before, id) })
	if diff := gocmp.Diff(after, slices.Sorted(slices.Values(progress.Added))); diff != "" {
		t.Errorf("added (-there +said):\n%s", diff)
	}
	if got, _ := p.Set(set.Name); got.Capacity != 4 {
		t.Errorf("capacity %d, want 4", got.Capacity)
	}
}

// An autoscaler may take machines away before they are seen to be there.
func TestSomeAreGoneAgain(t *testing.T) {
	set := zonal("pool", 2)
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	same := func() cloud.ScaleSet { return s }
	o := sent(t, same, prepared(t, s, cloud.Change{Add: 2, Token: "t"}))
	id := p.Machines(set.Name)[3].ID
	await(t, "machines", func() bool { return p.Machines(set.Name)[3].State == clouds.Running })
	if err := p.Kill(set.Name, id, true); err != nil {
		t.Fatal(err)
	}
	progress, err := polled(t, same, o)
	if err != nil || len(progress.Added) != 1 {
		t.Errorf("%+v, %v", progress, err)
	}
	// And all of them.
	o = sent(t, same, prepared(t, s, cloud.Change{Add: 1, Token: "u"}))
	await(t, "a machine", func() bool { all := p.Machines(set.Name); return all[len(all)-1].State == clouds.Running })
	all := p.Machines(set.Name)
	if err := p.Kill(set.Name, all[len(all)-1].ID, true); err != nil {
		t.Fatal(err)
	}
	_, err = polled(t, same, o)
	wantKind(t, "adding", err, cloud.KindFailed, "it has none of them")
}

func TestFailedOperations(t *testing.T) {
	set := regional("pool", 3)
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	before := p.ids(set.Name)

	p.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add", Times: 1})
	_, err := did(t, s, cloud.Change{Add: 2, Token: "a"})
	wantKind(t, "adding", err, cloud.KindFailed, "INTERNAL_ERROR")
	await(t, "the end of what has failed", func() bool { return len(p.Machines(set.Name)) == 3 })

	p.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: 1})
	_, err = did(t, s, cloud.Change{Delete: before[:1], Token: "b"})
	wantKind(t, "deleting", err, cloud.KindFailed, "INTERNAL_ERROR")

	if got, _ := p.Set(set.Name); got.Capacity != 3 || !slices.Equal(p.ids(set.Name), before) {
		t.Errorf("capacity %d, machines %q, want those of before, %q", got.Capacity, p.ids(set.Name), before)
	}
	if _, err = did(t, s, cloud.Change{Delete: before[:1], Token: "c"}); err != nil || len(p.ids(set.Name)) != 2 {
		t.Errorf("%q, %v", p.ids(set.Name), err)
	}

	if err := p.EditMachine(set.Name, p.Machines(set.Name)[0].ID, func(m *clouds.Machine) { m.Protected = true }); err != nil {
		t.Fatal(err)
	}
	_, err = did(t, s, cloud.Change{Delete: p.ids(set.Name)[:1], Token: "d"})
	wantKind(t, "deleting what is protected", err, cloud.KindInvalid, "protected against deletion")
}

// What takes long is not done before it is.
func TestSlow(t *testing.T) {
	set := settings(zonal("pool", 2), double.Lasting, "4")
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	o := prepared(t, s, cloud.Change{Add: 1, Token: "t"})
	_, progress, err := s.Poll(t.Context(), o)
	if err != nil || progress.Done {
		t.Fatalf("before it is sent: %+v, %v", progress, err)
	}
	o, err = s.Send(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if o, progress, err = s.Poll(t.Context(), o); err != nil || progress.Done {
			t.Fatalf("poll %d: %+v, %v", i, progress, err)
		}
	}
	if progress, err = polled(t, func() cloud.ScaleSet { return s }, o); err != nil || len(progress.Added) != 1 {
		t.Errorf("%+v, %v", progress, err)
	}
	// A machine that goes is not gone yet.
	p.Fault(clouds.Fault{Kind: clouds.Slow})
	if _, err := did(t, s, cloud.Change{Delete: progress.Added, Token: "u"}); err != nil || len(p.Machines(set.Name)) != 2 {
		t.Errorf("%d machines, %v", len(p.Machines(set.Name)), err)
	}
}

func TestRefusedChanges(t *testing.T) {
	set := zonal("pool", 3)
	set.Max = 4
	p := newProject(t, set, settings(zonal("own", 1), double.UpdatePolicy, "PROACTIVE"))
	c := p.cloud(t)
	tests := map[string]struct {
		set    string
		change cloud.Change
		kind   cloud.Kind
	}{
		"one more than the maximum":  {set.Name, cloud.Change{Add: 2, Token: "t"}, cloud.KindFull},
		"as many as the maximum":     {set.Name, cloud.Change{Add: 1, Token: "t"}, ""},
		"in its zone":                {set.Name, cloud.Change{Add: 1, Zone: "europe-west1-b", Token: "t"}, ""},
		"nothing":                    {set.Name, cloud.Change{Token: "t"}, cloud.KindInvalid},
		"no token":                   {set.Name, cloud.Change{Add: 1}, cloud.KindInvalid},
		"no template":                {set.Name, cloud.Change{Image: "projects/x/global/images/y", Token: "t"}, cloud.KindInvalid},
		"a template by its name":     {set.Name, cloud.Change{Image: "image-2", Token: "t"}, ""},
		"no machine":                 {set.Name, cloud.Change{Delete: []string{"instances/x"}, Token: "t"}, cloud.KindInvalid},
		"unfit":                      {"zones/europe-west1-b/own", cloud.Change{Add: 1, Token: "t"}, cloud.KindInvalid},
		"image of one that is unfit": {"zones/europe-west1-b/own", cloud.Change{Image: "image-2", Token: "t"}, cloud.KindInvalid},
		"surplus of one that is unfit": {
			"zones/europe-west1-b/own", cloud.Change{Delete: []string{"zones/europe-west1-b/instances/own-0000"}, Token: "t"}, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := c.ScaleSet(test.set)
			described, err := s.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Prepare(t.Context(), &described, test.change)
			wantKind(t, "preparing", err, test.kind, "")
		})
	}
}

// A set that another client has changed takes no image; it takes machines, and loses them.
func TestConflict(t *testing.T) {
	set := zonal("pool", 2)
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	o := prepared(t, s, cloud.Change{Image: "image-2", Token: "t"})
	if err := p.Edit(set.Name, func(s *clouds.Set) error { s.Image = "image-3"; return nil }); err != nil {
		t.Fatal(err)
	}
	_, err := s.Send(t.Context(), o)
	wantKind(t, "sending", err, cloud.KindConflict, "fingerprint")
	if got, _ := p.Set(set.Name); got.Image != "image-3" {
		t.Errorf("image %s", got.Image)
	}
	if _, err := did(t, s, cloud.Change{Image: "image-2", Token: "u"}); err != nil {
		t.Error(err)
	}
	if got, _ := p.Set(set.Name); got.Image != "image-2" {
		t.Errorf("image %s", got.Image)
	}
	busy := func(busy bool) {
		if err := p.Edit(set.Name, func(s *clouds.Set) error { s.Busy = busy; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	o = prepared(t, s, cloud.Change{Add: 1, Token: "v"})
	busy(true)
	_, err = s.Send(t.Context(), o)
	wantKind(t, "sending to a busy group", err, cloud.KindConflict, "not ready")
	busy(false)
	if _, err := did(t, s, cloud.Change{Add: 1, Token: "w"}); err != nil || len(p.ids(set.Name)) != 3 {
		t.Errorf("%q, %v", p.ids(set.Name), err)
	}
}

// A machine that is gone, or goes already, is deleted no second time, and counted no second time.
func TestDeleteWhatIsGone(t *testing.T) {
	set := regional("pool", 4)
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	ids := p.ids(set.Name)
	for _, id := range ids[:2] {
		if err := p.Kill(set.Name, id[strings.LastIndexByte(id, '/')+1:], true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := did(t, s, cloud.Change{Delete: ids[:3], Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := did(t, s, cloud.Change{Delete: ids[:3], Token: "u"}); err != nil {
		t.Fatal(err)
	}
	if got, _ := p.Set(set.Name); got.Capacity != 1 || !slices.Equal(p.ids(set.Name), ids[3:]) {
		t.Errorf("capacity %d, machines %q", got.Capacity, p.ids(set.Name))
	}
}

// Turns that run side by side do not get into each other's way.
func TestManyAtOnce(t *testing.T) {
	set := settings(regional("pool", 30), double.PageSize, "7")
	p := newProject(t, set)
	c := p.cloud(t)
	ids := p.ids(set.Name)
	var operations []cloud.Operation
	s := c.ScaleSet(set.Name)
	same := func() cloud.ScaleSet { return s }
	operations = append(operations, sent(t, same, prepared(t, s, cloud.Change{Add: 10, Token: "add"})))
	for i := range 8 {
		operations = append(operations, sent(t, same, prepared(t, s, cloud.Change{Delete: ids[i : i+1], Token: fmt.Sprint("delete", i)})))
	}
	for _, o := range operations {
		if _, err := polled(t, same, o); err != nil {
			t.Error(err)
		}
	}
	if got, _ := p.Set(set.Name); got.Capacity != 32 || len(p.ids(set.Name)) != 32 {
		t.Errorf("capacity %d, %d machines, want 32", got.Capacity, len(p.ids(set.Name)))
	}
}
