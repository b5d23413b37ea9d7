// SPDX-License-Identifier: Apache-2.0

// Package ksmetrics serves what ExtendedDaemonSets and their ExtendedDaemonSetReplicaSets say of themselves, as
// kube-state-metrics does for other kinds, under the names and labels that ExtendedDaemonSet has at /ksmetrics.
//
//	ksmetrics.go    the handler
//	families.go     every metric
//	labels.go       the labels of an object, by names that Prometheus allows
package ksmetrics

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// contentType is that of the text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// New returns the handler. It reads from r, a cache, at each request, so that it shows the namespaces that r shows. leader says
// whether this process leads. When r can't be read the answer is 503.
func New(r client.Reader, leader func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		daemonsets, replicasets, err := read(request.Context(), r)
		if err != nil {
			log.FromContext(request.Context()).Error(err, "metrics can't be served")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		families := append(familiesOf(ofDaemonSets, daemonsets), familiesOf(ofReplicaSets, replicasets)...)
		families = append(families, gauge(leaderName, "1, with whether this process leads the controllers.",
			sample{1, []label{{"leader", strconv.FormatBool(leader())}}}))
		w.Header().Set("Content-Type", contentType)
		encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
		for _, f := range families {
			if len(f.Metric) == 0 {
				continue
			}
			if err := encoder.Encode(f); err != nil {
				log.FromContext(request.Context()).V(1).Info("the client of the metrics has gone", "error", err.Error())
				return
			}
		}
	})
}

// read lists all there are, by namespace and name.
func read(ctx context.Context, r client.Reader) ([]*daemonset, []*replicaset, error) {
	var daemonsets edsv1.ExtendedDaemonSetList
	if err := r.List(ctx, &daemonsets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing daemon sets, %w", err)
	}
	var replicasets edsv1.ExtendedDaemonSetReplicaSetList
	if err := r.List(ctx, &replicasets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing replica sets, %w", err)
	}
	return sorted[daemonset](daemonsets.Items), sorted[replicaset](replicasets.Items), nil
}

func sorted[T any, P interface {
	*T
	metav1.Object
}](items []T) []P {
	all := make([]P, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	slices.SortFunc(all, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}
