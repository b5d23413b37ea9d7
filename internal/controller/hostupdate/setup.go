// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/turn"
)

// coalesce is how long a reconcile waits after a change of a Node, so that it covers several. It is short because a turn has many steps.
const coalesce = 20 * time.Millisecond

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	b, err := c.NewController(m, "noderollout.hostupdate", c.options.Threads, turn.Object(),
		turn.After(coalesce, turn.RolloutsOfNode(c.Client, false)))
	if err != nil {
		return err
	}
	return b.Complete(c)
}
