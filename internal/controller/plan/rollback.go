// SPDX-License-Identifier: Apache-2.0

package plan

import (
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/kind/plan"
)

// restore keeps a rolled back Plan at its last complete revision. The rollback ends when the Plan resolves to another revision than the one that
// failed, or has no strategy.rollback any more.
func restore(p *upgradev1.Plan) {
	s := &p.Status
	if s.RolledBack == nil {
		return
	}
	if !rollsBack(p) || s.LastComplete == nil || *s.RolledBack != *plan.RevisionOf(p) {
		s.RolledBack = nil
		return
	}
	s.LatestVersion, s.LatestHash = s.LastComplete.Version, s.LastComplete.Hash
}

func rollsBack(p *upgradev1.Plan) bool { return p.Spec.Strategy != nil && p.Spec.Strategy.Rollback }

// resolvedVersion returns the version that the Plan resolved to last, before any rollback.
func resolvedVersion(p *upgradev1.Plan) string {
	if p.Status.RolledBack != nil {
		return p.Status.RolledBack.Version
	}
	return p.Status.LatestVersion
}

// irreversible says why the Plan can't be rolled back from its present revision; "" if it can. Only the version may differ: what else shaped earlier
// Jobs is not stored.
func irreversible(p *upgradev1.Plan, secretHashes map[string]string) string {
	last := p.Status.LastComplete
	switch {
	case !rollsBack(p):
		return "spec.strategy.rollback is false"
	case p.Status.RolledBack != nil:
		return "it was rolled back from version " + p.Status.RolledBack.Version + " already"
	case last == nil || last.Hash == p.Status.LatestHash:
		return "no earlier version is known that all nodes had"
	}
	before := p.DeepCopy()
	before.Status.LatestVersion, before.Status.LatestHash = last.Version, last.Hash
	hash, err := latestHash(before, secretHashes)
	if err != nil || hash != last.Hash || plan.TemplateDigest(before) != last.Template {
		return "since version " + last.Version + " more of the Plan or its secrets has changed than the version, so its Job can't be made again"
	}
	return ""
}

// rollBack brings nodes back to the last complete revision, after the failure limit has halted the Plan. The next pass begins with it.
func (p *pass) rollBack() {
	if !p.MayRollBack() {
		return
	}
	if p.w.Irreversible != "" {
		p.CannotRollBack(p.w.Irreversible)
		return
	}
	p.w.Plan.Status.RolledBack = plan.RevisionOf(p.w.Plan)
	p.RollBackSoon()
}
