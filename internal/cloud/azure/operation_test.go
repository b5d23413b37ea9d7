// SPDX-License-Identifier: Apache-2.0

package azure_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/azure"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/tier"
)

// capacity checks how many machines a set is to have, and has.
func (a *account) capacity(t *testing.T, want int) {
	t.Helper()
	s, _ := a.Set("s")
	there := 0
	for _, m := range a.Machines("s") {
		if m.State != clouds.Deleting {
			there++
		}
	}
	if s.Capacity != want || there != want {
		t.Errorf("the set is to have %d machines, and has %d; want %d", s.Capacity, there, want)
	}
}

// machineCount is how often the world was asked for something.
func (a *account) machineCount(name string) int {
	n := 0
	for _, c := range a.Journal() {
		if c.Name == name {
			n++
		}
	}
	return n
}

func TestAdd(t *testing.T) {
	for name, set := range map[string]clouds.Set{"uniform": uniform(), "flexible": flexible()} {
		t.Run(name, func(t *testing.T) {
			both(t, clouds.Options{CreateTime: 20 * time.Millisecond}, []clouds.Set{set}, func(t *testing.T, a *account) {
				s := a.over(t).ScaleSet("S")
				o := send(t, s, prepare(t, s, cloud.Change{Add: 2}))
				if again := send(t, s, o); again != o {
					t.Errorf("what is sent is sent again: %v", again)
				}
				// Another process goes on with it.
				progress, err := finish(t, a.over(t).ScaleSet("s"), o)
				if err != nil {
					t.Fatal(err)
				}
				if want := []string{machine(set, "3"), machine(set, "4")}; !slices.Equal(progress.Added, want) {
					t.Errorf("added %v, want %v", progress.Added, want)
				}
				a.capacity(t, 5)
				now, _ := a.Set("s")
				if diff := cmp.Diff(map[string]string{"team": "x", "moult-operation": "t1"}, now.Tags); diff != "" {
					t.Errorf("tags (-want +got):\n%s", diff)
				}
				if busy := describe(t, s).Busy; busy != "" {
					t.Errorf("the set is busy still: %s", busy)
				}
			})
		})
	}
}

// TestChangesTakeEffectOnce lets each request of each change go wrong in each way, and sends and polls until it is through.
func TestChangesTakeEffectOnce(t *testing.T) {
	changes := map[string]struct {
		change cloud.Change
		calls  []string
		left   int
		image  string
		world  string
	}{
		"add":    {cloud.Change{Add: 2}, []string{"Get", "Update", "ListMachines"}, 5, "a", "Add"},
		"delete": {cloud.Change{Delete: []string{"0", "2"}}, []string{"Get", "DeleteInstances", "ListMachines"}, 1, "a", "Delete"},
		"image":  {cloud.Change{Image: "b"}, []string{"Get", "Update"}, 3, "b", "Edit"},
	}
	faults := []clouds.FaultKind{
		clouds.DropBefore, clouds.DropAfter, clouds.Twice, clouds.Truncated, clouds.Throttled, clouds.Unavailable, clouds.Denied, clouds.Conflict,
	}
	for name, c := range changes {
		for _, call := range c.calls {
			for _, fault := range faults {
				t.Run(fmt.Sprintf("%s/%s/%s", name, call, fault), func(t *testing.T) {
					a := open(t, clouds.Options{}, uniform())
					s := a.over(t).ScaleSet("s")
					o := prepare(t, s, c.change)
					a.Fault(clouds.Fault{Kind: fault, Call: call, Times: 1})
					sent, kinds := settle(t, s, o)
					if fault == clouds.Conflict && slices.Contains(kinds, cloud.KindConflict) {
						// It has had no effect: another one is prepared.
						again := c.change
						again.Token = "t2"
						sent, _ = settle(t, s, prepare(t, s, again))
					}
					progress, err := finish(t, s, sent)
					if err != nil {
						t.Fatal(err)
					}
					if c.change.Add != len(progress.Added) {
						t.Errorf("added %v", progress.Added)
					}
					a.capacity(t, c.left)
					if now, _ := a.Set("s"); now.Image != c.image {
						t.Errorf("image %s", now.Image)
					}
					// A change of capacity is an edit too, for its tag.
					if n := a.machineCount(c.world); n != 1 {
						t.Errorf("done %d times: %v", n, a.Journal())
					}
				})
			}
		}
	}
}

