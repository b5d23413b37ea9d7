// SPDX-License-Identifier: Apache-2.0

// Package ksmetrics serves the status of ExtendedDaemonSets and ExtendedDaemonSetReplicaSets as metrics, like kube-state-metrics for
// other kinds. Names and labels are those of ExtendedDaemonSet at /ksmetrics.
//
//	ksmetrics.go    the handler
//	families.go     every metric
//	labels.go       the labels of an object, by names that Prometheus allows
package ksmetrics

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
