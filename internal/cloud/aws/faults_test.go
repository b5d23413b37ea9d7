// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/tier"
)

// kindsOfFaults are what may happen to any call. Throttled and the like are answered, the others are not.
var kindsOfFaults = []clouds.FaultKind{
	clouds.Throttled, clouds.Conflict, clouds.Unavailable, clouds.DropBefore, clouds.DropAfter, clouds.Twice, clouds.Truncated,
}

// Each call of each change goes wrong in each way, and the program is killed before it has written down how the operation stands, or before that of
// the one before: what is done is done once.
func TestChangesAreDoneOnce(t *testing.T) {
	t.Parallel()
	lt := double.TemplateID("workers")
	for _, tc := range []struct {
		name   string
		change func(*clouds.Set)
		what   func(*account) cloud.Change
		end    int
		image  string
	}{
		{"launch", nil, func(*account) cloud.Change { return cloud.Change{Add: 2} }, 5, lt + ":2"},
		{"delete", nil, func(a *account) cloud.Change { return cloud.Change{Delete: a.ids()[:2]} }, 1, lt + ":2"},
		{"version", nil, func(*account) cloud.Change { return cloud.Change{Image: lt + ":1"} }, 3, lt + ":1"},
		{"image", nil, func(*account) cloud.Change { return cloud.Change{Image: double.ImageID("three")} }, 3, lt + ":3"},
		{"image at $Latest", func(s *clouds.Set) { s.Settings["launchTemplate"] = "$Latest" },
			func(*account) cloud.Change { return cloud.Change{Image: double.ImageID("three")} }, 3, lt + ":3"},
	} {
		for _, fault := range append(slices.Clone(kindsOfFaults), "") {
			for _, forgets := range []string{"nothing", "what Send has returned", "what Poll has returned"} {
				if !tier.All && fault != "" && forgets != "nothing" {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, forgetting %s", tc.name, fault, forgets), func(t *testing.T) {
					t.Parallel()
					a := start(t, tc.change)
					a.describe()
					a.edit(func(s *clouds.Set) { s.Image = "two" })
					change, before := tc.what(a), a.ids()
					for _, call := range []string{
						"DescribeAutoScalingGroups", "DescribeScalingActivities", "DescribeLaunchTemplateVersions", "DescribeInstanceAttribute", "LaunchInstances",
						"TerminateInstanceInAutoScalingGroup", "CreateLaunchTemplateVersion", "UpdateAutoScalingGroup",
					} {
						if fault != "" {
							a.Fault(clouds.Fault{Kind: fault, Call: call, Times: 2})
						}
					}
					p := a.carryOut(change, forgets)
					a.ClearFaults()
					a.settled(tc.end)
					expect(t, "the image", tc.image, a.describe().Image)
					var added []string
					for _, id := range a.ids() {
						if !slices.Contains(before, id) {
							added = append(added, id)
						}
					}
					slices.Sort(p.Added)
					slices.Sort(added)
					expect(t, "what was added", added, p.Added)
				})
			}
		}
	}
}

// carryOut does what a controller does with a change, with a provider that remembers nothing at each step.
func (a *account) carryOut(c cloud.Change, forgets string) (p cloud.Progress) {
	a.t.Helper()
	ctx := a.t.Context()
	for attempt := range 10 {
		c.Token = fmt.Sprint("token", attempt)
		var o cloud.Operation
		a.wait(func() (err error) {
			var s cloud.Set
			if s, err = a.workers().Describe(ctx); err == nil {
				o, err = a.workers().Prepare(ctx, &s, c)
			}
			return err
		})
		conflict := false
		prepared := o
		for range 2 { // sent by two, or by one that has forgotten
			a.wait(func() error {
				sent, err := a.workers().Send(ctx, prepared)
				if conflict = cloud.KindOf(err) == cloud.KindConflict; conflict {
					return nil
				}
				o = sent
				return err
			})
			if conflict || forgets == "nothing" {
				break
			}
		}
		if conflict {
			continue
		}
		a.wait(func() error {
			next, progress, err := a.workers().Poll(ctx, o)
			if forgets == "nothing" {
				o = next
			}
			if err == nil && !progress.Done {
				err = fmt.Errorf("it goes on: %+v", progress)
			}
			p = progress
			if err != nil && final(err) {
				a.t.Fatal(err)
			}
			return err
		})
		return p
	}
	a.t.Fatal("there were only conflicts")
	return p
}

