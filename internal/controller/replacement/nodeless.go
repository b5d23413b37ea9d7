// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	machine "moult.dev/moult/internal/kind/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// wrecks notes which machines have failed without a Node, and, where there are some, which other NodeRollouts are for their scale sets: there is no Node that
// one of them could claim. While that can't be told, these machines are not looked at.
func (p *pass) wrecks(ctx context.Context) error {
	seen := map[string]time.Time{}
	for _, s := range p.view.Sets {
		for i := range s.Machines {
			if m := &s.Machines[i]; p.view.Wreck(m) {
				unit := v1alpha1.MachineUnit(s.Name, m.ID)
				seen[unit] = p.now
				if since, known := p.memo.wrecks[unit]; known {
					seen[unit] = since
				}
			}
		}
	}
	p.memo.wrecks, p.view.Wrecks = seen, seen
	if len(seen) == 0 {
		return nil
	}
	all, err := p.stores(ctx)
	if err != nil {
		return err
	}
	p.view.Others = map[string]string{}
	for i := range all {
		stored := &all[i]
		if client.ObjectKeyFromObject(stored) == p.key || !turnof.Replaces(stored) {
			continue
		}
		for _, name := range p.claimed(stored) {
			p.view.Others[machine.LastOf(name)] = stored.GetName()
		}
	}
	return nil
}

// claimed are the scale sets that another NodeRollout is for: of the same cloud, as far as it does more than detect.
func (p *pass) claimed(stored *unstructured.Unstructured) (names []string) {
	r, malformed, err := turnof.Decode(stored)
	if err != nil || malformed != nil || r.Spec.Replacement == nil {
		return nil // It does nothing.
	}
	if r.Spec.Replacement.DetectOnly || !p.sameCloud(r.Spec.Replacement) {
		return nil
	}
	names = r.Spec.Replacement.ScaleSets
	for i := range r.Status.ScaleSets {
		if s := &r.Status.ScaleSets[i]; s.Machines > 0 || len(s.Operations) > 0 {
			names = append(names, s.Name)
		}
	}
	for i := range r.Status.Turns {
		names = append(names, r.Status.Turns[i].ScaleSet)
	}
	return names
}

// stores are all NodeRollouts as they are stored, which must not be changed.
func (c *Controller) stores(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(turnof.Kind + "List"))
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeRollouts, %w", err)
	}
	return list.Items, nil
}
