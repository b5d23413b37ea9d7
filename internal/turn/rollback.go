// SPDX-License-Identifier: Apache-2.0

package turn

import "moult.dev/moult/internal/fleet"

// irreversible begins the part of a halted rollout's message that says why it can't be rolled back.
const irreversible = "; it can't be rolled back: "

// MayRollBack reports whether the failure limit has halted a rollout whose strategy asks for a rollback.
func (p *Pass[T]) MayRollBack() bool {
	return p.Decision.Halted != "" && p.Spec != nil && p.Spec.Rollback && !p.Spec.Paused
}

// CannotRollBack adds to the halt why the rollout can't be rolled back.
func (p *Pass[T]) CannotRollBack(why string) { p.Decision.Halted += irreversible + why }

// RollBackSoon wakes the rollout after its status has recorded the rollback.
func (p *Pass[T]) RollBackSoon() { p.WakeAt(p.Now.Add(fleet.Coalesce)) }
