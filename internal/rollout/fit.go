// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// fit refuses units that can't be updated at all; the unit has the reason.
func fit(_ *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.State == v1alpha1.UnitFailed {
		return "", "" // Its reason is the reason of the failure.
	}
	return c.Reason, c.Message
}
