// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	machine "moult.dev/moult/internal/kind/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// rivals looks up the turns of other NodeRollouts.
func (p *pass) rivals(ctx context.Context) error {
	all, err := p.stores(ctx)
	if err != nil {
		return err
	}
	p.view.Rivals = machine.Rivals{}
	for i := range all {
		stored := &all[i]
		status, _ := stored.Object["status"].(map[string]any)
		if client.ObjectKeyFromObject(stored) == p.key || !turnof.Replaces(stored) || status["turns"] == nil {
			continue
		}
		r, _, err := turnof.Decode(stored)
		if err != nil {
			return err
		}
		made, ours := r.CreationTimestamp, p.rollout.CreationTimestamp
		first := cmp.Or(made.Compare(ours.Time), strings.Compare(r.Name, p.rollout.Name)) < 0
		for j := range r.Status.Turns {
			p.view.Rivals.Add(&machine.Rival{MachineTurn: r.Status.Turns[j], Rollout: r.Name, First: first}, p.sameCloud(r.Spec.Replacement))
		}
	}
	return nil
}

// sameCloud reports whether another NodeRollout may be for the same machines as this one, as far as its spec tells where they are.
func (w *world) sameCloud(r *v1alpha1.Replacement) bool {
	if r == nil {
		return false
	}
	a, b := &r.Provider, &w.replacement.Provider
	switch {
	case a.Azure != nil && b.Azure != nil:
		return strings.EqualFold(a.Azure.SubscriptionID, b.Azure.SubscriptionID) && strings.EqualFold(a.Azure.ResourceGroup, b.Azure.ResourceGroup)
	case a.GCP != nil && b.GCP != nil:
		return a.GCP.Project == b.GCP.Project
	}
	return (a.Azure != nil) == (b.Azure != nil) && (a.AWS != nil) == (b.AWS != nil) && (a.GCP != nil) == (b.GCP != nil)
}
