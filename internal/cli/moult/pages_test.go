// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/view"
)

// Many may look at once at the pages of a node and of a rollout, whose previews are made one after the other.
func TestPagesAtOnce(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	plan := upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "agents", UID: "u"}}
	plan.Spec = upgradev1.PlanSpec{Concurrency: 1, NodeSelector: &metav1.LabelSelector{}, Version: "v2", Upgrade: &upgradev1.ContainerSpec{Image: "i"}}
	plan.Status.TurnSeconds = 60
	var nodes []corev1.Node
	for i := range 5 {
		nodes = append(nodes, *previewNode(fmt.Sprint("node-", i)))
	}
	pages := NewPages(clocktesting.NewFakeClock(now), nil)
	pages.cluster, pages.now = view.See([]upgradev1.Plan{plan}, nodes, nil, now), now
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			if why, ok := pages.why(fmt.Sprint("node-", i%5)); !ok || len(why) == 0 {
				t.Error(ok, why)
			}
			if _, err := pages.preview(t.Context(), "Plan", "fleet", "agents"); err != nil && err.Error() != "it is still being worked out" {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if lines, err := pages.preview(t.Context(), "Plan", "fleet", "agents"); len(lines) == 0 || err != nil {
		t.Errorf("%v, %v", lines, err)
	}
	if _, err := pages.preview(t.Context(), "Plan", "fleet", "gone"); err == nil {
		t.Error("a rollout that is gone has a preview")
	}
}
