// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

var hostVersions = gauge("moult_host_versions",
	"Nodes of a NodeRollout by the version that their hosts run, for the most frequent versions.", "name", "version")

// SetHostVersions sets how many nodes of a NodeRollout run which version.
func SetHostVersions(name string, versions []v1alpha1.HostVersion) {
	forget(prometheus.Labels{"name": name}, hostVersions)
	for _, v := range versions {
		hostVersions.WithLabelValues(name, v.Version).Set(float64(v.Nodes))
	}
}

// ForgetNodeRollout removes a deleted NodeRollout.
func ForgetNodeRollout(key types.NamespacedName) {
	forget(prometheus.Labels{"name": key.Name}, hostVersions, machines, outdatedMachines, phases)
	Forget(Rollout{Kind: "NodeRollout", NamespacedName: key})
}
