// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// nodes keeps each Node as the engine wants it for as long as it does not change.
type nodes struct {
	mu sync.Mutex
	// last is what was returned last; it is replaced, never changed.
	last     map[string]*rollout.Node
	versions map[string]string
}

// read returns the engine's nodes of these.
func (n *nodes) read(objects []*corev1.Node) map[string]*rollout.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	var changed []*corev1.Node
	for _, o := range objects {
		// A version is of one object: one of the same name that joined later has another.
		if version, ok := n.versions[o.Name]; !ok || version != o.ResourceVersion {
			changed = append(changed, o)
		}
	}
	if len(changed) == 0 && len(n.last) == len(objects) {
		return n.last
	}
	next := maps.Clone(n.last)
	if next == nil {
		next, n.versions = make(map[string]*rollout.Node, len(objects)), make(map[string]string, len(objects))
	}
	for _, o := range changed {
		next[o.Name], n.versions[o.Name] = NodeOf(o), o.ResourceVersion
	}
	if len(next) > len(objects) {
		there := make(map[string]bool, len(objects))
		for _, o := range objects {
			there[o.Name] = true
		}
		maps.DeleteFunc(next, func(name string, _ *rollout.Node) bool { return !there[name] })
		maps.DeleteFunc(n.versions, func(name, _ string) bool { return !there[name] })
	}
	n.last = next
	return next
}

// NodeOf is a Node as the engine wants it.
func NodeOf(o *corev1.Node) *rollout.Node {
	n := &rollout.Node{
		Name: o.Name, Labels: o.Labels, Created: o.CreationTimestamp.Time, Unschedulable: o.Spec.Unschedulable,
		Taints: o.Spec.Taints, Conditions: o.Status.Conditions, Evictions: -1,
	}
	var err error
	if n.Claims, err = v1alpha1.ParseClaims(o.Annotations); err != nil {
		n.ClaimError = err.Error()
	}
	return n
}

// TrimNode keeps of a Node in the cache what decisions are made of, and nothing that a heartbeat changes.
func TrimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	n.ManagedFields = nil
	maps.DeleteFunc(n.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupName+"/") })
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	for i := range n.Spec.Taints {
		n.Spec.Taints[i].TimeAdded = nil
	}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		c.LastHeartbeatTime = metav1.Time{}
		switch c.Type {
		case corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained:
		default:
			c.Reason, c.Message = "", ""
		}
	}
	n.Status = corev1.NodeStatus{Conditions: n.Status.Conditions}
	return n, nil
}
