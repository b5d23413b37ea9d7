// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"
)

// poll asks for a condition at once and then every interval, until it holds, fails, or the context ends.
func poll(ctx context.Context, interval time.Duration, condition func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
