// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attached returns the PersistentVolumes that are attached to the node and that no staying pod uses, sorted and without
// duplicates. Inline volumes have no name, and are omitted. The API server can't select attachments by node.
func (d *Drainer) attached(ctx context.Context, node string, verdicts []Verdict) ([]string, error) {
	var all storagev1.VolumeAttachmentList
	if err := d.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the volumes attached to node %s, %w", node, err)
	}
	names := sets.New[string]()
	for i := range all.Items {
		if a := &all.Items[i].Spec; a.NodeName == node && a.Source.PersistentVolumeName != nil {
			names.Insert(*a.Source.PersistentVolumeName)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	kept, err := d.volumesOfStaying(ctx, node, verdicts)
	if err != nil {
		return nil, err
	}
	return sets.List(names.Difference(kept)), nil
}

// volumesOfStaying returns the PersistentVolumes of pods that stay on the node, including ephemeral ones.
func (d *Drainer) volumesOfStaying(ctx context.Context, node string, verdicts []Verdict) (sets.Set[string], error) {
	volumes := sets.New[string]()
	for _, verdict := range verdicts {
		if verdict.State != Skipped {
			continue
		}
		pod := verdict.Pod
		for i := range pod.Spec.Volumes {
			claim := client.ObjectKey{Namespace: pod.Namespace}
			switch v := &pod.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				claim.Name = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				claim.Name = pod.Name + "-" + v.Name
			default:
				continue
			}
			var pvc corev1.PersistentVolumeClaim
			if err := d.client.Get(ctx, claim, &pvc); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading claim %s of a pod that stays on node %s, %w", claim, node, err)
			}
			volumes.Insert(pvc.Spec.VolumeName) // "" for a claim that is deleted or not bound.
		}
	}
	return volumes, nil
}
