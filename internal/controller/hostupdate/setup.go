// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/turn"
)

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	own := func(r *unstructured.Unstructured) bool { return !turn.Replaces(r) }
	b, err := c.NewController(m, "noderollout.hostupdate", c.options.Threads, turn.Object(),
		20*time.Millisecond, turn.RolloutsOfNode(c.Client, turn.GroupVersionKind, "", own)) // Turns have many short steps.
	if err != nil {
		return err
	}
	return b.Complete(c)
}
