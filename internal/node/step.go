// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// Step is what a turn writes on its Node at once. What it does not name stays as it is.
type Step struct {
	// Claim of the rollout, which is written in place of one that it has there already, or, with Release, taken back.
	Claim   v1alpha1.Claim
	Release bool
	// Unclaimed leaves the claims as they are; of Claim only the rollout's name counts then.
	Unclaimed bool
	// Cordon makes the node unschedulable, and marks for whom. One that is unschedulable already is left so and unmarked.
	Cordon bool
	// GiveBack undoes what the turn had done: it makes the node schedulable if the turn had made it unschedulable, and lets external load
	// balancers have it again if the rollout had kept it from them.
	GiveBack bool
	// Also is written besides.
	Also []Also
}

// Write writes a step in one patch, on condition that the Node is as it was read: whoever loses decides again. It writes nothing if all is
// so already. It fails if another claim, that is neither shared with this one nor parked, is there. Of the Node it needs no more than what is
// kept in the operator's cache: what is not there is not touched.
func Write(ctx context.Context, c client.Writer, n *corev1.Node, s Step) error {
	changed := n.DeepCopy()
	if err := s.edit(changed); err != nil {
		return fmt.Errorf("writing node %s, %w", n.Name, err)
	}
	p := patch{Metadata: patchMetadata{
		ResourceVersion: n.ResourceVersion, Annotations: difference(n.Annotations, changed.Annotations), Labels: difference(n.Labels, changed.Labels),
	}}
	if n.Spec.Unschedulable != changed.Spec.Unschedulable {
		p.Spec = map[string]any{"unschedulable": nil}
		if changed.Spec.Unschedulable {
			p.Spec["unschedulable"] = true
		}
	}
	if len(p.Metadata.Annotations)+len(p.Metadata.Labels)+len(p.Spec) == 0 {
		return nil
	}
	body, err := json.Marshal(p)
	if err == nil {
		err = c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil {
		return fmt.Errorf("writing node %s, %w", n.Name, err)
	}
	return nil
}

type patch struct {
	Metadata patchMetadata  `json:"metadata"`
	Spec     map[string]any `json:"spec,omitempty"`
}

type patchMetadata struct {
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
	Labels          map[string]*string `json:"labels,omitempty"`
}

// difference is what makes one map of the other; nil takes a key off.
func difference(before, after map[string]string) map[string]*string {
	d := map[string]*string{}
	for key, value := range after {
		if old, there := before[key]; !there || old != value {
			d[key] = &value
		}
	}
	for key := range before {
		if _, there := after[key]; !there {
			d[key] = nil
		}
	}
	return d
}

func (s *Step) edit(n *corev1.Node) error {
	by := s.Claim.Rollout
	// As it stood before: to uncordon counts what the turn had done, not what it does now.
	cordoned := CordonedFor(n, s.Claim)
	if !s.Unclaimed {
		claims, err := claimsWith(n, s.Claim, !s.Release)
		if err != nil {
			return err
		}
		assign(&n.Annotations, v1alpha1.AnnotationClaims, claims)
	}
	switch {
	case s.GiveBack && cordoned:
		n.Spec.Unschedulable = false
		mark(n, "")
	case s.Cordon && !n.Spec.Unschedulable:
		n.Spec.Unschedulable = true
		mark(n, by)
	case !n.Spec.Unschedulable:
		mark(n, "") // A mark outlives the cordon it stands for when a person has lifted that.
	}
	include(n, func(holder string) bool { return s.GiveBack && holder == by })
	for _, also := range s.Also {
		also(n, by)
	}
	return nil
}

// Annotating also sets annotations of the node; nil takes one off.
func Annotating(values map[string]*string) Also {
	return func(n *corev1.Node, _ string) bool {
		changed := false
		for key, value := range values {
			changed = assign(&n.Annotations, key, value) || changed
		}
		return changed
	}
}

// Labelling also sets labels of the node; nil takes one off.
func Labelling(values map[string]*string) Also {
	return func(n *corev1.Node, _ string) bool {
		changed := false
		for key, value := range values {
			changed = assign(&n.Labels, key, value) || changed
		}
		return changed
	}
}

// assign sets a key, or takes it off with nil, and says whether that changed anything.
func assign(m *map[string]string, key string, value *string) bool {
	old, there := (*m)[key]
	switch {
	case value == nil && there:
		delete(*m, key)
	case value != nil && (!there || old != *value):
		set(m, key, *value)
	default:
		return false
	}
	return true
}