// TestUnderWay looks at an addition that takes its time.
func TestUnderWay(t *testing.T) {
	w := world(t, clouds.Options{CreateTime: time.Hour})
	if err := w.Create(t.Context(), uniform()); err != nil {
		t.Fatal(err)
	}
	a := double.New(w, double.Options{})
	s := provider(t, azure.Options{Transport: inProcess{a}}).ScaleSet("s")
	o := send(t, s, prepare(t, s, cloud.Change{Add: 2}))
	if describe(t, s).Busy == "" {
		t.Error("the set is not busy")
	}
	for range 3 {
		next, progress, err := s.Poll(t.Context(), o)
		want := cloud.Progress{Added: []string{"3", "4"}}
		if diff := cmp.Diff(want, progress); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		o = next
	}
	a.Forget()
	if _, progress, err := s.Poll(t.Context(), o); err != nil || progress.Done || len(progress.Added) != 2 {
		t.Errorf("%v, %v", progress, err)
	}
}

// cut ends a process with one of its requests: that one and all that follow fail. It may have been delivered.
type cut struct {
	inProcess
	left      int
	delivered bool
}

func (c *cut) Do(r *http.Request) (*http.Response, error) {
	c.left--
	switch {
	case c.left == 0 && c.delivered:
		_, _ = c.inProcess.Do(r)
	case c.left > 0:
		return c.inProcess.Do(r)
	}
	return nil, io.ErrUnexpectedEOF
}

// TestCrash ends the process at each request of each change, and has another one go on with what was written down.
func TestCrash(t *testing.T) {
	for name, c := range map[string]struct {
		change cloud.Change
		left   int
		world  string
	}{
		"add": {cloud.Change{Add: 2}, 5, "Add"}, "delete": {cloud.Change{Delete: []string{"0", "2"}}, 1, "Delete"}, "image": {cloud.Change{Image: "b"}, 3, "Edit"},
	} {
		for _, delivered := range []bool{false, true} {
			for at, crashed := 1, true; crashed; at++ {
				t.Run(fmt.Sprintf("%s/%v/%d", name, delivered, at), func(t *testing.T) {
					a := open(t, clouds.Options{CreateTime: time.Millisecond, DeleteTime: time.Millisecond}, uniform())
					c.change.Token = fmt.Sprintf("t%d", at)
					var written cloud.Operation
					sent := false
					// pass is what a process does until it fails, and reports whether it has come to the end.
					pass := func(s cloud.ScaleSet) bool {
						if written.State == "" {
							set, err := s.Describe(t.Context())
							if err != nil {
								return false
							}
							if written, err = s.Prepare(t.Context(), &set, c.change); err != nil {
								return false
							}
						}
						if !sent {
							o, err := s.Send(t.Context(), written)
							if err != nil {
								return false
							}
							written, sent = o, true
						}
						for deadline := time.Now().Add(eventually); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
							o, progress, err := s.Poll(t.Context(), written)
							if err != nil {
								return false
							}
							written = o
							if progress.Done {
								if len(progress.Added) != c.change.Add {
									t.Errorf("added %v", progress.Added)
								}
								return true
							}
						}
						t.Error("the operation does not end")
						return true
					}
					crashed = !pass(provider(t, azure.Options{Transport: &cut{inProcess{a.azure}, at, delivered}}).ScaleSet("s"))
					if crashed && !pass(a.over(t).ScaleSet("s")) {
						t.Error("the other process does not come to the end")
					}
					a.capacity(t, c.left)
					if n := a.machineCount(c.world); n != 1 {
						t.Errorf("done %d times: %v", n, a.Journal())
					}
				})
			}
		}
	}
}

