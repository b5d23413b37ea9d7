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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attached names the PersistentVolumes that are attached to the node and that no pod uses that stays there.
func (d *Drainer) attached(ctx context.Context, node string, staying []*corev1.Pod, chunk int64) ([]string, error) {
	attachments, err := d.attachments(ctx, node, chunk)
	if err != nil || len(attachments) == 0 {
		return nil, err
	}
	kept, err := d.volumesOf(ctx, node, claimsOf(staying))
	if err != nil {
		return nil, err
	}
	return detaching(attachments, kept), nil
}

// staying are the pods that stay on the node.
func staying(verdicts []Verdict) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range verdicts {
		if verdicts[i].Action == Skip {
			pods = append(pods, verdicts[i].Pod)
		}
	}
	return pods
}

// claimsOf names the PersistentVolumeClaims that pods use, their own ephemeral ones too, each once.
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

// detaching names, in order and each once, the PersistentVolumes of these attachments but for those that are kept. Volumes
// that a pod's spec holds inline have no name, and are left out.
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
func (d *Drainer) attachments(ctx context.Context, node string, chunk int64) ([]storagev1.VolumeAttachment, error) {
	var attachments []storagev1.VolumeAttachment
	opts := client.ListOptions{Limit: chunk}
	for {
		var page storagev1.VolumeAttachmentList
		if err := d.client.List(ctx, &page, &opts); err != nil {
			return nil, fmt.Errorf("listing the volumes attached to node %s, %w", node, err)
		}
		for i := range page.Items {
			if page.Items[i].Spec.NodeName == node {
				attachments = append(attachments, page.Items[i])
			}
		}
		if opts.Continue = page.Continue; chunk <= 0 || opts.Continue == "" {
			return attachments, nil
		}
	}
}

// volumesOf reads which PersistentVolumes claims are bound to. A claim that is gone has none.
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
