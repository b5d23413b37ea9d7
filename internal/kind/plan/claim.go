// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// Attempt identifies what a turn on this node is started for. A failed turn is tried again when Attempt changes: after a
// change of the Plan's spec, version or secrets, or when a person asks for a retry. A new strategy alone does not change it.
func (w *World) Attempt(n *corev1.Node) string {
	template := w.templateDigest()
	return nodeturn.Digest(w.spec, template, w.Plan.Annotations[v1alpha1.AnnotationRetry], n.Annotations[v1alpha1.AnnotationRetry])
}

// templateDigest computes TemplateDigest and the digest of the spec once.
func (w *World) templateDigest() string {
	if w.template == "" {
		spec := w.Plan.Spec
		spec.Strategy = nil
		w.template, w.spec = TemplateDigest(w.Plan), nodeturn.Digest(spec)
	}
	return w.template
}

// TemplateDigest identifies the Jobs that the Plan creates. It leaves out Plan fields that do not change a Job's pod, so that another deadline
// interrupts no Job. It also leaves out Moult's own settings, so an upgrade of Moult interrupts none.
func TemplateDigest(p *upgradev1.Plan) string {
	spec := p.Spec
	spec.Concurrency, spec.NodeSelector, spec.Window, spec.Strategy = 0, nil, nil, nil
	spec.Channel, spec.Version, spec.AllowDowngrade = "", "", false
	spec.PostCompleteDelay, spec.PostCompleteLabels, spec.JobActiveDeadlineSecs = nil, nil, nil
	return nodeturn.Digest(spec, Copied(p.Labels), Copied(p.Annotations), p.Status.LatestVersion, p.Status.LatestHash)
}

// RevisionOf returns what the Plan brings nodes to, by its status.
func RevisionOf(p *upgradev1.Plan) *upgradev1.PlanRevision {
	return &upgradev1.PlanRevision{Version: p.Status.LatestVersion, Hash: p.Status.LatestHash, Template: TemplateDigest(p)}
}

// Copied returns the labels or annotations of a Plan that its Jobs and pods also get. It leaves out the keys of Rancher
// (cattle.io), kubectl and Moult.
func Copied(of map[string]string) map[string]string {
	kept := make(map[string]string, len(of)+6)
	maps.Copy(kept, of)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return strings.Contains(key, "cattle.io/") || strings.Contains(key, "kubectl.kubernetes.io/") || strings.HasPrefix(key, v1alpha1.GroupName+"/")
	})
	return kept
}

// WantsNewAttempt reports whether the Plan has changed what it asks for since the turn began.
func (w *World) WantsNewAttempt(t *Unit) bool { return t.Claim.Attempt != w.Attempt(t.Node) }

// NewClaim returns the claim of a turn that begins or starts over. A turn that starts over keeps what its end must undo.
func (w *World) NewClaim(t *Unit) v1alpha1.Claim {
	p := w.Plan
	marked := w.Job.AwaitsOperator(t.Node) // The operator itself cordons, and marks the node.
	claim := v1alpha1.Claim{
		Rollout:  w.Holder,
		UID:      p.UID,
		Shared:   shared(p),
		Revision: p.Status.LatestHash,
		Attempt:  w.Attempt(t.Node),
		Turn:     strconv.FormatInt(w.Now.UnixNano(), 36),
		Since:    metav1.Time{Time: w.Now},

		KeptSeconds: w.Job.TTL(p),
		Drains:      p.Spec.Drain != nil,
		Uncordon:    cordons(p) && !marked && !t.Node.Spec.Unschedulable,
	}
	if t.Claim != nil {
		claim.Uncordon = claim.Uncordon || t.Claim.Uncordon
		if claim.Attempt == t.Claim.Attempt {
			claim.Failures = t.Claim.Failures
		}
	}
	if t.Step == nodeturn.StepAdopt {
		_, ours := t.Job.Annotations[v1alpha1.AnnotationTurn]
		claim.Turn, claim.Since = turnOf(t.Job), t.Job.CreationTimestamp
		if ttl := t.Job.Spec.TTLSecondsAfterFinished; ttl != nil {
			claim.KeptSeconds = *ttl
		}
		claim.Uncordon = cordons(p) && (!ours || !marked)
	}
	return claim
}
