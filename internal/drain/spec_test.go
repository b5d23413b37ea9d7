// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

func TestOptionsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec *v1alpha1.NodeDrain
		want Options
		pods string
	}{
		"by itself": {nil, Options{IgnoreDaemonSets: true, DeleteEmptyDirData: true}, "!upgrade.cattle.io/controller"},
		"in full": {&v1alpha1.NodeDrain{
			Timeout: &metav1.Duration{Duration: time.Minute}, OnTimeout: "Force", Force: true, DeleteEmptyDirData: ptr.To(false), GracePeriodSeconds: ptr.To[int64](5), DisableEviction: true,
			SkipWaitForDeleteSeconds: ptr.To[int32](7), PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, WaitForVolumeDetach: true,
		}, Options{
			IgnoreDaemonSets: true, Timeout: time.Minute, OnTimeout: ForceOnTimeout, Force: true, GracePeriodSeconds: ptr.To[int64](5), DisableEviction: true,
			SkipWaitForDelete: 7 * time.Second, WaitForVolumeDetach: true,
		}, "app=a,!upgrade.cattle.io/controller"},
	} {
		got, err := OptionsOf(tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		pods := got.PodSelector
		got.PodSelector = nil
		if diff := cmp.Diff(tc.want, got); diff != "" || pods.String() != tc.pods {
			t.Errorf("%s: of pods %s (-want +got):\n%s", name, pods, diff)
		}
		if pods.Matches(labels.Set{"app": "a", "upgrade.cattle.io/controller": "x"}) || !pods.Matches(labels.Set{"app": "a"}) {
			t.Errorf("%s: pods are %s", name, pods)
		}
	}
}
