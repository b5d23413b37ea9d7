// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

const (
	images = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/"
	older  = images + "flatcar-stable-1.30.4-v1-aaaa"
	newer  = images + "flatcar-stable-1.31.4-v2-bbbb"
)

// fakeCloud has scale sets in memory. Answers can be planned: they are taken in turn, nil is success.
type fakeCloud struct {
	sets  map[string]*fakeSet
	calls []string
	// notes are what the program has said beside its report.
	notes bytes.Buffer
}

type fakeSet struct {
	cloud.ScaleSet
	of      *fakeCloud
	set     cloud.Set
	missing bool
	// looks change what Describe shows, or fail it, one each.
	looks []func(*cloud.Set) error
	// answers to Send, by what becomes of it, and to Poll.
	sends []answer
	polls []error
	// meanwhile happens just before the next Send.
	meanwhile func(*fakeSet)
	version   int
}

// answer is one to Send: the error, and whether it took effect all the same.
type answer struct {
	err   error
	taken bool
}

func (c *fakeCloud) Look(name string) cloud.ScaleSet { return c.ScaleSet(name) }

func (c *fakeCloud) ScaleSet(name string) cloud.ScaleSet {
	s := c.sets[name]
	if s == nil {
		return &fakeSet{of: c, missing: true, set: cloud.Set{Name: name}}
	}
	return s
}

func (*fakeCloud) Find(context.Context, []string) (map[string]string, error) { return nil, nil }

func (s *fakeSet) called(what string) { s.of.calls = append(s.of.calls, what+" "+s.set.Name) }

func (s *fakeSet) Describe(ctx context.Context) (cloud.Set, error) {
	if s.missing {
		return cloud.Set{}, cloud.Errorf(cloud.KindNotFound, "there is no scale set %s", s.set.Name)
	}
	set := s.set
	set.Version = fmt.Sprint(s.version)
	if len(s.looks) > 0 {
		look := s.looks[0]
		s.looks = s.looks[1:]
		if err := look(&set); err != nil {
			return cloud.Set{}, err
		}
	}
	return set, ctx.Err()
}

func (*fakeSet) Prepare(_ context.Context, set *cloud.Set, c cloud.Change) (cloud.Operation, error) {
	if c.Image == "" || c.Token == "" {
		return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "half a change: %+v", c)
	}
	return cloud.Operation{Token: c.Token, State: set.Version + " " + c.Image}, nil
}

func (s *fakeSet) Send(_ context.Context, o cloud.Operation) (cloud.Operation, error) {
	if f := s.meanwhile; f != nil {
		s.meanwhile = nil
		f(s)
	}
	version, image, _ := strings.Cut(o.State, " ")
	s.called("set " + path.Base(image) + " on")
	var a answer
	if len(s.sends) > 0 {
		a, s.sends = s.sends[0], s.sends[1:]
	}
	switch {
	case a.err != nil && !a.taken:
		return o, a.err
	case version != fmt.Sprint(s.version) && s.set.Image == image:
		return o, a.err // Sent before.
	case version != fmt.Sprint(s.version):
		return o, cloud.Errorf(cloud.KindConflict, "the etag is another")
	}
	s.version++
	s.set.Image, s.set.ImageName = image, path.Base(image)
	return o, a.err
}

func (s *fakeSet) Poll(_ context.Context, o cloud.Operation) (cloud.Operation, cloud.Progress, error) {
	if len(s.polls) == 0 {
		return o, cloud.Progress{Done: true}, nil
	}
	err := s.polls[0]
	s.polls = s.polls[1:]
	return o, cloud.Progress{}, err
}

// aCloud has the four sets of cluster c, all of the older image.
func aCloud(change func(map[string]*fakeSet)) *fakeCloud {
	c := &fakeCloud{sets: map[string]*fakeSet{}}
	for _, pool := range pools {
		c.sets["c"+pool] = &fakeSet{of: c, set: cloud.Set{Name: "c" + pool, Image: older, ImageName: path.Base(older), Capacity: 3}}
	}
	if change != nil {
		change(c.sets)
	}
	return c
}

// hurried is a clock by which no one waits.
type hurried struct{ clock.Clock }

func (hurried) After(time.Duration) <-chan time.Time {
	now := make(chan time.Time, 1)
	now <- time.Time{}
	return now
}

// call runs the command with these arguments.
func call(t *testing.T, c *fakeCloud, environment map[string]string, args ...string) (string, *v1alpha1.CloudProvider, error) {
	t.Helper()
	var out bytes.Buffer
	var asked *v1alpha1.CloudProvider
	cmd := NewCommand(hurried{}, genericiooptions.IOStreams{Out: &out, ErrOut: &c.notes}, func(name string) string {
		return environment[name]
	}, func(_ context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
		asked = p
		return c, nil
	})
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), asked, err
}

