// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/sha256"
	"encoding/binary"

	"k8s.io/apimachinery/pkg/types"
)

// Rank shuffles nodes, in the same way each time for one rollout and revision, so that no node is always first. It is the
// order of system-upgrade-controller: by sha256 of node uid, rollout uid and revision.
func Rank(node, rollout types.UID, revision string) uint64 {
	buffer := make([]byte, 0, 160)
	buffer = append(buffer, node...)
	buffer = append(buffer, rollout...)
	buffer = append(buffer, revision...)
	sum := sha256.Sum256(buffer)
	return binary.BigEndian.Uint64(sum[:8])
}
