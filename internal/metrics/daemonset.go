// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// These have the names and labels that they have in ExtendedDaemonSet.
var (
	rollingUpdateStuck = gauge("ers_rolling_update_stuck",
		"1 while pods of an ExtendedDaemonSetReplicaSet's predecessors wait to be replaced, and none may be.", "name", "namespace")
	controllerLeader = gauge("eds_controller_leader", "1, with whether this process leads the controllers.", "leader")
)

func init() { SetLeader(false) } //nolint:gochecknoinits // A process does not lead before it says so.

// SetLeader sets whether this process leads.
func SetLeader(leads bool) {
	controllerLeader.Reset()
	controllerLeader.WithLabelValues(strconv.FormatBool(leads)).Set(1)
}

// DaemonSet names an ExtendedDaemonSet in metrics.
func DaemonSet(key types.NamespacedName) Rollout {
	return Rollout{Kind: "ExtendedDaemonSet", NamespacedName: key}
}

// stuckOf holds the replica sets of each ExtendedDaemonSet, because their series do not name it.
var stuckOf = struct {
	mu    sync.Mutex
	names map[types.NamespacedName]map[string]bool
}{names: map[types.NamespacedName]map[string]bool{}}

// SetStuck sets for each replica set of an ExtendedDaemonSet, by name, whether its rolling update is stuck. It removes all
// other replica sets of it.
func SetStuck(daemonset types.NamespacedName, replicasets map[string]bool) {
	stuckOf.mu.Lock()
	defer stuckOf.mu.Unlock()
	for name := range stuckOf.names[daemonset] {
		if _, still := replicasets[name]; !still {
			rollingUpdateStuck.DeleteLabelValues(name, daemonset.Namespace)
		}
	}
	if len(replicasets) == 0 {
		delete(stuckOf.names, daemonset)
		return
	}
	names := make(map[string]bool, len(replicasets))
	for name, stuck := range replicasets {
		names[name] = true
		value := 0.0
		if stuck {
			value = 1
		}
		rollingUpdateStuck.WithLabelValues(name, daemonset.Namespace).Set(value)
	}
	stuckOf.names[daemonset] = names
}

// ForgetDaemonSet removes a deleted ExtendedDaemonSet and its replica sets.
func ForgetDaemonSet(daemonset types.NamespacedName) {
	SetStuck(daemonset, nil)
	Forget(DaemonSet(daemonset))
}
