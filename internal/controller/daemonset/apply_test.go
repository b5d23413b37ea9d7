// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/internal/kind/daemonset"
)

// Where the API server refuses all pods a pass asks for a few, and after a refusal for one. Where it refuses some, it asks for the others.
func TestCreatePodsAfterRefusals(t *testing.T) {
	all := []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"}
	for name, tc := range map[string]struct {
		refused          []string
		before           bool
		created, refuses int32
	}{
		"none":              {nil, false, 9, 0},
		"all":               {all, false, 0, 8},
		"all, as before":    {all, true, 0, 1},
		"some of the first": {[]string{"n2", "n5"}, false, 6, 2},
		"some, after one":   {[]string{"n2", "n5"}, true, 7, 2},
		"the last":          {[]string{"n8"}, false, 8, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(9)
			c := w.serve(t)
			var created, refused atomic.Int32
			c.daemonPods = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					if slices.Contains(tc.refused, daemonset.NodeOf(o.(*corev1.Pod))) {
						refused.Add(1)
						return errors.New("no room")
					}
					o.SetUID(types.UID(o.GetName()))
					created.Add(1)
					return nil
				},
			})
			p := w.begin(t, c)
			p.Actions.Create = p.States
			if tc.before {
				p.Refused["another node"] = daemonset.Refusal{At: p.now}
			}
			if err := p.apply(t.Context()); (err != nil) != (len(tc.refused) > 0) {
				t.Errorf("the error is %v", err)
			}
			if created.Load() != tc.created || refused.Load() != tc.refuses {
				t.Errorf("%d were created, and %d refused; want %d and %d", created.Load(), refused.Load(), tc.created, tc.refuses)
			}
		})
	}
}