// TestFaultsAreNamed shows what each fault of Send is to who has sent.
func TestFaultsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		fault clouds.Fault
		want  cloud.Kind
		after time.Duration
	}{
		"throttled":   {clouds.Fault{Kind: clouds.Throttled, Call: "Update"}, cloud.KindThrottled, time.Second},
		"denied":      {clouds.Fault{Kind: clouds.Denied, Call: "Update"}, cloud.KindDenied, 0},
		"unavailable": {clouds.Fault{Kind: clouds.Unavailable, Call: "Update"}, cloud.KindUnavailable, 0},
		"gone":        {clouds.Fault{Kind: clouds.DropBefore, Call: "Update"}, cloud.KindUnavailable, 0},
		"conflict":    {clouds.Fault{Kind: clouds.Conflict, Call: "Update"}, cloud.KindConflict, 0},
		"quota":       {clouds.Fault{Kind: clouds.Quota}, cloud.KindQuota, 0},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, clouds.Options{}, []clouds.Set{uniform()}, func(t *testing.T, a *account) {
				s := a.over(t).ScaleSet("s")
				o := prepare(t, s, cloud.Change{Add: 1})
				test.fault.Times = 1
				a.Fault(test.fault)
				_, err := s.Send(t.Context(), o)
				if cloud.KindOf(err) != test.want || cloud.RetryAfter(err) != test.after {
					t.Errorf("%v: %s after %s, want %s after %s", err, cloud.KindOf(err), cloud.RetryAfter(err), test.want, test.after)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("the error has lines:\n%v", err)
				}
				a.capacity(t, 3)
				// All but a conflict can be sent again.
				if test.want == cloud.KindConflict {
					return
				}
				if _, err := finish(t, s, send(t, s, o)); err != nil {
					t.Error(err)
				}
				a.capacity(t, 4)
			})
		})
	}
}

