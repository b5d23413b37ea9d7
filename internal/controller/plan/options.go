// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"moult.dev/moult/internal/kind/plan"
)

// Options are the controller's settings; the comments name system-upgrade-controller's environment variables and defaults.
type Options struct {
	// Name of the controller: the value of the label upgrade.cattle.io/controller on Jobs, and the source of Events.
	Name string
	// Namespace of the Plans to carry out.
	Namespace string
	// NodeName is the node that the controller runs on. It is updated last. Empty when the controller runs outside of the cluster.
	NodeName string
	// Threads is how many Plans are reconciled at once. SYSTEM_UPGRADE_CONTROLLER_THREADS, 2.
	Threads int
	// ClusterID is sent to channels: the uid of the namespace kube-system.
	ClusterID string
	// PollingInterval of channels. SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL, 15m.
	PollingInterval time.Duration
	// AllowDowngrade lets every channel lead to lower versions.
	AllowDowngrade bool
	// Job holds the settings of Jobs.
	Job plan.JobOptions
}
