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

// attached returns the PersistentVolumes that are attached to the node and that no staying pod uses.
func (d *Drainer) attached(ctx context.Context, node string, staying []*corev1.Pod) ([]string, error) {
	attachments, err := d.attachments(ctx, node)
	if err != nil || len(attachments) == 0 {
		return nil, err
	}
	kept, err := d.volumesOf(ctx, node, claimsOf(staying))
	if err != nil {
		return nil, err
	}
	return detaching(attachments, kept), nil
}

// staying returns the pods that stay on the node.
func staying(verdicts []Verdict) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range verdicts {
		if verdicts[i].Action == Skip {
			pods = append(pods, verdicts[i].Pod)
		}
	}
	return pods
}

// claimsOf returns the PersistentVolumeClaims that pods use, including ephemeral ones, without duplicates.
func claimsOf(pods []*corev1.Pod) []types.NamespacedName {
	var claims []types.NamespacedName
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			name := ""
			switch v := &pod.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				name = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				name = pod.Name + "-" + v.Name
			default:
				continue
			}
			if claim := (types.NamespacedName{Namespace: pod.Namespace, Name: name}); !slices.Contains(claims, claim) {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// detaching returns the PersistentVolumes of these attachments except kept ones, sorted and without duplicates. Inline
// volumes have no name, and are omitted.
func detaching(attachments []storagev1.VolumeAttachment, kept sets.Set[string]) []string {
	var names []string
	for i := range attachments {
		if name := attachments[i].Spec.Source.PersistentVolumeName; name != nil && !kept.Has(*name) {
			names = append(names, *name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// attachments reads the node's VolumeAttachments. The API server can't select them by node.
func (d *Drainer) attachments(ctx context.Context, node string) ([]storagev1.VolumeAttachment, error) {
	var all storagev1.VolumeAttachmentList
	if err := d.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the volumes attached to node %s, %w", node, err)
	}
	return slices.DeleteFunc(all.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName != node }), nil
}

// volumesOf returns the PersistentVolumes of claims. A deleted claim has none.
func (d *Drainer) volumesOf(ctx context.Context, node string, claims []types.NamespacedName) (sets.Set[string], error) {
	volumes := sets.New[string]()
	for _, claim := range claims {
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
