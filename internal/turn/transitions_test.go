// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// A halted rollout that can't be rolled back gets one Event, in the words of its mechanism.
func TestRollbackImpossible(t *testing.T) {
	for want, spec := range map[string]v1alpha1.NodeRolloutSpec{
		"no image is restored: why":    {Replacement: &v1alpha1.Replacement{}},
		"no host is brought back: why": {HostUpdate: &v1alpha1.HostUpdate{}},
	} {
		r := &v1alpha1.NodeRollout{Spec: spec}
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Message: "halted" + irreversible + "why; a failure; a note"}}
		all := Transitions(&v1alpha1.NodeRolloutStatus{}, r)
		if len(all) != 1 || all[0].Reason != "RollbackImpossible" || !strings.HasSuffix(all[0].Message, want) {
			t.Errorf("%+v, want %s", all, want)
		}
		before := *r.Status.DeepCopy()
		r.Status.Conditions[0].Message = "halted" + irreversible + "why; another failure"
		if again := Transitions(&before, r); len(again) > 0 {
			t.Errorf("again: %+v", again)
		}
	}
}
