// SPDX-License-Identifier: Apache-2.0

package rollout

import "encoding/json"

// show is an object as people write it.
func show(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(text)
}
