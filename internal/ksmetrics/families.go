// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

type (
	daemonset  = edsv1.ExtendedDaemonSet
	replicaset = edsv1.ExtendedDaemonSetReplicaSet
)

const leaderName = "eds_controller_leader"

// family is one metric of a kind: add writes an object's sample.
type family[T any] struct {
	name, help string
	add        func(t *text, name string, of *T)
}

// ofDaemonSets are the metrics of ExtendedDaemonSets.
var ofDaemonSets = []family[daemonset]{
	{"eds_labels", "1, with the object's labels.", func(t *text, name string, d *daemonset) {
		t.sample(name, 1, labelsOf(&d.ObjectMeta)...)
	}},
	{"eds_created", "When the object was created, in seconds since the epoch.", func(t *text, name string, d *daemonset) {
		t.sample(name, d.CreationTimestamp.Unix(), identity(&d.ObjectMeta)...)
	}},
	edsCount("eds_status_desired", "Nodes that should have a pod.", func(s *edsv1.ExtendedDaemonSetStatus) int32 { return s.Desired }),
	edsCount("eds_status_current", "Pods that there are.", func(s *edsv1.ExtendedDaemonSetStatus) int32 { return s.Current }),
	edsCount("eds_status_ready", "Pods that are ready.", func(s *edsv1.ExtendedDaemonSetStatus) int32 { return s.Ready }),
	edsCount("eds_status_available", "Pods that are available.", func(s *edsv1.ExtendedDaemonSetStatus) int32 { return s.Available }),
	edsCount("eds_status_uptodate", "Pods of the active revision; during a canary, of the canary's.",
		func(s *edsv1.ExtendedDaemonSetStatus) int32 { return s.UpToDate }),
	edsCount("eds_status_ignored_unresponsive_nodes", "Nodes that the rolling update does not count as unavailable, though their pods don't respond.",
		func(s *edsv1.ExtendedDaemonSetStatus) int32 { return s.IgnoredUnresponsiveNodes }),
	{"eds_status_canary_activated", "1 while there is a canary, with its replica set.", func(t *text, name string, d *daemonset) {
		c, rs := d.Status.Canary, ""
		if c != nil {
			rs = c.ReplicaSet
		}
		t.sample(name, is(c != nil), append(identity(&d.ObjectMeta), label{"replicaset", rs})...)
	}},
	{"eds_status_canary_paused", "1 while the canary is paused, with the reason.", func(t *text, name string, d *daemonset) {
		labels, paused := identity(&d.ObjectMeta), false
		if c := d.Status.Canary; c != nil {
			labels = append(labels, label{"replicaset", c.ReplicaSet})
			condition := edsv1.FindCondition(d.Status.Conditions, edsv1.ConditionCanaryPaused)
			if paused = condition != nil && condition.Status == metav1.ConditionTrue; paused {
				labels = append(labels, label{"paused_reason", condition.Reason})
			}
		}
		t.sample(name, is(paused), labels...)
	}},
	{"eds_status_canary_failed", "1 from when a canary has failed until it is reset or the template changes.", func(t *text, name string, d *daemonset) {
		failed := edsv1.IsConditionTrue(d.Status.Conditions, edsv1.ConditionCanaryFailed)
		t.sample(name, is(failed), identity(&d.ObjectMeta)...)
	}},
	{"eds_status_canary_node_number", "Nodes of the canary.", func(t *text, name string, d *daemonset) {
		nodes := 0
		if d.Status.Canary != nil {
			nodes = len(d.Status.Canary.Nodes)
		}
		t.sample(name, int64(nodes), identity(&d.ObjectMeta)...)
	}},
	{"eds_status_rolling_update_paused", "1 while the rolling update is paused.", func(t *text, name string, d *daemonset) {
		t.sample(name, is(d.Status.State == edsv1.StateRollingUpdatePaused), identity(&d.ObjectMeta)...)
	}},
	{"eds_status_rollout_frozen", "1 while the rollout is frozen.", func(t *text, name string, d *daemonset) {
		t.sample(name, is(d.Status.State == edsv1.StateRolloutFrozen), identity(&d.ObjectMeta)...)
	}},
}

// ofReplicaSets are the metrics of ExtendedDaemonSetReplicaSets.
var ofReplicaSets = []family[replicaset]{
	{"ers_labels", "1, with the object's labels.", func(t *text, name string, r *replicaset) {
		t.sample(name, 1, labelsOf(&r.ObjectMeta)...)
	}},
	{"ers_created", "When the object was created, in seconds since the epoch.", func(t *text, name string, r *replicaset) {
		t.sample(name, r.CreationTimestamp.Unix(), identity(&r.ObjectMeta)...)
	}},
	ersCount("ers_status_desired", "Nodes that should have a pod of this revision.",
		func(s *edsv1.ExtendedDaemonSetReplicaSetStatus) int32 { return s.Desired }),
	{"ers_status_current", "Pods of this revision, with the part that it has.", func(t *text, name string, r *replicaset) {
		part := strings.ToLower(string(r.Status.Status))
		t.sample(name, int64(r.Status.Current), append(identity(&r.ObjectMeta), label{"status", part})...)
	}},
	ersCount("ers_status_ready", "Pods of this revision that are ready.",
		func(s *edsv1.ExtendedDaemonSetReplicaSetStatus) int32 { return s.Ready }),
	ersCount("ers_status_available", "Pods of this revision that are available.",
		func(s *edsv1.ExtendedDaemonSetReplicaSetStatus) int32 { return s.Available }),
	ersCount("ers_status_ignored_unresponsive_nodes", "Nodes that the rolling update does not count as unavailable, though their pods don't respond.",
		func(s *edsv1.ExtendedDaemonSetReplicaSetStatus) int32 { return s.IgnoredUnresponsiveNodes }),
	{"ers_status_canary_failed", "1 when this revision's canary has failed.", func(t *text, name string, r *replicaset) {
		failed := edsv1.IsConditionTrue(r.Status.Conditions, edsv1.ConditionCanaryFailed)
		t.sample(name, is(failed), identity(&r.ObjectMeta)...)
	}},
}

func edsCount(name, help string, of func(*edsv1.ExtendedDaemonSetStatus) int32) family[daemonset] {
	return family[daemonset]{name, help, func(t *text, name string, d *daemonset) {
		t.sample(name, int64(of(&d.Status)), identity(&d.ObjectMeta)...)
	}}
}

func ersCount(name, help string, of func(*edsv1.ExtendedDaemonSetReplicaSetStatus) int32) family[replicaset] {
	return family[replicaset]{name, help, func(t *text, name string, r *replicaset) {
		t.sample(name, int64(of(&r.Status)), identity(&r.ObjectMeta)...)
	}}
}

func is(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
