// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
)

// The NodeRollout of examples/bottlerocket takes the next node when the last one has been ready for a minute, and two minutes have passed since.
func TestExamplePausesBetweenNodes(t *testing.T) {
	example := &v1alpha1.NodeRollout{}
	text, err := os.ReadFile("../../../examples/bottlerocket/noderollout.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, example)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(t, func(r *v1alpha1.NodeRollout) { r.Spec = example.Spec })
	l.host("a")
	l.host("b")
	back, taken := map[string]time.Time{}, map[string]time.Time{}
	l.meanwhile = func() {
		for name, h := range l.hosts {
			if _, is := back[name]; !is && h.boots == 2 && !h.down {
				back[name] = l.clock.Now()
			}
			if _, is := taken[name]; !is && strings.HasSuffix(line(l.node(name)), " claimed") {
				taken[name] = l.clock.Now()
			}
		}
	}
	l.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
	oneAtATime(t, l.order)
	first := slices.MinFunc(slices.Collect(maps.Keys(taken)), func(a, b string) int { return taken[a].Compare(taken[b]) })
	second := map[string]string{"a": "b", "b": "a"}[first]
	if pause := taken[second].Sub(back[first]); pause < 3*time.Minute || pause > 4*time.Minute {
		t.Errorf("%s is taken %s after %s is back", second, pause, first)
	}
}