func TestPrepareRefuses(t *testing.T) {
	a := open(t, clouds.Options{}, uniform())
	s := a.over(t).ScaleSet("s")
	for name, test := range map[string]struct {
		change cloud.Change
		edit   func(*cloud.Set)
		want   cloud.Kind
	}{
		"no token":   {cloud.Change{Add: 1}, nil, cloud.KindInvalid},
		"nothing":    {cloud.Change{Token: "t"}, nil, cloud.KindInvalid},
		"two things": {cloud.Change{Token: "t", Add: 1, Image: "b"}, nil, cloud.KindInvalid},
		"too many":   {cloud.Change{Token: "t", Add: 101}, nil, cloud.KindInvalid},
		"no image":   {cloud.Change{Token: "t", Image: "a/b"}, nil, cloud.KindInvalid},
		"unfit":      {cloud.Change{Token: "t", Add: 1}, func(s *cloud.Set) { s.Unfit = "so" }, cloud.KindInvalid},
		"full":       {cloud.Change{Token: "t", Add: 4}, nil, cloud.KindFull},
		"to the max": {cloud.Change{Token: "t", Add: 3}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := describe(t, s)
			if test.edit != nil {
				test.edit(set)
			}
			_, err := s.Prepare(t.Context(), set, test.change)
			if cloud.KindOf(err) != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if n := a.Calls()["Update"]; n != 0 {
		t.Errorf("preparing has changed something: %v", a.Calls())
	}
}

// TestSomebodyElse changes the set between a preparation and its sending.
func TestSomebodyElse(t *testing.T) {
	for name, elsewhere := range map[string]func(*account) error{
		"autoscaler up":   func(a *account) error { _, err := a.Scale("s", 4); return err },
		"autoscaler down": func(a *account) error { _, err := a.Scale("s", 2); return err },
		"tags": func(a *account) error {
			return a.Edit("s", func(s *clouds.Set) error { s.Tags["team"] = "y"; return nil })
		},
		"a machine dies": func(a *account) error { return a.Kill("s", "1", true) },
	} {
		for what, change := range map[string]cloud.Change{"add": {Add: 1}, "image": {Image: "b"}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				a := open(t, clouds.Options{}, uniform())
				s := a.over(t).ScaleSet("s")
				o := prepare(t, s, change)
				if err := elsewhere(a); err != nil {
					t.Fatal(err)
				}
				before, _ := a.Set("s")
				if _, err := s.Send(t.Context(), o); cloud.KindOf(err) != cloud.KindConflict {
					t.Errorf("%v, want a conflict", err)
				}
				if after, _ := a.Set("s"); cmp.Diff(before, after) != "" {
					t.Errorf("the set is changed (-before +after):\n%s", cmp.Diff(before, after))
				}
				change.Token = "t2"
				if _, err := finish(t, s, send(t, s, prepare(t, s, change))); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// between does something before a PATCH arrives.
type between struct {
	inProcess
	do func()
}

func (b *between) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && b.do != nil {
		b.do()
		b.do = nil
	}
	return b.inProcess.Do(r)
}

// TestSomebodyElseIsFaster changes the set while a PATCH is on its way, after all that was read of it.
func TestSomebodyElseIsFaster(t *testing.T) {
	for what, change := range map[string]cloud.Change{"add": {Add: 1}, "image": {Image: "b"}} {
		t.Run(what, func(t *testing.T) {
			a := open(t, clouds.Options{}, uniform())
			transport := &between{inProcess: inProcess{a.azure}}
			s := provider(t, azure.Options{Transport: transport}).ScaleSet("s")
			o := prepare(t, s, change)
			transport.do = func() {
				if _, err := a.Scale("s", 5); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Send(t.Context(), o); cloud.KindOf(err) != cloud.KindConflict {
				t.Errorf("%v, want a conflict", err)
			}
			a.capacity(t, 5)
			if now, _ := a.Set("s"); now.Image != "a" || now.Tags["moult-operation"] != "" {
				t.Errorf("image %s, tags %v", now.Image, now.Tags)
			}
		})
	}
}

// TestLaterChanges does other changes after one whose answer was lost: it is known as done still.
func TestLaterChanges(t *testing.T) {
	set := uniform()
	set.Max = 0
	a := open(t, clouds.Options{}, set)
	s := a.over(t).ScaleSet("s")
	first := prepare(t, s, cloud.Change{Add: 1, Token: "first"})
	a.Fault(clouds.Fault{Kind: clouds.DropAfter, Call: "Update", Times: 1})
	if _, err := s.Send(t.Context(), first); cloud.KindOf(err) != cloud.KindUnavailable {
		t.Fatal(err)
	}
	for i := range 6 {
		if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Add: 1, Token: fmt.Sprintf("%032d", i)}))); err != nil {
			t.Fatal(err)
		}
	}
	progress, err := finish(t, s, send(t, s, first))
	if err != nil || !slices.Equal(progress.Added, []string{"3"}) {
		t.Errorf("added %v, %v", progress.Added, err)
	}
	a.capacity(t, 10)
	if now, _ := a.Set("s"); len(now.Tags["moult-operation"]) > 256 || len(strings.Fields(now.Tags["moult-operation"])) != 7 {
		t.Errorf("tag %q", now.Tags["moult-operation"])
	}
}

func TestDelete(t *testing.T) {
	for name, set := range map[string]clouds.Set{"uniform": uniform(), "flexible": flexible()} {
		t.Run(name, func(t *testing.T) {
			both(t, clouds.Options{DeleteTime: 20 * time.Millisecond}, []clouds.Set{set}, func(t *testing.T, a *account) {
				s := a.over(t).ScaleSet("s")
				o := prepare(t, s, cloud.Change{Delete: []string{machine(set, "0"), machine(set, "1"), machine(set, "0")}})
				sent := send(t, s, o)
				// Sent a second time, by another process that does not know of the first.
				again := send(t, a.over(t).ScaleSet("s"), o)
				for _, o := range []cloud.Operation{sent, again} {
					if _, err := finish(t, a.over(t).ScaleSet("s"), o); err != nil {
						t.Error(err)
					}
				}
				a.capacity(t, 1)
				// And once more when they are gone.
				last := send(t, s, o)
				if _, progress, err := s.Poll(t.Context(), last); err != nil || !progress.Done {
					t.Errorf("%v, %v", progress, err)
				}
				a.capacity(t, 1)
			})
		})
	}
}

// TestDeleteWhatIsPartlyGone deletes machines of which some are gone, are going, or never were.
func TestDeleteWhatIsPartlyGone(t *testing.T) {
	a := open(t, clouds.Options{DeleteTime: 10 * time.Millisecond}, uniform())
	s := a.over(t).ScaleSet("s")
	o := prepare(t, s, cloud.Change{Delete: []string{"0", "1", "77"}})
	if _, err := a.Delete("s", []string{"1"}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := finish(t, s, send(t, s, o)); err != nil {
		t.Error(err)
	}
	a.capacity(t, 1)
}

func TestDeleteFails(t *testing.T) {
	for name, forget := range map[string]bool{"asked about": false, "looked at": true} {
		t.Run(name, func(t *testing.T) {
			a := open(t, clouds.Options{}, uniform())
			s := a.over(t).ScaleSet("s")
			a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: 1})
			o := send(t, s, prepare(t, s, cloud.Change{Delete: []string{"0"}}))
			if forget {
				a.azure.Forget()
			}
			if _, err := finish(t, s, o); cloud.KindOf(err) != cloud.KindFailed {
				t.Errorf("%v, want that it has failed", err)
			}
			a.capacity(t, 3)
		})
	}
}

