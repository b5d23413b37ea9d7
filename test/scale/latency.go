// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// latencies counts the API server's requests by an upper bound of their time in seconds: of all that took at most so long.
type latencies map[float64]uint64

// apiLatencies returns all since the API server started, without watches and other requests that go on.
func (b *bench) apiLatencies(ctx context.Context) (latencies, error) {
	text, err := b.raw.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics, %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics, %w", err)
	}
	all := latencies{}
	for _, metric := range families["apiserver_request_duration_seconds"].GetMetric() {
		if slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == "verb" && (l.GetValue() == "WATCH" || l.GetValue() == "CONNECT")
		}) {
			continue
		}
		for _, bucket := range metric.GetHistogram().GetBucket() {
			all[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	return all, nil
}

// p99 is the bound in milliseconds within which 99 % of the requests since before were answered: that of a bucket of the histogram.
func (l latencies) p99(before latencies) float64 {
	bounds := slices.Sorted(maps.Keys(l))
	if len(bounds) == 0 {
		return 0
	}
	last := bounds[len(bounds)-1]
	total := l[last] - before[last]
	for _, bound := range bounds {
		if float64(l[bound]-before[bound]) >= 0.99*float64(total) {
			return bound * 1000
		}
	}
	return 0
}
