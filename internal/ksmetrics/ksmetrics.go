// SPDX-License-Identifier: Apache-2.0

// Package ksmetrics serves the status of ExtendedDaemonSets and ExtendedDaemonSetReplicaSets as metrics, like kube-state-metrics for
// other kinds. Names and labels are those of ExtendedDaemonSet at /ksmetrics.
package ksmetrics

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// New returns the handler. It reads from r, a cache, at each request, so that it shows the namespaces that r shows. leader reports whether this
// process leads. When r can't be read the answer is 503.
func New(r client.Reader, leader func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var daemonsets edsv1.ExtendedDaemonSetList
		var replicasets edsv1.ExtendedDaemonSetReplicaSetList
		errDaemonSets := r.List(request.Context(), &daemonsets, client.UnsafeDisableDeepCopy)
		errReplicaSets := r.List(request.Context(), &replicasets, client.UnsafeDisableDeepCopy)
		if err := cmp.Or(errDaemonSets, errReplicaSets); err != nil {
			log.FromContext(request.Context()).Error(err, "metrics can't be served")
			http.Error(w, fmt.Sprintf("listing daemon sets and replica sets, %v", err), http.StatusServiceUnavailable)
			return
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
			for i := range daemonsets.Items {
				send(to, &daemonsets.Items[i], ofDaemonSet(&daemonsets.Items[i]))
			}
			for i := range replicasets.Items {
				send(to, &replicasets.Items[i], ofReplicaSet(&replicasets.Items[i]))
			}
			labels := prometheus.Labels{"leader": strconv.FormatBool(leader())}
			to <- gauge(metric{"eds_controller_leader", "1, with whether this process leads the controllers.", 1, labels})
		}))
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, request)
	})
}

// collector collects metrics without describing them first, as the labels differ from object to object.
type collector func(to chan<- prometheus.Metric)

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// send sends metrics of an object, with its name and namespace. Labels of the object with these names do not show.
func send(to chan<- prometheus.Metric, o metav1.Object, metrics []metric) {
	for _, m := range metrics {
		labels := prometheus.Labels{}
		maps.Copy(labels, m.labels)
		labels["namespace"], labels["name"] = o.GetNamespace(), o.GetName()
		m.labels = labels
		to <- gauge(m)
	}
}

func gauge(m metric) prometheus.Metric {
	return prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, nil, m.labels), prometheus.GaugeValue, float64(m.value))
}

// notInNames matches what a name of a label can't have: a digit at its beginning, and most characters.
var notInNames = regexp.MustCompile(`^([0-9])|[^0-9A-Za-z_]`)

// labelsOf returns the object's labels under names that Prometheus allows: every other character becomes an underscore, as in
// ExtendedDaemonSet, and a digit at the beginning gets one. If several keys become the same name, the last one counts.
func labelsOf(o metav1.Object) prometheus.Labels {
	all := prometheus.Labels{}
	values := o.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all[notInNames.ReplaceAllString(key, "_$1")] = values[key]
	}
	return all
}

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
			"ers_status_canary_failed", "1 from when this revision's canary has failed until it is reset or the template changes.",
			oneIf(edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) && s.Status != edsv1.ReplicaSetUnknown), nil,
		},
	}
}

const helpIgnored = "Nodes with a pod that is not scheduled, or does not terminate in time."

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
