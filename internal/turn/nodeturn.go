// SPDX-License-Identifier: Apache-2.0

package turn

import "moult.dev/moult/internal/kind/nodeturn"

// Names of package nodeturn that controllers use.
type (
	Turn  = nodeturn.Turn
	Step  = nodeturn.Step
	Taker = nodeturn.Taker
)

// The steps that all mechanisms have.
const (
	StepNone    = nodeturn.StepNone
	StepAdopt   = nodeturn.StepAdopt
	StepFail    = nodeturn.StepFail
	StepSoak    = nodeturn.StepSoak
	StepFinish  = nodeturn.StepFinish
	StepRelease = nodeturn.StepRelease
	StepTaint   = nodeturn.StepTaint
	StepUntaint = nodeturn.StepUntaint
)

// Functions of package nodeturn that controllers use.
var (
	Digest  = nodeturn.Digest
	Healthy = nodeturn.Healthy
	Short   = nodeturn.Short
	Stamp   = nodeturn.Stamp
	TaintOf = nodeturn.TaintOf
)
