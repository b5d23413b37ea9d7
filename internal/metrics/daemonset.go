// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// These have the names and labels that they have in ExtendedDaemonSet.
var (
	rollingUpdateStuck = comingAndGoing("ers_rolling_update_stuck",
		"1 while pods of an ExtendedDaemonSetReplicaSet's predecessors wait to be replaced, and none may be, though nothing is paused.", "namespace", "name")
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

// SetStuck sets for each replica set of an ExtendedDaemonSet, by name, whether its rolling update is stuck. It removes all
// other replica sets of it.
func SetStuck(daemonset types.NamespacedName, replicasets map[string]bool) {
	now := make(map[string]int, len(replicasets))
	for name, stuck := range replicasets {
		now[name] = int(oneIf(stuck))
	}
	set(rollingUpdateStuck, daemonset, now, daemonset.Namespace)
}

// ForgetDaemonSet removes a deleted ExtendedDaemonSet and its replica sets.
func ForgetDaemonSet(daemonset types.NamespacedName) {
	SetStuck(daemonset, nil)
	Forget(DaemonSet(daemonset))
}