// TestAddFails has Azure take an addition, and not get it done.
func TestAddFails(t *testing.T) {
	for code, want := range map[string]cloud.Kind{
		"AllocationFailed": cloud.KindQuota, "ZonalAllocationFailed": cloud.KindQuota, "QuotaExceeded": cloud.KindQuota, "SkuNotAvailable": cloud.KindQuota,
		"LinkedAuthorizationFailed": cloud.KindDenied, "OSProvisioningTimedOut": cloud.KindFailed,
	} {
		for name, forget := range map[string]bool{"asked about": false, "looked at": true} {
			t.Run(code+"/"+name, func(t *testing.T) {
				set := uniform()
				set.Settings = map[string]string{"failure": code}
				a := open(t, clouds.Options{}, set)
				s := a.over(t).ScaleSet("s")
				a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add", Times: 1})
				o := send(t, s, prepare(t, s, cloud.Change{Add: 2}))
				if forget {
					a.azure.Forget()
				}
				progress, err := finish(t, s, o)
				if cloud.KindOf(err) != want || !strings.Contains(err.Error(), code) {
					t.Errorf("%s, %v; want %s", cloud.KindOf(err), err, want)
				}
				// They count, and so they are named: who has asked for them deletes them.
				if !slices.Equal(progress.Added, []string{"3", "4"}) {
					t.Errorf("added %v", progress.Added)
				}
				if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Delete: progress.Added, Token: "t2"}))); err != nil {
					t.Error(err)
				}
				a.capacity(t, 3)
			})
		}
	}
}

// TestDeleteIsPreempted: another change of the scale set ends a deletion, which is then sent again, but not for ever.
func TestDeleteIsPreempted(t *testing.T) {
	for times, want := range map[int]cloud.Kind{2: "", 9: cloud.KindFailed} {
		set := uniform()
		set.Settings = map[string]string{"failure": "OperationPreempted"}
		a := open(t, clouds.Options{}, set)
		s := a.over(t).ScaleSet("s")
		a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: times})
		if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Delete: []string{"1"}}))); cloud.KindOf(err) != want {
			t.Errorf("preempted %d times: %v, want %q", times, err, want)
		}
	}
}

// without hides the machines that have failed: Azure has raised the capacity, and made nothing.
type without struct{ inProcess }

