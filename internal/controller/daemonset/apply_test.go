// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Where requests hang until they fail a pass ends with the first of them, so that others get the thread.
func TestApplyEndsWithARequestThatHangs(t *testing.T) {
	hung := errors.New("context deadline exceeded")
	for name, tc := range map[string]struct {
		takes            time.Duration
		deletes, creates bool // which of these fail
		deleted, created int32
	}{
		"all is well":                    {0, false, false, 1, 8},
		"it takes long, but not in vain": {30 * time.Second, false, false, 1, 8},
		"creations fail at once":         {0, false, true, 1, maxRefused},
		"creations hang":                 {30 * time.Second, false, true, 1, 1},
		"deletions fail at once":         {0, true, false, 1, 8},
		"deletions hang":                 {30 * time.Second, true, false, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(9).has("new", ended, 0)
			c := w.serve(t)
			clk := testingclock.NewFakePassiveClock(now)
			c.clock = clk
			var created, deleted atomic.Int32
			ask := func(fails bool) error {
				clk.SetTime(clk.Now().Add(tc.takes))
				if fails {
					return hung
				}
				return nil
			}
			c.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, with client.WithWatch, o client.Object, options ...client.CreateOption) error {
					created.Add(1)
					if err := ask(tc.creates); err != nil {
						return err
					}
					return with.Create(ctx, o, options...)
				},
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, _ ...client.DeleteOption) error {
					deleted.Add(1)
					return ask(tc.deletes)
				},
			})
			p := w.begin(t, c)
			p.Actions.Clean = w.pods[:1]
			for i := range p.States {
				if s := &p.States[i]; len(s.Extra) == 0 {
					p.Actions.Create = append(p.Actions.Create, s)
				}
			}
			if err := p.apply(t.Context()); (err != nil) != (tc.creates || tc.deletes) {
				t.Errorf("the error is %v", err)
			}
			if created.Load() != tc.created || deleted.Load() != tc.deleted {
				t.Errorf("%d were asked for, and %d to go; want %d and %d", created.Load(), deleted.Load(), tc.created, tc.deleted)
			}
		})
	}
}
