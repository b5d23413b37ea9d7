// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Nothing but a host that runs the release that another has found lets the wave of the canary end.
func TestReleaseIsFound(t *testing.T) {
	host := func(name, runs, offers string, checked time.Duration) *corev1.Node {
		said := "stabilize,stabilize,ready false"
		if offers != "" {
			said = "stabilize,stabilize,ready true"
		}
		return newNode(words(said), annotated(v1alpha1.AnnotationHostVersion, runs), annotated(v1alpha1.AnnotationHostTarget, offers),
			annotated(v1alpha1.AnnotationHostChecked, now.Add(checked).Format(time.RFC3339)), func(n *corev1.Node) { n.Name, n.UID = name, types.UID("uid-"+name) })
	}
	looks := func(name, runs string) *corev1.Node {
		n := host(name, runs, "", 0)
		words("stabilize,unknown,unknown unknown")(n)
		return n
	}
	canary := []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1))}}
	pool := []v1alpha1.Wave{{Name: "canary", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "test"}}}}
	for _, tc := range []struct {
		name  string
		waves []v1alpha1.Wave
		wave  string
		known []v1alpha1.HostRelease
		nodes []*corev1.Node
		// want is each node's state, with its next step if it has one, then the revision, who starts, and how the wave stands.
		want []string
	}{
		{"one finds it, and the others looked before", canary, "", nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Hour), host("c", "1.0.0", "", -time.Hour)},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"they are looking, and had nothing to offer", canary, "", nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), looks("b", "1.0.0"), looks("c", "1.0.0")},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"it is not for them yet, and they are no canary", canary, "", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Second), host("c", "1.0.0", "", -time.Second)},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"it is not for the pool of the canary yet", pool, "", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("test", "1.0.0", "", -time.Second)},
			[]string{"a Outdated", "test Updated unoffered", "1.1.0", "starts", "canary Progressing 1/1"}},
		{"the pool of the canary runs it", pool, "", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("test", "1.1.0", "", -time.Second)},
			[]string{"a Outdated", "test Updated", "1.1.0", "starts a", "remainder Progressing 0/1"}},
		{"no one has anything to offer", pool, "", nil,
			[]*corev1.Node{host("a", "1.1.0", "", -time.Minute), host("test", "1.0.0", "", -time.Hour)},
			[]string{"a Updated", "test Updated unoffered", "1.1.0", "starts", "canary Complete 1/1"}},
		{"one is to go back, and all had been brought to the newer one", canary, "1.1.0", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Hour)}},
			[]*corev1.Node{host("a", "1.1.0", "1.0.0", -time.Minute), host("b", "1.1.0", "", -time.Hour), host("c", "1.1.0", "1.0.0", -time.Minute)},
			[]string{"a Outdated", "b Updated unoffered", "c Outdated", "1.0.0", "starts a", "canary Progressing 0/1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRollout(func(r *v1alpha1.NodeRollout) { r.Status.Releases = tc.known })
			if tc.wave != "" {
				r.Status.Wave = &v1alpha1.WaveStatus{Name: "remainder", Number: 2, Revision: tc.wave, State: v1alpha1.WaveComplete}
			}
			for _, n := range tc.nodes {
				n.Labels["pool"] = n.Name
			}
			w := newWorld(t, r)
			var got []string
			var all []rollout.Unit
			for _, one := range sees(w, tc.nodes...) {
				u := &one.Unit
				words := []string{u.Node, string(u.State)}
				if u.Unoffered {
					words = append(words, "unoffered")
				}
				got = append(got, strings.TrimSpace(strings.Join(append(words, string(u.Reason)), " ")))
				all = append(all, *u)
			}
			s := rollout.New(&v1alpha1.Strategy{Waves: tc.waves}, 1, len(all))
			s.UID, s.Revision, s.Wave = uid, w.Revision, r.Status.Wave
			d := rollout.Decide(s, all, w.Fleet, now)
			got = append(got, w.Revision, strings.TrimSpace("starts "+strings.Join(d.Start, " ")), fmt.Sprintf("%s %s %d/%d", d.Wave.Name, d.Wave.State, d.Wave.Updated, d.Wave.Nodes))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What a host said before it was asked again counts until it has answered.
func TestAnswersAgain(t *testing.T) {
	checked := func(after time.Duration) func(*corev1.Node) {
		return annotated(v1alpha1.AnnotationHostChecked, now.Add(after).Format(time.RFC3339))
	}
	for name, tc := range map[string]struct {
		change []func(*corev1.Node)
		want   string
	}{
		"it has not taken it up":         {nil, "Updated"},
		"it is looking":                  {[]func(*corev1.Node){words("stabilize,stabilize,busy unknown")}, "Updated"},
		"it has nothing to offer":        {[]func(*corev1.Node){words("stabilize,stabilize,ready false"), checked(time.Second)}, "Updated"},
		"it has something":               {[]func(*corev1.Node){words("stabilize,stabilize,ready true"), offers("1.2.0"), checked(time.Second)}, "Outdated"},
		"it could not find out":          {[]func(*corev1.Node){words("stabilize,stabilize,error unknown")}, "Outdated HostError"},
		"it says neither":                {[]func(*corev1.Node){words("stabilize,stabilize,ready unknown")}, "Outdated HostSilent"},
		"it had something":               {[]func(*corev1.Node){offers("1.1.5")}, "Outdated HostSilent"},
		"it was ordered to do something": {[]func(*corev1.Node){words("prepare-update,unknown,unknown unknown")}, "Outdated HostSilent"},
	} {
		n := newNode(append([]func(*corev1.Node){words("stabilize,unknown,unknown unknown"), runs("1.1.0"), offers(""), checked(-time.Hour)}, tc.change...)...)
		u := sees(newWorld(t, newRollout(func(*v1alpha1.NodeRollout) {})), n)[0].Unit
		if got := strings.TrimSpace(string(u.State) + " " + string(u.Reason)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
