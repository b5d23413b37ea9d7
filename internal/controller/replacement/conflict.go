// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	turnof "moult.dev/moult/internal/turn"
)

// refuseAmbiguity makes the spec a problem if it names one scale set twice, or if an older NodeRollout replaces machines of one of its scale sets. Turns go on;
// none begins, and no node is claimed. Claims on Nodes keep two rollouts from disrupting one node, also before this one knows its scale sets.
func (p *pass) refuseAmbiguity(ctx context.Context) error {
	sets := slices.Sorted(maps.Keys(p.memo.sets))
	for i, name := range sets {
		id := p.identity(p.memo.sets[name])
		for _, other := range sets[:i] {
			if id != "" && id == p.identity(p.memo.sets[other]) {
				p.refuse(fmt.Errorf("scale set %s is %s by another name: remove one of them from spec.replacement.scaleSets", name, other))
			}
		}
	}
	all, err := p.stores(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		stored := &all[i]
		if client.ObjectKeyFromObject(stored) == p.key || !turnof.Replaces(stored) {
			continue
		}
		r, malformed, err := turnof.Decode(stored)
		if err != nil || malformed != nil || r.Spec.Replacement == nil || r.Spec.Replacement.DetectOnly || p.rules.DetectOnly || !p.sameCloud(r.Spec.Replacement) {
			continue // It changes nothing, or not there.
		}
		if cmp.Or(r.CreationTimestamp.Compare(p.rollout.CreationTimestamp.Time), strings.Compare(r.Name, p.rollout.Name)) > 0 {
			continue // That one is refused.
		}
		theirs := scaleSetsOf(r)
		for _, ours := range sets {
			if slices.ContainsFunc(theirs, func(name string) bool { return p.mayBeSame(ours, name) }) {
				p.refuse(fmt.Errorf("NodeRollout %s, which is older, replaces machines of scale set %s: remove the scale set from one of them", r.Name, ours))
				p.at(p.now.Add(p.checkPeriod)) // What that one does shows on no Node of this one.
			}
		}
	}
	return nil
}

func (p *pass) refuse(why error) {
	if p.problem == nil {
		p.problem = why
	}
}

// identity is the same for all names of one scale set. It is empty while it is not known, and where there is no such set.
func (p *pass) identity(s *set) string {
	switch {
	case s.absent:
		return ""
	case p.replacement.Provider.Azure != nil:
		return strings.ToLower(s.name)
	case s.known:
		return s.described.Name
	case p.replacement.Provider.GCP != nil && !strings.Contains(s.name, "/"):
		return "" // Where it is, only a look tells.
	}
	return s.name
}

// scaleSetsOf are the names of the scale sets that a NodeRollout is for.
func scaleSetsOf(r *v1alpha1.NodeRollout) []string {
	names := slices.Clone(r.Spec.Replacement.ScaleSets)
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

// mayBeSame reports whether two names may be of one scale set: GCP knows one by its name alone, or by where it is.
func (w *world) mayBeSame(a, b string) bool {
	switch {
	case w.replacement.Provider.Azure != nil:
		return strings.EqualFold(a, b)
	case w.replacement.Provider.GCP != nil && strings.Contains(a, "/") != strings.Contains(b, "/"):
		return path.Base(a) == path.Base(b)
	}
	return a == b
}

// sameCloud reports whether another NodeRollout may be for the same machines as this one. What its spec leaves to a default may be the same.
func (w *world) sameCloud(r *v1alpha1.Replacement) bool {
	a, b := &r.Provider, &w.replacement.Provider
	maySame := func(a, b string) bool { return a == "" || b == "" || strings.EqualFold(a, b) }
	switch {
	case a.Azure != nil && b.Azure != nil:
		return maySame(a.Azure.SubscriptionID, b.Azure.SubscriptionID) && maySame(a.Azure.ResourceGroup, b.Azure.ResourceGroup)
	case a.AWS != nil && b.AWS != nil:
		return maySame(a.AWS.Region, b.AWS.Region)
	case a.GCP != nil && b.GCP != nil:
		return a.GCP.Project == b.GCP.Project
	}
	return false
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
