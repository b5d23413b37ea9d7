// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// A canary that has failed is shown until it is over, whatever the state is by then.
func TestDaemonSetRowShowsAFailedCanary(t *testing.T) {
	const manually = edsv1.StatusReason(edsv1.ReasonManuallyFailed)
	for name, tc := range map[string]struct {
		state  edsv1.State
		reason edsv1.StatusReason
		failed metav1.ConditionStatus
		want   string
	}{
		"while its nodes go back": {edsv1.StateCanaryFailed, manually, metav1.ConditionTrue, "Canary Failed, Manually failed"},
		"when they have":          {edsv1.StateRunning, "", metav1.ConditionTrue, "Running, CanaryFailed"},
		"when it is over":         {edsv1.StateRunning, "", metav1.ConditionFalse, "Running, "},
		"the next one's":          {edsv1.StateCanaryPaused, "ErrImagePull", metav1.ConditionFalse, "Canary Paused, ErrImagePull"},
	} {
		t.Run(name, func(t *testing.T) {
			eds := &edsv1.ExtendedDaemonSet{Status: edsv1.ExtendedDaemonSetStatus{
				State: tc.state, Reason: tc.reason, Conditions: []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: tc.failed}},
			}}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(eds)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(daemonSetRow(&unstructured.Unstructured{Object: content}).cells[8:10], ", "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