func (w without) Do(r *http.Request) (*http.Response, error) {
	answer, err := w.inProcess.Do(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/virtualMachines") {
		return answer, err
	}
	recorder := httptest.NewRecorder()
	hidden(recorder, answer)
	filtered := recorder.Result()
	filtered.Request = r
	return filtered, nil
}

func TestAddComesToNothing(t *testing.T) {
	for name, disturb := range map[string]func(*account){
		"ignored":         func(*account) {},
		"answer is lost":  func(a *account) { a.Fault(clouds.Fault{Kind: clouds.DropAfter, Call: "Update", Times: 1}) },
		"refused once":    func(a *account) { a.Fault(clouds.Fault{Kind: clouds.Conflict, Call: "Update", Times: 1}) },
		"not understood":  func(a *account) { a.Fault(clouds.Fault{Kind: clouds.Unavailable, Call: "Get", Times: 1}) },
		"delivered twice": func(a *account) { a.Fault(clouds.Fault{Kind: clouds.Twice, Call: "Update", Times: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			set := uniform()
			set.Settings = map[string]string{"failure": "AllocationFailed"}
			a := open(t, clouds.Options{}, set)
			s := provider(t, azure.Options{Transport: without{inProcess{a.azure}}}).ScaleSet("s")
			a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add", Times: 1})
			o := send(t, s, prepare(t, s, cloud.Change{Add: 2}))
			for deadline := time.Now().Add(eventually); describe(t, s).Busy != "" && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			disturb(a)
			progress, err := finish(t, s, o)
			if cloud.KindOf(err) != cloud.KindQuota || len(progress.Added) != 0 {
				t.Errorf("%v, %v", progress, err)
			}
			// Once more, by one who does not know of the end.
			if _, err := finish(t, s, o); cloud.KindOf(err) != cloud.KindQuota {
				t.Error(err)
			}
			if now, _ := a.Set("s"); now.Capacity != 3 {
				t.Errorf("capacity %d, want that from before", now.Capacity)
			}
		})
	}
}

// TestLostTokens polls with tokens that lead nowhere, or elsewhere.
func TestLostTokens(t *testing.T) {
	reached := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer elsewhere.Close()
	for name, spoil := range map[string]func(*account, *cloud.Operation){
		"forgotten": func(a *account, _ *cloud.Operation) { a.azure.Forget() },
		"denied":    func(a *account, _ *cloud.Operation) { a.Fault(clouds.Fault{Kind: clouds.Denied, Call: "GetOperation"}) },
		"elsewhere": func(_ *account, o *cloud.Operation) {
			o.State = strings.ReplaceAll(o.State, "https://management.azure.com", elsewhere.URL)
		},
		"other host": func(_ *account, o *cloud.Operation) {
			o.State = strings.ReplaceAll(o.State, "management.azure.com", "management.azure.com.example")
		},
		"nonsense": func(_ *account, o *cloud.Operation) { o.State = strings.ReplaceAll(o.State, `asyncURL`, "x") },
	} {
		for what, c := range map[string]struct {
			change cloud.Change
			left   int
		}{"add": {cloud.Change{Add: 2}, 5}, "delete": {cloud.Change{Delete: []string{"1"}}, 2}, "image": {cloud.Change{Image: "b"}, 3}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				a := open(t, clouds.Options{CreateTime: 5 * time.Millisecond, DeleteTime: 5 * time.Millisecond}, uniform())
				s := a.over(t).ScaleSet("s")
				o := send(t, s, prepare(t, s, c.change))
				spoil(a, &o)
				progress, err := finish(t, s, o)
				if err != nil || len(progress.Added) != c.change.Add {
					t.Errorf("%v, %v", progress, err)
				}
				a.capacity(t, c.left)
			})
		}
	}
	if reached > 0 {
		t.Error("a token has led the operator's credential elsewhere")
	}
}

