// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// optedOut keeps a rollout away from nodes that carry its opt-out label.
func optedOut(_ *pass, u *Unit) (v1alpha1.Reason, string) {
	if u.OptedOut {
		return v1alpha1.ReasonOptedOut, "the node's label opts it out"
	}
	return "", ""
}
