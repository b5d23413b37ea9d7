// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// attempts bounds how often an object is read and written anew that others write at the same time.
const attempts = 5

// manager is by what name the API server records who wrote.
const manager = "kubectl-eds"

// Annotate sets annotations of an ExtendedDaemonSet; nil takes one away. change is asked what to set, or why not, of the
// object as it is when it is written: when others write to it meanwhile, it is read and asked again.
func (c *Client) Annotate(ctx context.Context, name string, change func(*edsv1.ExtendedDaemonSet) (map[string]any, error)) error {
	return again(func() error {
		eds, err := c.Get(ctx, name)
		if err != nil {
			return err
		}
		annotations, err := change(eds)
		if err != nil {
			return err
		}
		return c.patch(ctx, target.DaemonSet, name, types.MergePatchType, map[string]any{
			"metadata": map[string]any{"resourceVersion": eds.ResourceVersion, "annotations": annotations},
		})
	})
}

// SetTemplate puts the template of an ExtendedDaemonSetReplicaSet in place of the ExtendedDaemonSet's. change is asked for the
// name of the former, as for Annotate.
func (c *Client) SetTemplate(ctx context.Context, name string, change func(*edsv1.ExtendedDaemonSet) (string, error)) error {
	return again(func() error {
		eds, err := c.Get(ctx, name)
		if err != nil {
			return err
		}
		from, err := change(eds)
		if err != nil {
			return err
		}
		u, err := c.Object(ctx, ReplicaSet, from)
		if err != nil {
			return err
		}
		// As it is stored: the types of this program may know less than the API server.
		template, _, err := unstructured.NestedMap(u.Object, "spec", "template")
		if err != nil || template == nil {
			return fmt.Errorf("reading %s %s/%s, it has no template", ReplicaSet.Name, c.Namespace, from)
		}
		return c.patch(ctx, target.DaemonSet, name, types.JSONPatchType, []map[string]any{
			{"op": "replace", "path": "/metadata/resourceVersion", "value": eds.ResourceVersion},
			{"op": "replace", "path": "/spec/template", "value": template},
		})
	})
}

// SetCondition sets a condition in the status of an ExtendedDaemonSetReplicaSet. change is asked for it, as for Annotate.
func (c *Client) SetCondition(ctx context.Context, name string, change func(*edsv1.ExtendedDaemonSetReplicaSet) (edsv1.Condition, error)) error {
	return again(func() error {
		ers, err := c.Revision(ctx, name)
		if err != nil {
			return err
		}
		condition, err := change(ers)
		if err != nil {
			return err
		}
		status := &ers.Status
		if there := edsv1.FindCondition(status.Conditions, condition.Type); there != nil {
			*there = condition
		} else {
			status.Conditions = append(status.Conditions, condition)
		}
		return c.patch(ctx, ReplicaSet, name, types.MergePatchType, map[string]any{
			"metadata": map[string]any{"resourceVersion": ers.ResourceVersion},
			"status":   status, // All of it: one without its required fields would be refused.
		}, "status")
	})
}

func (c *Client) patch(ctx context.Context, k *target.Kind, name string, how types.PatchType, patch any, subresources ...string) error {
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = c.Of(k).Patch(ctx, name, how, body, metav1.PatchOptions{FieldManager: manager}, subresources...)
	}
	if err != nil {
		return fmt.Errorf("writing %s %s/%s, %w", k.Name, c.Namespace, name, err)
	}
	return nil
}

// again tries once more while others were faster to write.
func again(try func() error) error {
	for attempt := 1; ; attempt++ {
		if err := try(); !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
	}
}
