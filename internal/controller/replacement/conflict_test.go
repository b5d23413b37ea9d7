// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Of two NodeRollouts for one scale set the later one is refused, and so is one that names a scale set twice.
func TestAmbiguity(t *testing.T) {
	aws := v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}
	azure := v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{}}
	gcp := v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: "shop"}}
	for name, tc := range map[string]struct {
		provider, theirs v1alpha1.CloudProvider
		sets             []string
		other            string
		made             time.Time
		change           func(*v1alpha1.NodeRollout)
		want             string
	}{
		"older":            {provider: aws, theirs: aws, sets: []string{"a"}, other: "a", made: noon.Add(-time.Hour), want: "NodeRollout z, which is older, replaces machines of scale set a"},
		"younger":          {provider: aws, theirs: aws, sets: []string{"a"}, other: "a", made: noon.Add(time.Hour)},
		"of the same time": {provider: aws, theirs: aws, sets: []string{"a"}, other: "a", made: noon},
		"another set":      {provider: aws, theirs: aws, sets: []string{"set"}, other: "other", made: noon.Add(-time.Hour)},
		"another cloud":    {provider: aws, theirs: azure, sets: []string{"a"}, other: "a", made: noon.Add(-time.Hour)},
		"detects":          {provider: aws, theirs: aws, sets: []string{"a"}, other: "a", made: noon.Add(-time.Hour), change: func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.DetectOnly = true }},
		"found by nodes": {provider: aws, theirs: aws, sets: []string{"a"}, made: noon.Add(-time.Hour), change: func(r *v1alpha1.NodeRollout) {
			r.Status.ScaleSets = []v1alpha1.ScaleSetStatus{{Name: "a", Machines: 1}}
		}, want: "NodeRollout z"},
		"in another case":   {provider: azure, theirs: azure, sets: []string{"Set"}, other: "sEt", made: noon.Add(-time.Hour), want: "scale set Set"},
		"by its name alone": {provider: gcp, theirs: gcp, sets: []string{"zones/a/set"}, other: "set", made: noon.Add(-time.Hour), want: "NodeRollout z"},
		"in another zone":   {provider: gcp, theirs: gcp, sets: []string{"zones/a/set"}, other: "zones/b/set", made: noon.Add(-time.Hour)},
		"named twice":       {provider: azure, theirs: aws, sets: []string{"A", "a"}, made: noon, want: "scale sets A and a may be the same"},
		"named twice, GCP":  {provider: gcp, theirs: aws, sets: []string{"set", "zones/a/set"}, made: noon, want: "scale sets set and zones/a/set may be the same"},
	} {
		t.Run(name, func(t *testing.T) {
			p := passOf(t, v1alpha1.NodeRolloutStatus{})
			p.rollout.CreationTimestamp = metav1.Time{Time: noon}
			p.replacement.Provider = tc.provider
			for _, name := range tc.sets {
				s := newSet(name)
				s.Known = true
				p.memo.sets[name] = s
			}
			r := &v1alpha1.NodeRollout{
				ObjectMeta: metav1.ObjectMeta{Name: "z", CreationTimestamp: metav1.Time{Time: tc.made}},
				Spec:       v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{Provider: tc.theirs}},
			}
			if tc.other != "" {
				r.Spec.Replacement.ScaleSets = []string{tc.other}
			}
			if tc.change != nil {
				tc.change(r)
			}
			if err := p.Client.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := p.readOthers(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := text(p.ambiguity())
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("it is refused as %q, not %q", got, tc.want)
			}
		})
	}
}
