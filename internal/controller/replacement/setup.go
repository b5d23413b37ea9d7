// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	turnof "moult.dev/moult/internal/turn"
)

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	b, err := c.NewController(m, "noderollout.replacement", c.options.Threads, turnof.Object(), turnof.Soon(turnof.RolloutsOfNode(c.Client, true)))
	if err != nil {
		return err
	}
	return b.Complete(c)
}
