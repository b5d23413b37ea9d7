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

// ambiguity says why it is not clear whose scale sets these are: the spec may name one of them twice, or an older NodeRollout replaces machines of
// one of them. Turns go on, and none begins. Claims on Nodes keep two rollouts from disrupting one node, even before this one knows its scale sets.
func (p *pass) ambiguity() error {
	sets := slices.Sorted(maps.Keys(p.memo.sets))
	sets = slices.DeleteFunc(sets, func(name string) bool { return p.memo.sets[name].Deleted })
	for i, name := range sets {
		for _, other := range sets[:i] {
			if maySame(name, other) {
				return fmt.Errorf("scale sets %s and %s may be the same: remove one of them from spec.replacement.scaleSets", other, name)
			}
		}
	}
	for _, r := range p.others {
		if p.isNewer(r) || r.Spec.Replacement.DetectOnly || p.rules.DetectOnly {
			continue // The newer one is refused, and one that only detects changes nothing.
		}
		theirs := scaleSetsOf(r)
		for _, ours := range sets {
			if slices.ContainsFunc(theirs, func(name string) bool { return maySame(ours, name) }) {
				p.at(p.Now.Add(p.checkPeriod)) // No event reports when the other changes.
				return fmt.Errorf("NodeRollout %s, which is older, replaces machines of scale set %s: remove the scale set from one of them", r.Name, ours)
			}
		}
	}
	return nil
}

// readOthers reads the other NodeRollouts with replacement that may be for the same machines.
func (p *pass) readOthers(ctx context.Context) error {
	if len(p.memo.sets) == 0 { // Then no other can be in the way yet.
		return nil
	}
	all, err := replacements(ctx, p.Client, indexSets)
	for i := range all {
		if p.isNewer(&all[i]) && turnof.StatusOf(&all[i]).Turns == nil {
			continue
		}
		r, malformed, err := turnof.Decode(&all[i])
		if err == nil && malformed == nil && r.Name != p.rollout.Name && p.sameCloud(r.Spec.Replacement) {
			p.others = append(p.others, r)
		}
	}
	return err
}

// isNewer reports whether another NodeRollout is newer than this one.
func (p *pass) isNewer(o client.Object) bool {
	created := o.GetCreationTimestamp()
	return cmp.Or(created.Compare(p.rollout.CreationTimestamp.Time), strings.Compare(o.GetName(), p.rollout.Name)) > 0
}

// indexMachines finds the stored NodeRollouts with replacement that have turns, or that have turns, name scale sets or have found some: to read
// thousands takes long.
const indexMachines, indexTurns, indexSets = "machines", "turns", "sets"

func indexedByMachines(o client.Object) (keys []string) {
	stored, ok := o.(*unstructured.Unstructured)
	if !ok || !turnof.Replaces(stored) {
		return nil
	}
	var spec struct{ Replacement v1alpha1.Replacement }
	_ = turnof.ReadField(stored, "spec", &spec) // What can't be read names no scale set.
	s := turnof.StatusOf(stored)
	if s.Turns != nil {
		keys = []string{indexTurns}
	}
	if spec.Replacement.ScaleSets != nil || s.Turns != nil || s.ScaleSets != nil {
		keys = append(keys, indexSets)
	}
	return keys
}

// scaleSetsOf are the names of the scale sets of a NodeRollout.
func scaleSetsOf(r *v1alpha1.NodeRollout) []string {
	names := slices.Clone(r.Spec.Replacement.ScaleSets)
	for i := range r.Status.ScaleSets {
		if s := &r.Status.ScaleSets[i]; s.Machines > 0 || len(s.Operations) > 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// maySame reports whether two names may mean one scale set: Azure ignores case, and GCP accepts names with or without a location.
func maySame(a, b string) bool {
	if strings.Contains(a, "/") != strings.Contains(b, "/") {
		a, b = path.Base(a), path.Base(b)
	}
	return strings.EqualFold(a, b)
}

// sameCloud reports whether another NodeRollout may be for the same machines as this one. An empty field may have the same value.
func (s *settings) sameCloud(r *v1alpha1.Replacement) bool {
	a, b := placeOf(&r.Provider), placeOf(&s.replacement.Provider)
	return slices.EqualFunc(a[:], b[:], func(ours, theirs string) bool { return ours == "" || theirs == "" || strings.EqualFold(ours, theirs) })
}

// placeOf is where a provider's scale sets are, beginning with the cloud.
func placeOf(p *v1alpha1.CloudProvider) [3]string {
	switch {
	case p.Azure != nil:
		return [3]string{"azure", p.Azure.SubscriptionID, p.Azure.ResourceGroup}
	case p.AWS != nil:
		return [3]string{"aws", p.AWS.Region}
	case p.GCP != nil:
		return [3]string{"gcp", p.GCP.Project}
	}
	return [3]string{"unknown"}
}

// replacements are the NodeRollouts with replacement of a key of indexMachines, as they are stored, which must not be changed.
func replacements(ctx context.Context, c client.Reader, key string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(turnof.GroupVersionKind)
	if err := c.List(ctx, list, client.MatchingFields{indexMachines: key}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeRollouts, %w", err)
	}
	return list.Items, nil
}