func TestDenied(t *testing.T) {
	t.Parallel()
	lt := double.TemplateID("workers")
	for call, c := range map[string]cloud.Change{
		"LaunchInstances": {Add: 1}, "TerminateInstanceInAutoScalingGroup": {Delete: []string{double.InstanceID("workers", 0)}},
		"UpdateAutoScalingGroup": {Image: lt + ":1"}, "CreateLaunchTemplateVersion": {Image: double.ImageID("three")},
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			a := start(t, nil)
			a.describe()
			a.edit(func(s *clouds.Set) { s.Image = "two" })
			c.Token = "one"
			o := a.prepare(c)
			a.Fault(clouds.Fault{Kind: clouds.Denied, Call: call, Times: 1})
			if _, err := a.workers().Send(t.Context(), o); cloud.KindOf(err) != cloud.KindDenied {
				t.Error(err)
			}
			a.done(a.send(o))
		})
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	a := startWith(t, clouds.Options{CreateTime: 20_000_000, DeleteTime: 20_000_000}, nil)
	a.Fault(clouds.Fault{Kind: clouds.Slow})
	p := a.done(a.send(a.prepare(cloud.Change{Add: 1, Token: "one"})))
	machines, err := a.workers().Machines(t.Context())
	if err != nil || len(p.Added) != 1 || machines[3].ID != p.Added[0] || !machines[3].UpToDate {
		t.Fatalf("%+v %+v %v", p, machines, err)
	}
	a.done(a.send(a.prepare(cloud.Change{Delete: a.ids()[:1], Token: "two"})))
	a.settled(3)
}

func TestMachineThatFails(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	a.Fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add", Times: 1})
	p := a.done(a.send(a.prepare(cloud.Change{Add: 1, Token: "one"})))
	a.settled(4)
	machines, err := a.workers().Machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m := machines[3]; m.ID != p.Added[0] || m.State != cloud.Failed || m.Message == "" {
		t.Errorf("%+v", m)
	}
	a.done(a.send(a.prepare(cloud.Change{Delete: p.Added, Token: "two"})))
	a.settled(3)
}

type client func(*http.Request) (*http.Response, error)

func (do client) Do(r *http.Request) (*http.Response, error) { return do(r) }

// The SDK closes a body before net/http has ended with it, and in a closed body WriteTo fails.
func TestBodiesAreRead(t *testing.T) {
	t.Parallel()
	a, calls := start(t, nil), 0
	c := a.fresh(config.WithHTTPClient(client(func(r *http.Request) (*http.Response, error) {
		if _, ok := r.Body.(io.WriterTo); ok {
			t.Errorf("%T has WriteTo", r.Body)
		}
		calls++
		return http.DefaultClient.Do(r)
	})))
	if _, err := c.ScaleSet("workers").Describe(t.Context()); err != nil || calls == 0 {
		t.Errorf("%v, %d calls", err, calls)
	}
}

// A malformed answer does not end the process. If one answer is lost and another is a refusal, the error says that the result is not known.
func TestTerminationsFail(t *testing.T) {
	t.Parallel()
	const call = "TerminateInstanceInAutoScalingGroup"
	a := start(t, nil)
	c := a.fresh(config.WithHTTPClient(client(func(r *http.Request) (*http.Response, error) {
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			body, _ := io.ReadAll(answer.Body)
			body = regexp.MustCompile("(?s)<Activity>.*</Activity>").ReplaceAll(body, nil)
			answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		return answer, err
	})))
	o := a.prepare(cloud.Change{Delete: a.ids()[:1], Token: "one"})
	if _, err := c.ScaleSet("workers").Send(t.Context(), o); cloud.KindOf(err) != cloud.KindUnavailable {
		t.Error(err)
	}
	o = a.prepare(cloud.Change{Delete: a.ids(), Token: "two"})
	a.Fault(clouds.Fault{Kind: clouds.DropAfter, Call: call, Times: 1})
	a.Fault(clouds.Fault{Kind: clouds.Throttled, Call: call, Times: 1})
	if _, err := a.workers().Send(t.Context(), o); cloud.KindOf(err) != cloud.KindUnavailable {
		t.Error(err)
	}
}
