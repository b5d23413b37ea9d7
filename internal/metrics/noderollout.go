// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

var hostVersions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "moult_host_versions",
	Help: "Nodes of a NodeRollout by the version that their hosts run, for the most frequent versions.",
}, []string{"name", "version"})

func init() { //nolint:gochecknoinits // The registry of controller-runtime is global, and so are its collectors.
	metrics.Registry.MustRegister(hostVersions)
}

// SetHostVersions sets how many nodes of a NodeRollout run which version.
func SetHostVersions(name string, versions []v1alpha1.HostVersion) {
	hostVersions.DeletePartialMatch(prometheus.Labels{"name": name})
	for _, v := range versions {
		hostVersions.WithLabelValues(name, v.Version).Set(float64(v.Nodes))
	}
}

// ForgetNodeRollout drops a NodeRollout that is gone.
func ForgetNodeRollout(key types.NamespacedName) {
	SetHostVersions(key.Name, nil)
	forgetMachines(key.Name)
	Forget(Rollout{Kind: "NodeRollout", NamespacedName: key})
}
