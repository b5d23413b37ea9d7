// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/fleet"
	turnof "moult.dev/moult/internal/turn"
)

// waitingForClouds is how many reconciles share a thread, because most of them wait for an answer.
const waitingForClouds = 4

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	b, err := c.NewController(m, "noderollout.replacement", waitingForClouds*c.options.Threads, turnof.Object(),
		fleet.Coalesce, turnof.RolloutsOfNode(c.Client, true))
	if err != nil {
		return err
	}
	return b.Complete(c)
}