// TestDeniedIsNoEnd takes all rights away while machines are added.
func TestDeniedIsNoEnd(t *testing.T) {
	a := open(t, clouds.Options{}, uniform())
	s := a.over(t).ScaleSet("s")
	o := send(t, s, prepare(t, s, cloud.Change{Add: 1}))
	a.Fault(clouds.Fault{Kind: clouds.Denied})
	if _, _, err := s.Poll(t.Context(), o); cloud.KindOf(err) != cloud.KindUnavailable {
		t.Errorf("%v, want that it must be asked again", err)
	}
	if _, err := s.Describe(t.Context()); cloud.KindOf(err) != cloud.KindDenied {
		t.Errorf("%v, want denied", err)
	}
	a.ClearFaults()
	if progress, err := finish(t, s, o); err != nil || len(progress.Added) != 1 {
		t.Errorf("%v, %v", progress, err)
	}
}

// TestAutoscalerMeanwhile adds and removes machines while an addition is under way.
func TestAutoscalerMeanwhile(t *testing.T) {
	t.Run("up", func(t *testing.T) {
		a := open(t, clouds.Options{CreateTime: 5 * time.Millisecond}, uniform())
		s := a.over(t).ScaleSet("s")
		o := send(t, s, prepare(t, s, cloud.Change{Add: 1}))
		if _, err := a.Scale("s", 6); err != nil {
			t.Fatal(err)
		}
		progress, err := finish(t, s, o)
		if err != nil || !slices.Equal(progress.Added, []string{"3"}) {
			t.Errorf("%v, %v", progress, err)
		}
	})
	t.Run("down", func(t *testing.T) {
		a := open(t, clouds.Options{}, uniform())
		s := a.over(t).ScaleSet("s")
		o := send(t, s, prepare(t, s, cloud.Change{Add: 2}))
		if err := a.Kill("s", "4", true); err != nil {
			t.Fatal(err)
		}
		a.azure.Forget()
		progress, err := finish(t, s, o)
		if cloud.KindOf(err) != cloud.KindFailed || !slices.Equal(progress.Added, []string{"3"}) {
			t.Errorf("%v, %v", progress, err)
		}
		a.capacity(t, 4)
	})
	t.Run("another image", func(t *testing.T) {
		a := open(t, clouds.Options{CreateTime: 5 * time.Millisecond}, uniform())
		s := a.over(t).ScaleSet("s")
		o := send(t, s, prepare(t, s, cloud.Change{Add: 1}))
		if err := a.Edit("s", func(s *clouds.Set) error { s.Image = "c"; return nil }); err != nil {
			t.Fatal(err)
		}
		progress, err := finish(t, s, o)
		if err != nil || !slices.Equal(progress.Added, []string{"3"}) {
			t.Errorf("a machine that was added is outdated at once, and lost: %v, %v", progress, err)
		}
	})
}

func TestSetImage(t *testing.T) {
	const gallery = "/subscriptions/x/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/d/versions/1.2.3"
	all := []string{
		"a", gallery, "canonical:ubuntu:24_04-lts:latest", "/CommunityGalleries/c/Images/i/Versions/1.0.0", "/SharedGalleries/s/Images/i/Versions/latest",
	}
	for _, from := range all {
		for _, to := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				set := uniform()
				set.Image = from
				a := open(t, clouds.Options{}, set)
				s := a.over(t).ScaleSet("s")
				before := describe(t, s)
				if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Image: to}))); err != nil {
					t.Fatal(err)
				}
				now, _ := a.Set("s")
				after := describe(t, s)
				if now.Image != to || now.Capacity != 3 {
					t.Errorf("image %s, capacity %d", now.Image, now.Capacity)
				}
				if same := from == to; (before.Model == after.Model) != same || (a.Calls()["Update"] == 0) != same {
					t.Errorf("model %s, then %s, by %v", before.Model, after.Model, a.Calls())
				}
				// And back, by the reference that the set has told itself.
				if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Image: before.Image, Token: "t2"}))); err != nil {
					t.Fatal(err)
				}
				if now, _ := a.Set("s"); now.Image != from {
					t.Errorf("set back to %s", now.Image)
				}
			})
		}
	}
}

