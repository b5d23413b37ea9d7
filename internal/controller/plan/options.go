// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Options are the controller's settings; the comments name system-upgrade-controller's environment variables and defaults.
type Options struct {
	// Name of the controller: the value of the label upgrade.cattle.io/controller on Jobs, and the source of Events.
	Name string
	// Namespace whose Plans are carried out.
	Namespace string
	// NodeName is the node that the controller runs on, which goes last; empty when it runs outside of the cluster.
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
	Job JobOptions
}

// JobOptions are the settings of the Jobs that run on nodes.
type JobOptions struct {
	// ActiveDeadlineSeconds is the default deadline; 0 is none. SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS, 600.
	ActiveDeadlineSeconds int64
	// ActiveDeadlineSecondsMax bounds what Plans ask for; 0 does not. SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX, 0.
	ActiveDeadlineSecondsMax int64
	// BackoffLimit is how often a failed pod is replaced. SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT, 2.
	BackoffLimit int32
	// Image cordons and drains: this program's own.
	Image string
	// KubectlImage, when set, cordons and drains in its place. SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE.
	KubectlImage string
	// KubectlImageWindows cordons and drains Windows nodes; without it they wait. SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS.
	KubectlImageWindows string
	// Privileged is the default of the upgrade container. SYSTEM_UPGRADE_JOB_PRIVILEGED, true.
	Privileged bool
	// ImagePullPolicy of all containers. SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY, IfNotPresent.
	ImagePullPolicy corev1.PullPolicy
	// TTLSecondsAfterFinish keeps finished Jobs. SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH, 900.
	TTLSecondsAfterFinish int32
	// PodReplacementPolicy of Jobs. SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY, TerminatingOrFailed.
	PodReplacementPolicy batchv1.PodReplacementPolicy
}
