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

// ReasonTurn is the reason in the conditions that Moult sets on a Node. Those with another reason are somebody else's.
const ReasonTurn = "MoultTurn"

// maxMessage bounds a condition's message, in bytes.
const maxMessage = 1024

// lifecycle is the conditions of Kubernetes 1.37 that say what is done to a Node.
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

// SetConditions sets conditions on the node for a rollout (by; empty: a drain by hand), all in one patch of its status that
// leaves the others as they are. One that somebody else holds True is left alone, and so is, for a drain by hand, a
// rollout's. One that is not there, or not Moult's, is not made False. It writes nothing if all are so already. It needs to
// get nodes and to patch nodes/status, and does not change the object it is given.
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

// on is the condition as it is to be on the node, unless there is nothing to write.
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
	case last.Status == corev1.ConditionTrue && (last.Reason != ReasonTurn || by == "" && !names(last, by)):
		return next, false // Somebody else's.
	case last.Reason != ReasonTurn && !c.True:
		return next, false
	case last.Status == next.Status && last.Reason == next.Reason && last.Message == next.Message:
		return next, false
	case last.Status == next.Status:
		next.LastTransitionTime = last.LastTransitionTime
	}
	return next, true
}

// ClearConditions sets the conditions that SetConditions has set True for this rollout (by; empty: for anybody) to False, in one
// patch of the node's status, and returns the node as it is then. It writes nothing if there are none. Other changes of the node
// do not matter to it. It needs to get nodes and to patch nodes/status.
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

// InMaintenance reports whether the node's conditions say that this rollout is at work there.
func InMaintenance(n *corev1.Node, by string) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; ours(c, by) {
			return true
		}
	}
	return false
}

// ours says that the condition is one of the lifecycle that is True for this rollout (by; empty: for anybody).
func ours(c *corev1.NodeCondition, by string) bool {
	return slices.Contains(lifecycle, c.Type) && c.Status == corev1.ConditionTrue && c.Reason == ReasonTurn && (by == "" || names(c, by))
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// clearing is the JSON patch that makes the rollout's conditions False. It tests that they stand where they stood.
func clearing(n *corev1.Node, by string, now time.Time) []operation {
	var operations []operation
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if !ours(c, by) {
			continue
		}
		holder, _, _ := strings.Cut(c.Message, ": ")
		at := fmt.Sprintf("/status/conditions/%d/", i)
		operations = append(operations,
			operation{"test", at + "type", c.Type},
			operation{"test", at + "status", c.Status},
			operation{"test", at + "reason", c.Reason},
			operation{"add", at + "status", corev1.ConditionFalse},
			operation{"add", at + "message", message(holder, "over")},
			operation{"add", at + "lastHeartbeatTime", metav1.NewTime(now)},
			operation{"add", at + "lastTransitionTime", metav1.NewTime(now)},
		)
	}
	return operations
}

// message begins with the name of the rollout.
func message(by, text string) string {
	m := actor(by) + ": " + text
	if len(m) <= maxMessage {
		return m
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(m[end]) {
		end--
	}
	return m[:end] + "…"
}

// names says that the condition was set for this rollout.
func names(c *corev1.NodeCondition, by string) bool {
	return strings.HasPrefix(c.Message, actor(by)+": ")
}

// patchStatus returns the node as it is after the patch.
func patchStatus(ctx context.Context, c client.Client, n *corev1.Node, kind types.PatchType, body []byte) (*corev1.Node, error) {
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	err := c.Status().Patch(ctx, written, client.RawPatch(kind, body))
	return written, err
}
