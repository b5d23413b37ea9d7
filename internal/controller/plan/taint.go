// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
)

// taint keeps the taint of outdated nodes as the strategy asks for it, where nothing else is to be done.
func (t *turn) taint(w *world, selected bool) {
	if t.step != stepNone || !w.ready {
		return
	}
	s := w.plan.Spec.Strategy
	wanted := s != nil && s.TaintOutdated && selected && !t.unit.OptedOut && t.unit.State != v1alpha1.UnitUpdated && t.unit.State != v1alpha1.UnitSoaking
	switch has := node.Tainted(t.node, w.taint); {
	case wanted && !has:
		t.step = stepTaint
	case !wanted && has:
		t.step = stepUntaint
	}
}

// taintOf is the key of the taint that nodes carry which are still to be updated.
func taintOf(plan string) string { return "plan" + v1alpha1.TaintOutdatedSuffix + "/" + plan }
