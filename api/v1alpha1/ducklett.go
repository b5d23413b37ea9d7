// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys that Ducklett writes on Nodes. Moult continues replacements that Ducklett began, and removes these keys.
const (
	// DucklettPrefix begins its annotations.
	DucklettPrefix = "ducklett-"
	// AnnotationDucklettStatus is Ducklett's progress with a Node: one of DucklettUpgrade….
	AnnotationDucklettStatus = DucklettPrefix + "status"
	// AnnotationDucklettCount is the scale set's capacity with the replacements that Ducklett added.
	AnnotationDucklettCount = DucklettPrefix + "new-vm-count"
	// AnnotationDucklettImage is the target image of the Node.
	AnnotationDucklettImage = DucklettPrefix + "upgrade-to-imageID"
	// AnnotationDucklettDrain is when its drain began, in seconds since 1970.
	AnnotationDucklettDrain = DucklettPrefix + "drain-timestamp"
	// TaintDucklett is the key of the NoSchedule taint with which Ducklett cordons a Node.
	TaintDucklett = "DucklettUnschedable"
)

// The values of AnnotationDucklettStatus, in order.
const (
	DucklettUpgradeReady        = "upgradeReady"
	DucklettUpgradeStarted      = "upgradeStarted"
	DucklettUpgradeDrainReady   = "upgradeDrainReady"
	DucklettUpgradeDrainStarted = "upgradeDrainStarted"
	DucklettUpgradeDeleteReady  = "upgradeDeleteReady"
)
