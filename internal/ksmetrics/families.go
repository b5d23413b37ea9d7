// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// sample is a value of a metric, with labels beside the object's name. All metrics are gauges with whole numbers.
type sample struct {
	value  int64
	labels prometheus.Labels
}

// family is one metric of a kind.
type family[T metav1.Object] struct {
	name, help string
	of         func(T) sample
}

// ofDaemonSets are the metrics of ExtendedDaemonSets.
var ofDaemonSets = []family[*edsv1.ExtendedDaemonSet]{
	{"eds_labels", "1, with the object's labels.", func(d *edsv1.ExtendedDaemonSet) sample {
		return sample{1, labelsOf(d)}
	}},
	{"eds_created", "When the object was created, in seconds since the epoch.", age[*edsv1.ExtendedDaemonSet]},
	count("eds_status_desired", "Nodes that should have a pod.", func(d *edsv1.ExtendedDaemonSet) int32 { return d.Status.Desired }),
	count("eds_status_current", "Pods that there are.", func(d *edsv1.ExtendedDaemonSet) int32 { return d.Status.Current }),
	count("eds_status_ready", "Pods that are ready.", func(d *edsv1.ExtendedDaemonSet) int32 { return d.Status.Ready }),
	count("eds_status_available", "Pods that are available.", func(d *edsv1.ExtendedDaemonSet) int32 { return d.Status.Available }),
	count("eds_status_uptodate", "Pods of the active revision; during a canary, of the canary's.",
		func(d *edsv1.ExtendedDaemonSet) int32 { return d.Status.UpToDate }),
	count("eds_status_ignored_unresponsive_nodes", "Nodes that the rolling update does not count as unavailable, though their pods don't respond.",
		func(d *edsv1.ExtendedDaemonSet) int32 { return d.Status.IgnoredUnresponsiveNodes }),
	{"eds_status_canary_activated", "1 while there is a canary, with its replica set.", func(d *edsv1.ExtendedDaemonSet) sample {
		rs := ptr.Deref(d.Status.Canary, edsv1.ExtendedDaemonSetStatusCanary{}).ReplicaSet
		return sample{oneIf(d.Status.Canary != nil), prometheus.Labels{"replicaset": rs}}
	}},
	{"eds_status_canary_paused", "1 while the canary is paused, with the reason.", func(d *edsv1.ExtendedDaemonSet) sample {
		if d.Status.Canary == nil {
			return sample{}
		}
		s := sample{labels: prometheus.Labels{"replicaset": d.Status.Canary.ReplicaSet}}
		if c := edsv1.FindCondition(d.Status.Conditions, edsv1.ConditionCanaryPaused); c != nil && c.Status == metav1.ConditionTrue {
			s.value, s.labels["paused_reason"] = 1, c.Reason
		}
		return s
	}},
	truth("eds_status_canary_failed", "1 from when a canary has failed until it is reset or the template changes.",
		func(d *edsv1.ExtendedDaemonSet) bool {
			return edsv1.IsConditionTrue(d.Status.Conditions, edsv1.ConditionCanaryFailed)
		}),
	count("eds_status_canary_node_number", "Nodes of the canary.",
		func(d *edsv1.ExtendedDaemonSet) int32 {
			return int32(len(ptr.Deref(d.Status.Canary, edsv1.ExtendedDaemonSetStatusCanary{}).Nodes))
		}),
	truth("eds_status_rolling_update_paused", "1 while the rolling update is paused.",
		func(d *edsv1.ExtendedDaemonSet) bool { return d.Status.State == edsv1.StateRollingUpdatePaused }),
	truth("eds_status_rollout_frozen", "1 while the rollout is frozen.",
		func(d *edsv1.ExtendedDaemonSet) bool { return d.Status.State == edsv1.StateRolloutFrozen }),
}

// ofReplicaSets are the metrics of ExtendedDaemonSetReplicaSets.
var ofReplicaSets = []family[*edsv1.ExtendedDaemonSetReplicaSet]{
	{"ers_labels", "1, with the object's labels.", func(r *edsv1.ExtendedDaemonSetReplicaSet) sample {
		return sample{1, labelsOf(r)}
	}},
	{"ers_created", "When the object was created, in seconds since the epoch.", age[*edsv1.ExtendedDaemonSetReplicaSet]},
	count("ers_status_desired", "Nodes that should have a pod of this revision.",
		func(r *edsv1.ExtendedDaemonSetReplicaSet) int32 { return r.Status.Desired }),
	{"ers_status_current", "Pods of this revision, with the part that it has.", func(r *edsv1.ExtendedDaemonSetReplicaSet) sample {
		return sample{int64(r.Status.Current), prometheus.Labels{"status": strings.ToLower(string(r.Status.Status))}}
	}},
	count("ers_status_ready", "Pods of this revision that are ready.",
		func(r *edsv1.ExtendedDaemonSetReplicaSet) int32 { return r.Status.Ready }),
	count("ers_status_available", "Pods of this revision that are available.",
		func(r *edsv1.ExtendedDaemonSetReplicaSet) int32 { return r.Status.Available }),
	count("ers_status_ignored_unresponsive_nodes", "Nodes that the rolling update does not count as unavailable, though their pods don't respond.",
		func(r *edsv1.ExtendedDaemonSetReplicaSet) int32 { return r.Status.IgnoredUnresponsiveNodes }),
	truth("ers_status_canary_failed", "1 when this revision's canary has failed.",
		func(r *edsv1.ExtendedDaemonSetReplicaSet) bool {
			return edsv1.IsConditionTrue(r.Status.Conditions, edsv1.ConditionCanaryFailed)
		}),
}

// count is a metric that has no labels but the object's name.
func count[T metav1.Object](name, help string, of func(T) int32) family[T] {
	return family[T]{name, help, func(o T) sample { return sample{value: int64(of(o))} }}
}

// truth is a metric that is 1 or 0, and has no labels but the object's name.
func truth[T metav1.Object](name, help string, of func(T) bool) family[T] {
	return family[T]{name, help, func(o T) sample { return sample{value: oneIf(of(o))} }}
}

// age is when the object was created.
func age[T metav1.Object](o T) sample { return sample{value: o.GetCreationTimestamp().Unix()} }

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