var ducklett = map[string]string{"ARM_SUBSCRIPTION_ID": "s", "ARM_RESOURCE_GROUP": "g", "CLUSTER_NAME": "c", "ARM_USE_MANAGED_IDENTITY_EXTENSION": "true"}

// code is the exit code of an error, as main finds it.
func code(err error) int {
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.ExitCode()
	}
	return 1
}

// As Ducklett's program is called: three variables and one flag, and the four pools in its order.
func TestAsDucklett(t *testing.T) {
	c := aCloud(nil)
	out, asked, err := call(t, c, ducklett, "--imageid", path.Base(newer))
	if err != nil {
		t.Fatal(err)
	}
	want := `SCALE SET          OLD IMAGE                       NEW IMAGE                       OUTCOME   MESSAGE
c-cp               flatcar-stable-1.30.4-v1-aaaa   flatcar-stable-1.31.4-v2-bbbb   Changed   
c-agent-pool       flatcar-stable-1.30.4-v1-aaaa   flatcar-stable-1.31.4-v2-bbbb   Changed   
c-storage-pool     flatcar-stable-1.30.4-v1-aaaa   flatcar-stable-1.31.4-v2-bbbb   Changed   
c-telemetry-pool   flatcar-stable-1.30.4-v1-aaaa   flatcar-stable-1.31.4-v2-bbbb   Changed   
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	calls := []string{}
	for _, pool := range pools {
		calls = append(calls, "set flatcar-stable-1.31.4-v2-bbbb on c"+pool)
		if got := c.sets["c"+pool].set.Image; got != newer {
			t.Errorf("%s has image %s", pool, got)
		}
	}
	if diff := cmp.Diff(calls, c.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	provider := &v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{SubscriptionID: "s", ResourceGroup: "g", Credential: v1alpha1.AzureCredentialManaged}}
	if diff := cmp.Diff(provider, asked); diff != "" {
		t.Errorf("provider (-want +got):\n%s", diff)
	}
}

func TestOutcomes(t *testing.T) {
	quota := cloud.Errorf(cloud.KindFailed, "no such image")
	lost := errors.New("connection reset")
	busy := cloud.Errorf(cloud.KindThrottled, "too many requests")
	race := cloud.Errorf(cloud.KindConflict, "the etag is another")
	updating := func(s *cloud.Set) error {
		s.Busy = "Updating"
		return nil
	}
	unanswered := func(*cloud.Set) error { return lost }
	const waiting = "scale set c-telemetry-pool: it is being changed (Updating): waiting until that is over\n"
	for name, tc := range map[string]struct {
		change func(map[string]*fakeSet)
		args   []string
		// outcomes of the four, by their first letters, and images that they have at the end: o for the older, n for the newer, x for another.
		want, images string
		code         int
		message      string
		sends        int
		notes        string
	}{
		"all":     {want: "CCCC", images: "nnnn", sends: 4},
		"dry run": {args: []string{"--dry-run"}, want: "WWWW", images: "oooo"},
		"some have it": {
			change: func(s map[string]*fakeSet) { s["c-cp"].set.Image = strings.ToUpper(newer) },
			want:   "UCCC", images: "nnnn", sends: 3,
		},
		"one is missing": {
			change: func(s map[string]*fakeSet) { delete(s, "c-storage-pool") },
			want:   "NNNN", images: "oo-o", code: 1, message: "there is no scale set c-storage-pool",
		},
		"one is busy": {
			change: func(s map[string]*fakeSet) {
				s["c-telemetry-pool"].looks = []func(*cloud.Set) error{updating, updating, updating}
			},
			want: "CCCC", images: "nnnn", sends: 4, notes: waiting,
		},
		"one is busy, and a look at it fails": {
			change: func(s map[string]*fakeSet) {
				s["c-telemetry-pool"].looks = []func(*cloud.Set) error{updating, unanswered, updating}
			},
			want: "CCCC", images: "nnnn", sends: 4, notes: waiting,
		},
		"one is busy with one thing after the other": {
			change: func(s map[string]*fakeSet) {
				s["c-telemetry-pool"].looks = []func(*cloud.Set) error{updating, updating, func(s *cloud.Set) error { s.Busy = "Scaling"; return nil }}
			},
			want: "CCCC", images: "nnnn", sends: 4, notes: waiting + strings.Replace(waiting, "Updating", "Scaling", 1),
		},
		"one is gone after it was busy": {
			change: func(s map[string]*fakeSet) {
				s["c-telemetry-pool"].looks = []func(*cloud.Set) error{updating, updating, func(*cloud.Set) error { return cloud.Errorf(cloud.KindNotFound, "it is gone") }}
			},
			want: "NNNN", images: "oooo", code: 1, message: "scale set c-telemetry-pool: it is gone", notes: waiting,
		},
		"one is busy for too long": {
			args:   []string{"--timeout", "50ms"},
			change: func(s map[string]*fakeSet) { s["c-telemetry-pool"].set.Busy = "Updating" },
			want:   "NNNN", images: "oooo", code: 1, notes: waiting,
			message: "scale set c-telemetry-pool: it took longer than 50ms; last: ",
		},
		"dry run of a busy one": {
			args:   []string{"--dry-run"},
			change: func(s map[string]*fakeSet) { s["c-telemetry-pool"].set.Busy = "Updating" },
			want:   "NNNN", images: "oooo", code: 1, message: "it is being changed (Updating)",
		},
		"one is busy, and another is missing": {
			change: func(s map[string]*fakeSet) {
				s["c-cp"].set.Busy = "Updating"
				delete(s, "c-storage-pool")
			},
			want: "NNNN", images: "oo-o", code: 1, message: "there is no scale set c-storage-pool",
		},
		"one would replace machines by itself": {
			change: func(s map[string]*fakeSet) { s["c-telemetry-pool"].set.Unfit = "upgradePolicy.mode is Rolling" },
			want:   "NNNN", images: "oooo", code: 1, message: "it can't be changed: upgradePolicy.mode is Rolling",
		},
		"dry run of a missing one": {
			args:   []string{"--dry-run"},
			change: func(s map[string]*fakeSet) { delete(s, "c-cp") },
			want:   "NNNN", images: "-ooo", code: 1, message: "there is no scale set c-cp",
		},
		"the third fails": {
			change: func(s map[string]*fakeSet) { s["c-storage-pool"].sends = []answer{{err: quota}} },
			want:   "PPNN", images: "oooo", code: 1, message: "no such image", sends: 5,
		},
		"the third fails in the end": {
			change: func(s map[string]*fakeSet) { s["c-storage-pool"].polls = []error{nil, quota} },
			want:   "PPPN", images: "oooo", code: 1, message: "no such image", sends: 6,
		},
		"an answer is lost, and it was done": {
			change: func(s map[string]*fakeSet) { s["c-cp"].sends = []answer{{err: lost, taken: true}} },
			want:   "CCCC", images: "nnnn", sends: 5,
		},
		"an answer is lost, and it was not done": {
			change: func(s map[string]*fakeSet) { s["c-cp"].sends = []answer{{err: lost}, {err: busy}} },
			want:   "CCCC", images: "nnnn", sends: 6,
		},
		"an answer is lost, it was done, and the next one is a refusal": {
			change: func(s map[string]*fakeSet) {
				s["c-agent-pool"].sends = []answer{{err: lost, taken: true}, {err: cloud.Errorf(cloud.KindDenied, "not any more")}}
			},
			want: "PPNN", images: "oooo", code: 1, message: "not any more", sends: 5,
		},
		"an answer is lost, it was done, and nothing is allowed any more": {
			change: func(s map[string]*fakeSet) {
				denied := answer{err: cloud.Errorf(cloud.KindDenied, "not any more")}
				s["c-agent-pool"].sends = []answer{{err: lost, taken: true}, denied, denied}
			},
			want: "PLNN", images: "onoo", code: 3, message: "look at c-agent-pool", sends: 5,
		},
		"an answer is lost, it was not done, and the next one is a refusal": {
			change: func(s map[string]*fakeSet) {
				s["c-agent-pool"].sends = []answer{{err: lost}, {err: cloud.Errorf(cloud.KindNotFound, "it is gone")}}
			},
			want: "PNNN", images: "oooo", code: 1, message: "it is gone", sends: 4,
		},
		"polls are not answered": {
			change: func(s map[string]*fakeSet) { s["c-cp"].polls = []error{lost, busy, nil} },
			want:   "CCCC", images: "nnnn", sends: 4,
		},
		"an autoscaler is faster": {
			change: func(s map[string]*fakeSet) {
				s["c-cp"].meanwhile = func(f *fakeSet) { f.version, f.set.Capacity = f.version+1, 4 }
			},
			want: "CCCC", images: "nnnn", sends: 5,
		},
		"a rollout is faster, and at it": {
			change: func(s map[string]*fakeSet) {
				s["c-telemetry-pool"].meanwhile = func(f *fakeSet) {
					f.version, f.set.Capacity = f.version+1, 4
					f.looks = []func(*cloud.Set) error{updating, unanswered, updating}
				}
			},
			want: "CCCC", images: "nnnn", sends: 5, notes: waiting,
		},
		"a rollout is at it when one is put back": {
			change: func(s map[string]*fakeSet) {
				s["c-telemetry-pool"].sends = []answer{{}, {err: race}}
				s["c-telemetry-pool"].polls = []error{quota}
				s["c-telemetry-pool"].meanwhile = func(f *fakeSet) { f.looks = []func(*cloud.Set) error{updating, updating} }
			},
			want: "PPPP", images: "oooo", code: 1, message: "no such image", sends: 9, notes: waiting,
		},
		"a person sets the same image": {
			change: func(s map[string]*fakeSet) {
				s["c-agent-pool"].meanwhile = func(f *fakeSet) { f.version, f.set.Image = f.version+2, strings.ToUpper(newer) }
			},
			want: "CCCC", images: "nnnn", sends: 4,
		},
		"a person sets another image": {
			change: func(s map[string]*fakeSet) {
				s["c-agent-pool"].meanwhile = func(f *fakeSet) { f.version, f.set.Image, f.set.ImageName = f.version+1, images+"x", "" }
			},
			want: "PNNN", images: "oxoo", code: 1, message: "another program or person has meanwhile set its image to " + images + "x", sends: 3,
		},
		"it races again and again": {
			change: func(s map[string]*fakeSet) {
				s["c-agent-pool"].sends = []answer{{err: race}, {err: race}, {err: race}, {err: race}, {err: race}, {err: race}}
			},
			want: "CCCC", images: "nnnn", sends: 10,
		},
		"it races for too long": {
			args:   []string{"--timeout", "1ns"},
			change: func(s map[string]*fakeSet) { s["c-cp"].sends = []answer{{err: race}} },
			want:   "NNNN", images: "oooo", code: 1, message: "it took longer than 1ns; last: the etag is another", sends: 1,
		},
		"one can't be put back": {
			change: func(s map[string]*fakeSet) {
				s["c-cp"].sends = []answer{{}, {err: cloud.Errorf(cloud.KindDenied, "not any more")}}
				s["c-agent-pool"].sends = []answer{{err: quota}}
			},
			want: "LNNN", images: "nooo", code: 3, message: "look at c-cp: the old image could not be restored", sends: 3,
		},
		"another client has changed one since": {
			change: func(s map[string]*fakeSet) {
				s["c-agent-pool"].sends = []answer{{err: quota}}
				s["c-agent-pool"].meanwhile = func(*fakeSet) { s["c-cp"].set.Image = images + "x" }
			},
			want: "LNNN", images: "xooo", code: 3, message: "look at c-cp", sends: 2,
		},
		"what puts it back is tried again": {
			change: func(s map[string]*fakeSet) {
				s["c-cp"].sends = []answer{{}, {err: lost}, {err: lost, taken: true}}
				s["c-agent-pool"].sends = []answer{{err: quota}}
			},
			want: "PNNN", images: "oooo", code: 1, sends: 5,
		},
		"it takes too long": {
			args:   []string{"--timeout", "1ns"},
			change: func(s map[string]*fakeSet) { s["c-cp"].polls = []error{nil, nil, nil, nil} },
			want:   "LNNN", images: "nooo", code: 3, message: "it took longer than 1ns", sends: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := aCloud(tc.change)
			out, _, err := call(t, c, ducklett, append([]string{"--imageid", path.Base(newer), "-o", "json"}, tc.args...)...)
			if code(err) != tc.code {
				t.Errorf("exit code %d, want %d: %v", code(err), tc.code, err)
			}
			if tc.message != "" && (err == nil || !strings.Contains(err.Error(), tc.message)) {
				t.Errorf("error is %v, want one with %q", err, tc.message)
			}
			if diff := cmp.Diff(tc.notes, c.notes.String()); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			var report Report
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			short := map[Outcome]string{Changed: "C", Unchanged: "U", WouldChange: "W", NotChanged: "N", PutBack: "P", NotPutBack: "L"}
			var got []string
			state := ""
			for i, l := range report.ScaleSets {
				got = append(got, short[l.Outcome])
				s := c.sets["c"+pools[i]]
				switch {
				case s == nil:
					state += "-"
				case s.set.Image == older:
					state += "o"
				case strings.EqualFold(s.set.Image, newer):
					state += "n"
				default:
					state += "x"
				}
			}
			if diff := cmp.Diff([]any{tc.want, tc.images, tc.sends}, []any{strings.Join(got, ""), state, len(c.calls)}); diff != "" {
				t.Errorf("outcomes, images, sends (-want +got):\n%s\n%s", diff, out)
			}
		})
	}
}

// Told to end in the middle, it leaves all sets as they were.
func TestInterrupted(t *testing.T) {
	c := aCloud(nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	all := &changer{clock: hurried{}, image: newer, timeout: time.Hour}
	for _, pool := range pools {
		all.add("c"+pool, c.ScaleSet("c"+pool))
	}
	c.sets["c-agent-pool"].polls = []error{nil}
	c.sets["c-agent-pool"].meanwhile = func(*fakeSet) { cancel(errors.New("interrupted")) }
	err := all.run(ctx)
	if err == nil || code(err) != 1 || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error is %v", err)
	}
	for name, s := range c.sets {
		if s.set.Image != older {
			t.Errorf("%s has image %s", name, s.set.Image)
		}
	}
}

// TestReference has names of images that the clouds show in a longer form.
func TestReference(t *testing.T) {
	const template = "projects/p/global/instanceTemplates/workers-v2"
	for _, tc := range []struct {
		provider, image, shown string
		want                   bool
	}{
		{providerAzure, "flatcar-1.31", images + "flatcar-1.31", true},
		{providerAzure, "flatcar-1.31", strings.ToUpper(images) + "flatcar-1.31", true},
		{providerAzure, "flatcar-1.31", strings.Replace(images, "/g/", "/h/", 1) + "flatcar-1.31", false},
		{providerAzure, older, older, true},
		{providerAzure, "Canonical:ubuntu:server:latest", "Canonical:ubuntu:server:latest", true},
		{providerAWS, "lt-0123456789abcdef0:7", "lt-0123456789abcdef0:7", true},
		{providerAWS, "ami-0123456789abcdef0", "lt-0123456789abcdef0:7", false},
		{providerGCP, "workers-v2", template, true},
		{providerGCP, "workers-v", template, false},
		{providerGCP, "global/instanceTemplates/workers-v2", template, true},
		{providerGCP, template, template, true},
		{providerGCP, "https://www.googleapis.com/compute/v1/" + template, template, true},
		{providerGCP, "https://www.googleapis.com/compute/v1/projects/q/global/instanceTemplates/workers-v2", template, false},
	} {
		c := &command{image: tc.image, azure: v1alpha1.AzureProvider{SubscriptionID: "s", ResourceGroup: "g"}}
		c.provider.Value = tc.provider
		if got := hasImage(&cloud.Set{Image: tc.shown}, c.reference()); got != tc.want {
			t.Errorf("%s is %q, and a set has %q: %t", tc.image, c.reference(), tc.shown, got)
		}
	}
}

func TestUsage(t *testing.T) {
	without := func(name string) map[string]string {
		all := map[string]string{}
		for key, value := range ducklett {
			if key != name {
				all[key] = value
			}
		}
		return all
	}
	for name, tc := range map[string]struct {
		environment map[string]string
		args        []string
		want        string
	}{
		"no image":        {ducklett, nil, "-imageid must say which image"},
		"two images":      {ducklett, []string{"a", "--imageid", "b"}, "the image is given twice"},
		"no subscription": {without("ARM_SUBSCRIPTION_ID"), []string{"a"}, "--subscription-id or $ARM_SUBSCRIPTION_ID must be given"},
		"no group":        {without("ARM_RESOURCE_GROUP"), []string{"a"}, "--resource-group or $ARM_RESOURCE_GROUP must be given"},
		"no cluster":      {without("CLUSTER_NAME"), []string{"a"}, "--scale-set or $CLUSTER_NAME must be given"},
		"no sets of AWS":  {ducklett, []string{"a", "--provider", "aws"}, "--scale-set must be given"},
		"no project":      {ducklett, []string{"a", "--provider", "gcp"}, "--project must be given"},
		"another cloud":   {ducklett, []string{"a", "--provider", "ovh"}, "it must be azure, aws or gcp"},
		"an unnamed set":  {ducklett, []string{"a", "--scale-set", ""}, "--scale-set must name one"},
		"no time":         {ducklett, []string{"a", "--timeout", "0s"}, "--timeout must be more than 0"},
		"credential":      {ducklett, []string{"a", "--credential", "None"}, "it must be Auto, Environment, Workload or Managed"},
	} {
		if _, asked, err := call(t, aCloud(nil), tc.environment, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) || asked != nil {
			t.Errorf("%s: error is %v, want %q", name, err, tc.want)
		}
	}
}
