// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/writes"
)

// No memory of the process decides: a controller that is new for each reconcile writes the same, in the same order.
func TestRestarted(t *testing.T) {
	run := func(restarts bool) []string {
		l := newLoop(t, func(r *v1alpha1.NodeRollout) {
			r.Spec.Strategy = &v1alpha1.Strategy{Soak: duration(5 * time.Second), Retries: &v1alpha1.Retries{Limit: 1, Backoff: duration(7 * time.Second)}}
		})
		record := &writes.Record{}
		api, _ := l.api.(client.WithWatch)
		l.api = record.Client(api)
		l.restart()
		l.host("a")
		failing := l.host("b", func(h *simulated) { h.fails[v1alpha1.HostActionPrepare] = "it is broken" })
		l.host("c")
		for range 600 {
			if restarts {
				l.restart()
			}
			l.look()
			record.Step()
			l.act()
			if len(l.status().Failed) > 0 {
				clear(failing.fails)
			}
			l.clock.SetTime(l.clock.Now().Add(time.Second))
		}
		for name := range l.hosts {
			if h := l.hosts[name]; h.runs != h.offers || l.idle(name) != "" {
				t.Errorf("%s runs %s: %s", name, h.runs, l.idle(name))
			}
		}
		return record.Lines()
	}
	kept, forgot := run(false), run(true)
	if len(kept) < 40 {
		t.Errorf("only %d writes were compared", len(kept))
	}
	if diff := cmp.Diff(kept, forgot); diff != "" {
		t.Errorf("the same process and a new one each time differ (-same +new):\n%s", diff)
	}
}
