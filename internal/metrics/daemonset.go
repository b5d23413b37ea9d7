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

// stuckOf holds what SetStuck set for each ExtendedDaemonSet, because the series do not name it.
var stuckOf sync.Map

// SetStuck sets for each replica set of an ExtendedDaemonSet, by name, whether its rolling update is stuck. It removes all
// other replica sets of it.
func SetStuck(daemonset types.NamespacedName, replicasets map[string]bool) {
	last, _ := stuckOf.Swap(daemonset, replicasets)
	before, _ := last.(map[string]bool)
	for name := range before {
		if _, still := replicasets[name]; !still {
			rollingUpdateStuck.DeleteLabelValues(name, daemonset.Namespace)
		}
	}
	for name, stuck := range replicasets {
		rollingUpdateStuck.WithLabelValues(name, daemonset.Namespace).Set(oneIf(stuck))
	}
}

// ForgetDaemonSet removes a deleted ExtendedDaemonSet and its replica sets.
func ForgetDaemonSet(daemonset types.NamespacedName) {
	SetStuck(daemonset, nil)
	stuckOf.Delete(daemonset)
	Forget(DaemonSet(daemonset))
}
