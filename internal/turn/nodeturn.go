// SPDX-License-Identifier: Apache-2.0

package turn

import "moult.dev/moult/internal/kind/nodeturn"

// Types of package nodeturn that controllers use.
type (
	Turn = nodeturn.Turn
	Step = nodeturn.Step
)

// Functions of package nodeturn that controllers use.
var (
	Digest  = nodeturn.Digest
	Healthy = nodeturn.Healthy
	Short   = nodeturn.Short
	Stamp   = nodeturn.Stamp
	TaintOf = nodeturn.TaintOf
)
