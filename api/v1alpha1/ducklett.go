// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What Ducklett writes on Nodes. Nodes that it has left in the middle of their replacement are taken over, and these are taken off.
const (
	// DucklettPrefix begins its annotations.
	DucklettPrefix = "ducklett-"
	// AnnotationDucklettStatus is how far it has come with a Node.
	AnnotationDucklettStatus = DucklettPrefix + "status"
	// AnnotationDucklettCount is how many machines the scale set was to have once those that take places were added.
	AnnotationDucklettCount = DucklettPrefix + "new-vm-count"
	// AnnotationDucklettImage is the image that the Node was to be brought to.
	AnnotationDucklettImage = DucklettPrefix + "upgrade-to-imageID"
	// AnnotationDucklettDrain is when its drain began, in seconds since 1970.
	AnnotationDucklettDrain = DucklettPrefix + "drain-timestamp"
	// TaintDucklett is the taint with the effect NoSchedule of a Node that it has made unschedulable.
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
