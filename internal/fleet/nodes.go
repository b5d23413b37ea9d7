// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// nodes caches each Node in the engine's form until it changes.
type nodes struct {
	mu sync.Mutex
	// last is the last result; it is replaced, never changed.
	last map[string]*rollout.Node
	// claimed are the nodes with claims, and listed is the last list of them.
	claimed map[string]bool
	listed  []string
	// made holds the source object of each: the cache replaces an object that changes.
	made map[string]*corev1.Node
	// objects are these objects, sorted by name; the list is replaced, never changed.
	objects []*corev1.Node
	// hostnames counts the nodes of each hostname, and shared holds the hostnames of several nodes. shared is replaced,
	// never changed.
	hostnames map[string]int
	shared    map[string]bool
	version   uint64
	// absent identifies the deleted Nodes of the last snapshot.
	absent string
}

// read returns a snapshot of these Nodes, without budgets.
func (n *nodes) read(objects []*corev1.Node) Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.update(objects)
	return Snapshot{Fleet: rollout.Fleet{Nodes: n.last}, Objects: n.objects, Claimed: n.listed, Version: n.version, SharedHostnames: n.shared}
}

// with adds deleted Nodes that budgets still count.
func (n *nodes) with(s Snapshot, absent []*corev1.Node) Snapshot {
	var those strings.Builder
	for _, o := range absent {
		those.WriteString(o.Name + " " + o.ResourceVersion + "\n")
	}
	n.mu.Lock()
	if n.absent != those.String() {
		n.absent = those.String()
		n.version++
	}
	s.Version = n.version
	n.mu.Unlock()
	if len(absent) == 0 {
		return s
	}
	s.Nodes = maps.Clone(s.Nodes)
	for _, o := range absent {
		if s.Nodes[o.Name] == nil {
			s.Nodes[o.Name] = rollout.NewNode(o)
		}
	}
	return s
}

// update rebuilds changed nodes. Concurrent rollouts may pass their lists in another order than they read them. An older
// list is then used until the next newer one.
func (n *nodes) update(objects []*corev1.Node) {
	var changed []*corev1.Node
	for _, o := range objects {
		if n.made[o.Name] != o {
			changed = append(changed, o)
		}
	}
	if len(changed) == 0 && len(n.last) == len(objects) {
		return
	}
	n.version++
	next := maps.Clone(n.last)
	if next == nil {
		next, n.hostnames = make(map[string]*rollout.Node, len(objects)), make(map[string]int, len(objects))
		n.claimed, n.made = map[string]bool{}, make(map[string]*corev1.Node, len(objects))
	}
	renamed := false
	for _, o := range changed {
		now, before := rollout.NewNode(o), next[o.Name]
		if before == nil || before.Labels[corev1.LabelHostname] != now.Labels[corev1.LabelHostname] {
			renamed = true
			n.count(now, 1)
			n.count(before, -1)
		}
		next[o.Name], n.made[o.Name] = now, o
		if len(now.Claims) > 0 {
			n.claimed[o.Name] = true
		} else {
			delete(n.claimed, o.Name)
		}
	}
	if len(next) > len(objects) {
		renamed = true
		there := make(map[string]bool, len(objects))
		for _, o := range objects {
			there[o.Name] = true
		}
		for name, gone := range next {
			if !there[name] {
				n.count(gone, -1)
				delete(next, name)
				delete(n.made, name)
				delete(n.claimed, name)
			}
		}
	}
	if renamed {
		n.share()
	}
	n.sort(changed, next)
	n.last, n.listed = next, slices.Collect(maps.Keys(n.claimed))
}

// sort inserts changed objects in order, and removes deleted ones.
func (n *nodes) sort(changed []*corev1.Node, there map[string]*rollout.Node) {
	n.objects = slices.Clone(n.objects)
	for _, o := range changed {
		i, known := slices.BinarySearchFunc(n.objects, o.Name, func(o *corev1.Node, name string) int { return strings.Compare(o.Name, name) })
		if !known {
			n.objects = slices.Insert(n.objects, i, nil)
		}
		n.objects[i] = o
	}
	if len(n.objects) > len(there) {
		n.objects = slices.DeleteFunc(n.objects, func(o *corev1.Node) bool { return there[o.Name] == nil })
	}
}

// count adds to the number of nodes with this node's hostname.
func (n *nodes) count(of *rollout.Node, by int) {
	if of == nil {
		return
	}
	if hostname := of.Labels[corev1.LabelHostname]; hostname != "" {
		n.hostnames[hostname] += by
	}
}

// share finds the hostnames of several nodes.
func (n *nodes) share() {
	n.shared = map[string]bool{}
	for hostname, count := range n.hostnames {
		switch {
		case count > 1:
			n.shared[hostname] = true
		case count == 0:
			delete(n.hostnames, hostname)
		}
	}
}

// TrimNode keeps the fields of a Node that decisions need, and nothing that a heartbeat changes.
func TrimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	n.ManagedFields = nil
	maps.DeleteFunc(n.Annotations, func(key, value string) bool { return !matters(key, value) })
	n.Spec = corev1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
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
	n.Status = corev1.NodeStatus{
		Conditions: n.Status.Conditions,
		NodeInfo:   corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID, OSImage: n.Status.NodeInfo.OSImage},
	}
	return n, nil
}

// prefixes of the annotations that are kept: those of Moult, of the host protocols, of daemon pods' resources, of the
// cluster autoscaler, and of Ducklett.
var prefixes = func() []string {
	all := []string{edsv1.AnnotationResourcesPrefix, v1alpha1.GroupName + "/", v1alpha1.AnnotationScaleDownDisabled, v1alpha1.DucklettPrefix}
	for _, p := range v1alpha1.HostProtocols {
		prefix, _, _ := strings.Cut(p.Wanted, "/")
		all = append(all, prefix+"/")
	}
	return all
}()

// matters reports whether an annotation is kept: it has one of the prefixes, or may be a reboot hook with the value "true".
func matters(key, value string) bool {
	return value == "true" || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
