// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

// A replacement that dies, and that the cloud makes again by what it was to be then, leaves no machine too many, also where another image is set before
// anybody has seen that.
func TestReplacementIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeRollout)
		fault  clouds.FaultKind
		seen   func(*v1alpha1.MachineTurn) bool
	}{
		"joins": {
			func(r *v1alpha1.NodeRollout) {
				r.Spec.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: &metav1.Duration{Duration: 30 * time.Second}}
			},
			clouds.JoinsSick, func(turn *v1alpha1.MachineTurn) bool { return turn.ReplacementNode != "" },
		},
		"is kept": {
			func(r *v1alpha1.NodeRollout) {
				impatient(r)
				r.Spec.Replacement.KeepFailedFor = &metav1.Duration{Duration: time.Hour}
			},
			clouds.NeverJoins, func(turn *v1alpha1.MachineTurn) bool {
				return turn.Failed != nil && strings.Contains(turn.Message, "is kept to be looked at")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, "remade-"+strings.ReplaceAll(name, " ", "-"), poolOptions{capacity: 2})
			p.lifeless(t)
			r := p.newRollout()
			tc.change(r)
			p.fault(clouds.Fault{Kind: tc.fault, Times: 1})
			p.setImage(t, newImage)
			createRollout(t, r)
			seen := rolloutWithin(t, 3*patience, p.name, name, func(s *v1alpha1.NodeRolloutStatus) bool {
				return len(s.Turns) == 1 && s.Turns[0].Replacement != "" && tc.seen(&s.Turns[0])
			})
			if err := p.world.Kill(p.full, seen.Status.Turns[0].Replacement, false); err != nil {
				t.Fatal(err)
			}
			editRollout(t, p.name, patient)
			p.setImage(t, badImage)
			p.done(t, badImage, p.capacity)
		})
	}
}

// A replacement that is kept to be looked at keeps nothing waiting once another image is set.
func TestReplacementKeptGivesWay(t *testing.T) {
	t.Parallel()
	p := newPool(t, "gives-way", poolOptions{capacity: 2})
	r := p.newRollout()
	impatient(r)
	r.Spec.Replacement.KeepFailedFor = &metav1.Duration{Duration: time.Hour}
	p.fault(clouds.Fault{Kind: clouds.NeverJoins, Times: 1})
	p.setImage(t, badImage)
	createRollout(t, r)
	rolloutWithin(t, 3*patience, p.name, "is kept", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.Turns) == 1 && s.Turns[0].Failed != nil && strings.Contains(s.Turns[0].Message, "is kept to be looked at")
	})
	editRollout(t, p.name, patient)
	p.setImage(t, newImage)
	p.done(t, newImage, p.capacity)
}

// Two NodeRollouts of the same nodes replace each machine once.
func TestReplacementByTwoRollouts(t *testing.T) {
	t.Parallel()
	p := newPool(t, "by-two", poolOptions{capacity: 4})
	r, other := p.newRollout(), p.newRollout()
	other.Name += "-too"
	createRollout(t, r)
	createRollout(t, other)
	for _, image := range []string{oldImage, newImage} {
		p.setImage(t, image)
		for _, name := range []string{r.Name, other.Name} {
			rolloutWithin(t, 12*patience, name, "is done", func(s *v1alpha1.NodeRolloutStatus) bool {
				// The one finds the set busy while the other is at it.
				return p.says(t, s, image, p.capacity) && len(s.Turns) == 0 && len(s.ScaleSets[0].Operations) == 0 && s.ScaleSets[0].Reason == ""
			})
		}
		p.settled(t, image, p.capacity)
	}
}
