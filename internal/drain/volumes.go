// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// attached returns the PersistentVolumes that are attached to the node and that no staying pod uses, sorted and without
// duplicates. Inline volumes have no name, and are omitted. The API server can't select attachments by node.
func (d *Drainer) attached(ctx context.Context, node string, verdicts []Verdict) ([]string, error) {
	var all storagev1.VolumeAttachmentList
	if err := d.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the volumes attached to node %s, %w", node, err)
	}
	var names []string
	for i := range all.Items {
		if a := &all.Items[i].Spec; a.NodeName == node && a.Source.PersistentVolumeName != nil {
			names = append(names, *a.Source.PersistentVolumeName)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	kept, err := d.volumesOf(ctx, node, claimsOfStaying(verdicts))
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, kept.Has)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// claimsOfStaying returns the PersistentVolumeClaims of pods that stay on the node, including ephemeral ones.
func claimsOfStaying(verdicts []Verdict) sets.Set[types.NamespacedName] {
	claims := sets.New[types.NamespacedName]()
	for _, verdict := range verdicts {
		if verdict.Action != Skip {
			continue
		}
		pod := verdict.Pod
		for i := range pod.Spec.Volumes {
			switch v := &pod.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				claims.Insert(types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName})
			case v.Ephemeral != nil:
				claims.Insert(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name})
			}
		}
	}
	return claims
}

// volumesOf returns the PersistentVolumes of claims. A deleted claim has none.
func (d *Drainer) volumesOf(ctx context.Context, node string, claims sets.Set[types.NamespacedName]) (sets.Set[string], error) {
	volumes := sets.New[string]()
	for claim := range claims {
		var pvc corev1.PersistentVolumeClaim
		err := d.client.Get(ctx, claim, &pvc)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading claim %s of a pod that stays on node %s, %w", claim, node, err)
		case pvc.Spec.VolumeName != "":
			volumes.Insert(pvc.Spec.VolumeName)
		}
	}
	return volumes, nil
}
