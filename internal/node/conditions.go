// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// lifecycle lists the maintenance conditions of a Node in Kubernetes 1.37.
var lifecycle = []corev1.NodeConditionType{
	corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained,
}

// Condition is a condition to set on a Node.
type Condition struct {
	// Type is MaintenancePlanned, MaintenanceInProgress, DrainInProgress or Drained.
	Type corev1.NodeConditionType
	// True is the status.
	True bool
	// Message follows the name of the rollout.
	Message string
}

// SetConditions sets conditions on the node for a rollout (by), in one patch of its status. It does not change a condition
// that another program holds True. A condition that is absent, or not Moult's, is not set to False. It writes nothing if
// nothing changes. It needs the rights to get nodes and to patch nodes/status, and does not change its argument.
func SetConditions(ctx context.Context, c client.Client, n *corev1.Node, by string, now time.Time, conditions ...Condition) error {
	_, err := patchConditions(ctx, c, n, func(n *corev1.Node) (changed []corev1.NodeCondition) {
		for _, condition := range conditions {
			if next, ok := condition.on(n, by, now); ok {
				changed = append(changed, next)
			}
		}
		return changed
	})
	return err
}

// patchConditions writes those conditions of the node that change. The API server merges the list by type. It returns the patched node.
func patchConditions(ctx context.Context, c client.Client, n *corev1.Node, changes func(*corev1.Node) []corev1.NodeCondition) (written *corev1.Node, err error) {
	err = retry(ctx, c, n, func(n *corev1.Node) error {
		written = n
		changed := changes(n)
		if len(changed) == 0 {
			return nil
		}
		body, _ := json.Marshal(patch{ // Conditions always marshal.
			Metadata: patchMetadata{ResourceVersion: n.ResourceVersion}, Status: map[string]any{"conditions": changed},
		})
		written = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		return c.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, body))
	})
	if err != nil {
		return nil, fmt.Errorf("writing conditions of node %s, %w", n.Name, err)
	}
	return written, nil
}

// on returns the new condition, and whether it must be written.
func (c Condition) on(n *corev1.Node, by string, now time.Time) (corev1.NodeCondition, bool) {
	next := corev1.NodeCondition{
		Type: c.Type, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonMaintenance, Message: by + ": " + c.Message,
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if c.True {
		next.Status = corev1.ConditionTrue
	}
	i := slices.IndexFunc(n.Status.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
	if i < 0 {
		return next, c.True
	}
	last := &n.Status.Conditions[i]
	switch {
	case last.Reason != v1alpha1.ReasonMaintenance && (last.Status == corev1.ConditionTrue || !c.True):
		return next, false // Another program's.
	case last.Status == next.Status && last.Reason == next.Reason && last.Message == next.Message:
		return next, false
	case last.Status == next.Status:
		next.LastTransitionTime = last.LastTransitionTime
	}
	return next, true
}

// ClearConditions sets this rollout's True conditions (by) to False, in one patch of the node's status. It returns the
// patched node. It writes nothing if there are none. It needs the rights to get nodes and to patch nodes/status.
func ClearConditions(ctx context.Context, c client.Client, n *corev1.Node, by string, now time.Time) (*corev1.Node, error) {
	return patchConditions(ctx, c, n, func(n *corev1.Node) (changed []corev1.NodeCondition) {
		for i := range n.Status.Conditions {
			if last := &n.Status.Conditions[i]; isOurs(last, by) {
				next, _ := Condition{Type: last.Type, Message: "over"}.on(n, by, now)
				changed = append(changed, next)
			}
		}
		return changed
	})
}

// isOurs reports whether the condition is a lifecycle condition that is True for this rollout.
func isOurs(c *corev1.NodeCondition, by string) bool {
	return slices.Contains(lifecycle, c.Type) && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.ReasonMaintenance && strings.HasPrefix(c.Message, by+": ")
}

// attempts limits how often a patch is tried on a Node that others write at the same time.
const attempts = 10

// retry writes to a Node. After a conflict it reads the Node and writes again.
func retry(ctx context.Context, c client.Reader, n *corev1.Node, write func(*corev1.Node) error) error {
	for attempt := 1; ; attempt++ {
		err := write(n)
		if err == nil || !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
		latest := &corev1.Node{}
		if getErr := c.Get(ctx, client.ObjectKeyFromObject(n), latest); getErr != nil {
			return getErr
		}
		if latest.UID != n.UID || latest.ResourceVersion == n.ResourceVersion {
			return err // Another node of the same name, or an outdated cache: the caller decides again.
		}
		n = latest
	}
}
