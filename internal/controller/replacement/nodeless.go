// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machine "moult.dev/moult/internal/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// overlaps looks up which other NodeRollouts are for the scale sets in which machines have failed without a Node: there is no Node that one of them could
// claim. Without such machines, and where it can't be told, there are no others known, and these machines are not looked at.
func (p *pass) overlaps(ctx context.Context) error {
	p.others = nil
	some := false
	for _, s := range p.view.Sets {
		some = some || slices.ContainsFunc(s.Machines, func(m machine.Machine) bool {
			return m.State == machine.Failed && !m.UpToDate && p.view.NodeOf(&m) == nil
		})
	}
	if !some {
		return nil
	}
	all, err := p.stores(ctx)
	if err != nil {
		return err
	}
	p.others = map[string]string{}
	for i := range all {
		stored := &all[i]
		detects, _, _ := unstructured.NestedBool(stored.Object, "spec", "replacement", "detectOnly")
		if client.ObjectKeyFromObject(stored) == p.key || !turnof.Replaces(stored) || detects {
			continue
		}
		names, _, _ := unstructured.NestedStringSlice(stored.Object, "spec", "replacement", "scaleSets")
		for _, s := range turnof.StatusOf(stored).ScaleSets {
			names = append(names, s.Name)
		}
		for _, name := range names {
			p.others[name] = stored.GetName()
		}
	}
	return nil
}

// stores are all NodeRollouts as they are stored, which must not be changed.
func (c *Controller) stores(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(turnof.GroupVersionKind.GroupVersion().WithKind(turnof.Kind + "List"))
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeRollouts, %w", err)
	}
	return list.Items, nil
}
