// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/turn"
)

// attempt identifies what a turn on this node is started for. A failed turn is tried again once it differs: after any
// change of the Plan's spec, version or secrets, or when somebody asks for it.
func (w *world) attempt(n *corev1.Node) string {
	return nodeturn.Digest(w.spec, w.template, w.plan.Annotations[v1alpha1.AnnotationRetry], n.Annotations[v1alpha1.AnnotationRetry])
}

// specDigest identifies what a Plan says but for its strategy: to pause a rollout, or to let it go faster, is no new attempt.
func specDigest(p *upgradev1.Plan) string {
	spec := p.Spec
	spec.Strategy = nil
	return nodeturn.Digest(spec)
}

// interrupted reports whether the turn had begun for something else than is asked for now.
func (t *unit) interrupted(w *world) bool { return t.Claim.Attempt != w.attempt(t.Node) }

// newClaim starts a turn, or starts it over: then what is to be undone at the end stays known.
func (t *unit) newClaim(w *world) v1alpha1.Claim {
	p := w.plan
	marked := w.options.Job.waits(isWindows(t.Node)) // Then the operator cordons, and leaves its mark.
	claim := v1alpha1.Claim{
		Rollout:  holder(p),
		UID:      p.UID,
		Shared:   shared(p),
		Revision: p.Status.LatestHash,
		Attempt:  w.attempt(t.Node),
		Turn:     strconv.FormatInt(w.now.UnixNano(), 36),
		Since:    metav1.Time{Time: w.now},

		KeptSeconds: jobTTL(p, &w.options.Job),
		Drains:      p.Spec.Drain != nil,
		Uncordon:    cordons(p) && !marked && !t.Node.Spec.Unschedulable,
	}
	if t.Claim != nil {
		claim.Uncordon = claim.Uncordon || t.Claim.Uncordon
		if claim.Attempt == t.Claim.Attempt {
			claim.Failures = t.Claim.Failures
		}
	}
	if t.Step == turn.StepAdopt {
		_, ours := t.job.Annotations[v1alpha1.AnnotationTurn]
		claim.Turn = turnOf(t.job)
		claim.Since = t.job.CreationTimestamp
		if ttl := t.job.Spec.TTLSecondsAfterFinished; ttl != nil {
			claim.KeptSeconds = *ttl
		}
		claim.Uncordon = cordons(p) && (!ours || !marked)
	}
	return claim
}

// taintOf is the key of the taint that outdated nodes carry.
func taintOf(plan string) string { return "plan" + v1alpha1.TaintOutdatedSuffix + "/" + plan }
