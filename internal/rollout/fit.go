// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// fit keeps a rollout away from nodes on which it could not be carried out; whoever made the unit says why.
func fit(_ *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.State == v1alpha1.UnitFailed {
		return "", "" // Its reason is that of the failure.
	}
	return c.Reason, c.Message
}
