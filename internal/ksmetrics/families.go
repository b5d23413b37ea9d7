// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// metric is one metric of one object. All metrics are gauges with whole numbers.
type metric struct {
	name, help string
	value      int64
	// labels are those besides the object's name and namespace.
	labels prometheus.Labels
}

// ofDaemonSet returns the metrics of an ExtendedDaemonSet.
func ofDaemonSet(d *edsv1.ExtendedDaemonSet) []metric {
	s := &d.Status
	canary := ptr.Deref(s.Canary, edsv1.ExtendedDaemonSetStatusCanary{})
	paused := metric{name: "eds_status_canary_paused", help: "1 while the canary is paused, with the reason."}
	if s.Canary != nil {
		paused.labels = prometheus.Labels{"replicaset": canary.ReplicaSet}
		if c := edsv1.TrueCondition(s.Conditions, edsv1.ConditionCanaryPaused); c != nil {
			paused.value, paused.labels["paused_reason"] = 1, c.Reason
		}
	}
	return []metric{
		paused,
		{"eds_labels", "1, with the object's labels.", 1, labelsOf(d)},
		{"eds_created", "When the object was created, in seconds since the epoch.", d.CreationTimestamp.Unix(), nil},
		{"eds_status_desired", "Nodes that should have a pod.", int64(s.Desired), nil},
		{"eds_status_current", "Pods that there are.", int64(s.Current), nil},
		{"eds_status_ready", "Pods that are ready.", int64(s.Ready), nil},
		{"eds_status_available", "Pods that are available.", int64(s.Available), nil},
		{"eds_status_uptodate", "Pods of the active revision; during a canary, of the canary's.", int64(s.UpToDate), nil},
		{"eds_status_ignored_unresponsive_nodes", helpIgnored, int64(s.IgnoredUnresponsiveNodes), nil},
		{
			"eds_status_canary_activated", "1 while there is a canary, with its replica set.", oneIf(s.Canary != nil),
			prometheus.Labels{"replicaset": canary.ReplicaSet},
		},
		{
			"eds_status_canary_failed", "1 from when a canary has failed until it is reset or the template changes.",
			oneIf(edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed)), nil,
		},
		{"eds_status_canary_node_number", "Nodes of the canary.", int64(len(canary.Nodes)), nil},
		{"eds_status_rolling_update_paused", "1 while the rolling update is paused.", oneIf(s.State == edsv1.StateRollingUpdatePaused), nil},
		{"eds_status_rollout_frozen", "1 while the rollout is frozen.", oneIf(s.State == edsv1.StateRolloutFrozen), nil},
	}
}

// ofReplicaSet returns the metrics of an ExtendedDaemonSetReplicaSet.
func ofReplicaSet(r *edsv1.ExtendedDaemonSetReplicaSet) []metric {
	s := &r.Status
	return []metric{
		{"ers_labels", "1, with the object's labels.", 1, labelsOf(r)},
		{"ers_created", "When the object was created, in seconds since the epoch.", r.CreationTimestamp.Unix(), nil},
		{"ers_status_desired", "Nodes that should have a pod of this revision.", int64(s.Desired), nil},
		{
			"ers_status_current", "Pods of this revision, with the part that it has.", int64(s.Current),
			prometheus.Labels{"status": strings.ToLower(string(s.Status))},
		},
		{"ers_status_ready", "Pods of this revision that are ready.", int64(s.Ready), nil},
		{"ers_status_available", "Pods of this revision that are available.", int64(s.Available), nil},
		{"ers_status_ignored_unresponsive_nodes", helpIgnored, int64(s.IgnoredUnresponsiveNodes), nil},
		{
			"ers_status_canary_failed", "1 when this revision's canary has failed.",
			oneIf(edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed)), nil,
		},
	}
}

const helpIgnored = "Nodes that the rolling update does not count as unavailable, though their pods don't respond."

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