// TestImageKeepsDisks sets an image: the disks of new machines stay as people want them.
func TestImageKeepsDisks(t *testing.T) {
	const disk = `"caching":"ReadOnly","createOption":"FromImage","diskSizeGB":128,"managedDisk":{"storageAccountType":"Premium_LRS"}`
	for name, settings := range map[string]map[string]string{
		"plain": {},
		"disks": {
			"osDisk":    `{` + disk + `,"writeAcceleratorEnabled":true}`,
			"dataDisks": `[{"caching":"None","createOption":"Empty","diskSizeGB":64,"lun":1}]`,
		},
		"ephemeral": {"osDisk": `{` + disk + `,"diffDiskSettings":{"option":"Local"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			set := uniform()
			set.Settings = settings
			a := open(t, clouds.Options{}, set)
			s := a.over(t).ScaleSet("s")
			before := describe(t, s)
			for i, image := range []string{"b", "a"} {
				if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Image: image, Token: fmt.Sprintf("t%d", i)}))); err != nil {
					t.Fatal(err)
				}
				now, _ := a.Set("s")
				for name, want := range settings {
					if got := now.Settings[name]; now.Image != image || got != want {
						t.Errorf("of image %s, %s is %s, want %s", now.Image, name, got, want)
					}
				}
			}
			if after := describe(t, s); after.Model != before.Model {
				t.Error("with the image of before, it is another model")
			}
		})
	}
}

// TestManyMachines adds machines to a large set and deletes some, with pages of answers.
func TestManyMachines(t *testing.T) {
	n := 150
	if tier.All {
		n = 1000
	}
	for name, set := range map[string]clouds.Set{"uniform": uniform(), "flexible": flexible()} {
		t.Run(name, func(t *testing.T) {
			set.Capacity, set.Max = n, 0
			w := world(t, clouds.Options{})
			if err := w.Create(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			a := &account{World: w, azure: double.New(w, double.Options{Page: 100})}
			s := provider(t, azure.Options{Transport: inProcess{a.azure}}).ScaleSet("s")
			machines, err := s.Machines(t.Context())
			if err != nil || len(machines) != n {
				t.Fatalf("%d machines, %v", len(machines), err)
			}
			o := prepare(t, s, cloud.Change{Add: 100})
			if len(o.State) > 9<<10 {
				t.Errorf("the state has %d bytes before anything is sent", len(o.State))
			}
			progress, err := finish(t, s, send(t, s, o))
			if err != nil || len(progress.Added) != 100 {
				t.Fatalf("%d added, %v", len(progress.Added), err)
			}
			if _, err := finish(t, s, send(t, s, prepare(t, s, cloud.Change{Delete: progress.Added, Token: "t2"}))); err != nil {
				t.Fatal(err)
			}
			a.capacity(t, n)
		})
	}
}

// TestCallsOfOneReplacement is the figure in docs/operations/azure.md.
func TestCallsOfOneReplacement(t *testing.T) {
	a := open(t, clouds.Options{}, uniform())
	s := a.over(t).ScaleSet("s")
	set := describe(t, s)
	o, err := s.Prepare(t.Context(), set, cloud.Change{Add: 1, Token: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	o = send(t, s, o)
	for done := false; !done; {
		var progress cloud.Progress
		if o, progress, err = s.Poll(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		done = progress.Done
	}
	if o, err = s.Prepare(t.Context(), set, cloud.Change{Delete: []string{"0"}, Token: "t2"}); err != nil {
		t.Fatal(err)
	}
	o = send(t, s, o)
	for done := false; !done; {
		var progress cloud.Progress
		if o, progress, err = s.Poll(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		done = progress.Done
	}
	calls := a.Calls()
	for name, n := range map[string]int{"Update": 1, "DeleteInstances": 1, "GetOperation": 0} {
		if calls[name] != n {
			t.Errorf("%s: %d calls, want %d", name, calls[name], n)
		}
	}
}
