// SPDX-License-Identifier: Apache-2.0

// Package ksmetrics serves what ExtendedDaemonSets and their ExtendedDaemonSetReplicaSets say of themselves, as
// kube-state-metrics does for other kinds, under the names and labels that ExtendedDaemonSet has at /ksmetrics.
//
//	ksmetrics.go    the handler
//	families.go     every metric
//	text.go         the text format of Prometheus
package ksmetrics

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

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
		var t text
		for _, f := range ofDaemonSets {
			t.family(f.name, f.help)
			for i := range daemonsets {
				f.add(&t, f.name, &daemonsets[i])
			}
		}
		for _, f := range ofReplicaSets {
			t.family(f.name, f.help)
			for i := range replicasets {
				f.add(&t, f.name, &replicasets[i])
			}
		}
		t.family(leaderName, "1, with whether this process leads the controllers.")
		t.sample(leaderName, 1, label{"leader", fmt.Sprint(leader())})
		w.Header().Set("Content-Type", contentType)
		if _, err := w.Write(t.Bytes()); err != nil {
			log.FromContext(request.Context()).V(1).Info("the one who asked for metrics has gone", "error", err.Error())
		}
	})
}

// read lists all there are, by namespace and name.
func read(ctx context.Context, r client.Reader) ([]edsv1.ExtendedDaemonSet, []edsv1.ExtendedDaemonSetReplicaSet, error) {
	var daemonsets edsv1.ExtendedDaemonSetList
	if err := r.List(ctx, &daemonsets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing daemon sets, %w", err)
	}
	var replicasets edsv1.ExtendedDaemonSetReplicaSetList
	if err := r.List(ctx, &replicasets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing replica sets, %w", err)
	}
	slices.SortFunc(daemonsets.Items, func(a, b edsv1.ExtendedDaemonSet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(replicasets.Items, func(a, b edsv1.ExtendedDaemonSetReplicaSet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return daemonsets.Items, replicasets.Items, nil
}
