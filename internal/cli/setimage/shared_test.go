// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/aws"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/aws"
)

// meddled is a set of which a person changes something just before it is changed.
type meddled struct {
	cloud.ScaleSet
	meddle func()
}

func (m meddled) Send(ctx context.Context, o cloud.Operation) (cloud.Operation, error) {
	m.meddle()
	return m.ScaleSet.Send(ctx, o)
}

// Groups of AWS that share a launch template, one in each zone, have the new version as soon as it is made for any of them, if they are at $Latest.
// All or nothing holds for what machines are really made of.
func TestSharedTemplate(t *testing.T) {
	denied := func(call string) func(*clouds.World) {
		return func(w *clouds.World) { w.Fault(clouds.Fault{Kind: clouds.Denied, Call: call, Times: 1}) }
	}
	edited := func(sets ...string) func(*clouds.World) {
		return func(w *clouds.World) {
			for _, name := range sets {
				_ = w.Edit(name, func(s *clouds.Set) error { s.Image = "three"; return nil }) // they are there
			}
		}
	}
	const latest = "$Latest"
	for name, tc := range map[string]struct {
		// at is the version at which az-a, az-b and az-c of one template, and alone of its own, stand; empty for the number.
		at   []string
		sets string
		// spoil happens before anything, and meddle before the last set is changed.
		spoil, meddle func(*clouds.World)
		// outcomes are their first letters, L for NotPutBack; then the version and the image of each in the end, and how many versions were made.
		outcomes     string
		then, images []string
		versions     int
		code         int
	}{
		"two at $Latest": {
			at: []string{latest, latest, "", ""}, sets: "az-a az-b",
			outcomes: "CC", then: []string{latest, latest, "1", "1"}, images: []string{"two", "two", "one", "one"}, versions: 1,
		},
		"both have it already": {
			at: []string{latest, "", latest, ""}, sets: "az-c az-a", spoil: func(w *clouds.World) {
				_ = w.Edit("az-a", func(s *clouds.Set) error { s.Image = "two"; return nil })
			},
			outcomes: "UU", then: []string{latest, "1", latest, "1"}, images: []string{"two", "one", "two", "one"},
		},
		"one at $Latest, and one at a number": {
			at: []string{latest, "", "", ""}, sets: "az-b az-a",
			outcomes: "CC", then: []string{latest, "2", "1", "1"}, images: []string{"two", "two", "one", "one"}, versions: 1,
		},
		"a third fails": {
			at: []string{latest, latest, "", ""}, sets: "az-a az-b alone", spoil: denied("UpdateAutoScalingGroup"),
			outcomes: "PPN", then: []string{"1", "1", "1", "1"}, images: []string{"one", "one", "one", "one"}, versions: 2, code: 1,
		},
		"a person sets another image of a third": {
			at: []string{latest, latest, "", ""}, sets: "az-a az-b alone", meddle: edited("alone"),
			outcomes: "PPN", then: []string{"1", "1", "1", "2"}, images: []string{"one", "one", "one", "three"}, versions: 1, code: 1,
		},
		"a person sets another image of a third, and of what they share": {
			at: []string{latest, latest, "", ""}, sets: "az-a az-b alone", meddle: edited("alone", "az-a"),
			outcomes: "LLN", then: []string{latest, latest, "1", "2"}, images: []string{"three", "three", "one", "three"}, versions: 1, code: 3,
		},
		"one has it already, and then a newer version that has to go again": {
			at: []string{"", "", latest, ""}, sets: "az-c az-b alone", meddle: edited("alone"), spoil: func(w *clouds.World) {
				_ = w.Edit("az-a", func(s *clouds.Set) error { s.Image = "two"; return nil })
			},
			outcomes: "PPN", then: []string{"2", "1", "2", "2"}, images: []string{"two", "one", "two", "three"}, versions: 1, code: 1,
		},
		"the second fails, and the third has it all the same": {
			at: []string{latest, "", latest, ""}, sets: "az-a az-b az-c", spoil: denied("UpdateAutoScalingGroup"),
			outcomes: "PNP", then: []string{"1", "1", "1", "1"}, images: []string{"one", "one", "one", "one"}, versions: 2, code: 1,
		},
		"the first fails after the version was made": {
			at: []string{"", latest, latest, ""}, sets: "az-a az-b", spoil: denied("UpdateAutoScalingGroup"),
			outcomes: "NP", then: []string{"1", "1", latest, "1"}, images: []string{"one", "one", "two", "one"}, versions: 1, code: 1,
		},
		"the first fails before": {
			at: []string{"", latest, latest, ""}, sets: "az-a az-b", spoil: denied("CreateLaunchTemplateVersion"),
			outcomes: "NN", then: []string{"1", latest, latest, "1"}, images: []string{"one", "one", "one", "one"}, versions: 1, code: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			w := clouds.New(ctx, clouds.Options{ID: double.InstanceID, Identify: double.Identify})
			server := httptest.NewServer(double.Handler(w))
			t.Cleanup(func() {
				server.Close()
				cancel()
				w.Wait()
			})
			for _, variable := range double.Env(server.URL) {
				key, value, _ := strings.Cut(variable, "=")
				t.Setenv(key, value)
			}
			c, err := aws.New(ctx, &v1alpha1.AWSProvider{})
			if err != nil {
				t.Fatal(err)
			}
			names := []string{"az-a", "az-b", "az-c", "alone"}
			for i, name := range names {
				s := clouds.Set{Name: name, Image: "one", Capacity: 1, Settings: map[string]string{"launchTemplate": tc.at[i]}}
				if name != "az-a" && name != "alone" {
					s.Settings["template"] = "az-a"
				}
				if err := w.Create(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			all := &changer{clock: hurried{}, image: double.ImageID("two"), timeout: time.Minute, notes: &strings.Builder{}}
			for name := range strings.FieldsSeq(tc.sets) {
				all.add(name, c.ScaleSet(name))
			}
			if tc.spoil != nil {
				tc.spoil(w)
			}
			if last := all.sets[len(all.sets)-1]; tc.meddle != nil {
				last.set = meddled{last.set, func() { tc.meddle(w) }}
			}
			if err := all.run(ctx); code(err) != tc.code {
				t.Errorf("exit code %d, want %d: %v", code(err), tc.code, err)
			}
			outcomes := ""
			for _, s := range all.sets {
				outcomes += map[Outcome]string{Changed: "C", Unchanged: "U", NotChanged: "N", PutBack: "P", NotPutBack: "L"}[s.line.Outcome]
			}
			if diff := cmp.Diff(tc.outcomes, outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			var then, images []string
			for _, name := range names {
				found, err := c.ScaleSet(name).Describe(ctx)
				if err != nil {
					t.Fatal(err)
				}
				s, _ := w.Set(name)
				_, version, _ := strings.Cut(found.Image, ":")
				if at := s.Settings["launchTemplate"]; at != "" {
					version = at
				}
				then, images = append(then, version), append(images, found.ImageName)
			}
			got := []any{then, images, w.Calls()["CreateLaunchTemplateVersion"]}
			if diff := cmp.Diff([]any{tc.then, tc.images, tc.versions}, got); diff != "" {
				t.Errorf("versions, images, calls (-want +got):\n%s", diff)
			}
		})
	}
}
