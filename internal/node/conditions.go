// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReasonTurn is the reason of the conditions that Moult sets on a Node. Conditions with another reason belong to other
// programs.
const ReasonTurn = "MoultTurn"

// maxMessage limits a condition's message, in bytes.
const maxMessage = 1024

// lifecycle lists the maintenance conditions of a Node in Kubernetes 1.37.
var lifecycle = []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained}

// Condition is a condition to set on a Node.
type Condition struct {
	// Type is MaintenanceInProgress, DrainInProgress or Drained.
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
	err := retry(ctx, c, n, func(n *corev1.Node) error {
		var changed []corev1.NodeCondition
		for _, condition := range conditions {
			if next, ok := condition.on(n, by, now); ok {
				changed = append(changed, next)
			}
		}
		if len(changed) == 0 {
			return nil
		}
		body, err := json.Marshal(statusPatch{
			Metadata: patchMetadata{ResourceVersion: n.ResourceVersion}, Status: status{Conditions: changed},
		})
		if err != nil {
			return err
		}
		// The API server merges the list by type.
		_, err = patchStatus(ctx, c, n, types.StrategicMergePatchType, body)
		return err
	})
	if err != nil {
		return fmt.Errorf("setting conditions of node %s, %w", n.Name, err)
	}
	return nil
}

type statusPatch struct {
	Metadata patchMetadata `json:"metadata"`
	Status   status        `json:"status"`
}

type status struct {
	Conditions []corev1.NodeCondition `json:"conditions"`
}

// on returns the new condition, and whether it must be written.
func (c Condition) on(n *corev1.Node, by string, now time.Time) (corev1.NodeCondition, bool) {
	next := corev1.NodeCondition{
		Type: c.Type, Status: corev1.ConditionFalse, Reason: ReasonTurn, Message: message(by, c.Message),
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
	case last.Status == corev1.ConditionTrue && last.Reason != ReasonTurn:
		return next, false // Another program's.
	case last.Reason != ReasonTurn && !c.True:
		return next, false
	case last.Status == next.Status && last.Reason == next.Reason && last.Message == next.Message:
		return next, false
	case last.Status == next.Status:
		next.LastTransitionTime = last.LastTransitionTime
	}
	return next, true
}

// ClearConditions sets this rollout's True conditions (by) to False, in one patch of the node's status. It returns the
// patched node. It writes nothing if there are none. Other changes of the node do not cause a conflict. It needs the rights
// to get nodes and to patch nodes/status.
func ClearConditions(ctx context.Context, c client.Client, n *corev1.Node, by string, now time.Time) (*corev1.Node, error) {
	cleared := n
	err := retry(ctx, c, n, func(n *corev1.Node) error {
		operations := clearing(n, by, now)
		if len(operations) == 0 {
			cleared = n
			return nil
		}
		body, err := json.Marshal(operations)
		if err != nil {
			return err
		}
		cleared, err = patchStatus(ctx, c, n, types.JSONPatchType, body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("clearing conditions of node %s, %w", n.Name, err)
	}
	return cleared, nil
}

// InMaintenance reports whether the node has a True condition of this rollout.
func InMaintenance(n *corev1.Node, by string) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; isOurs(c, by) {
			return true
		}
	}
	return false
}

// isOurs reports whether the condition is a lifecycle condition that is True for this rollout.
func isOurs(c *corev1.NodeCondition, by string) bool {
	return slices.Contains(lifecycle, c.Type) && c.Status == corev1.ConditionTrue && c.Reason == ReasonTurn && isNamed(c, by)
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// clearing returns the JSON patch that sets the rollout's conditions to False. It tests that their positions are unchanged.
func clearing(n *corev1.Node, by string, now time.Time) []operation {
	var operations []operation
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if !isOurs(c, by) {
			continue
		}
		at := fmt.Sprintf("/status/conditions/%d/", i)
		operations = append(operations,
			operation{"test", at + "type", c.Type},
			operation{"test", at + "status", c.Status},
			operation{"test", at + "reason", c.Reason},
			operation{"add", at + "status", corev1.ConditionFalse},
			operation{"add", at + "message", message(by, "over")},
			operation{"add", at + "lastHeartbeatTime", metav1.NewTime(now)},
			operation{"add", at + "lastTransitionTime", metav1.NewTime(now)},
		)
	}
	return operations
}

// message returns the text after the name of the rollout.
func message(by, text string) string {
	m := by + ": " + text
	if len(m) <= maxMessage {
		return m
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(m[end]) {
		end--
	}
	return m[:end] + "…"
}

// isNamed reports whether the condition was set for this rollout.
func isNamed(c *corev1.NodeCondition, by string) bool {
	return strings.HasPrefix(c.Message, by+": ")
}

// patchStatus returns the patched node.
func patchStatus(ctx context.Context, c client.Client, n *corev1.Node, kind types.PatchType, body []byte) (*corev1.Node, error) {
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	err := c.Status().Patch(ctx, written, client.RawPatch(kind, body))
	return written, err
}
