// SPDX-License-Identifier: Apache-2.0

package v1

// Keys of system-upgrade-controller. LabelController, LabelExclusive, LabelNode, LabelPlan and LabelVersion are on Jobs and
// their pods. The comments of the others name their objects.
const (
	// LabelController names the controller that made the object. Pods that have it are never drained by a Plan.
	LabelController = "upgrade.cattle.io/controller"
	// LabelExclusive is "true" for exclusive Plans, else "false".
	LabelExclusive = "upgrade.cattle.io/exclusive"
	// LabelNode names the node.
	LabelNode = "upgrade.cattle.io/node"
	// LabelPlan names the Plan.
	LabelPlan = "upgrade.cattle.io/plan"
	// LabelVersion is the Plan's resolved version.
	LabelVersion = "upgrade.cattle.io/version"
	// AnnotationTTL, on a Job, repeats its ttlSecondsAfterFinished.
	AnnotationTTL = "upgrade.cattle.io/ttl-seconds-after-finished"
	// AnnotationDigest, on a Plan, names the fields that the hash covers beside version, service account and secrets:
	// dot-separated paths with commas between them and no spaces.
	AnnotationDigest = "upgrade.cattle.io/digest"
	// LabelDisabled is the value of a Plan's label with which a node opts out of the Plan.
	LabelDisabled = "disabled"
)

// LabelPlanHash is the label that a Plan leaves on every node it has upgraded, with the hash it was upgraded to as value.
func LabelPlanHash(plan string) string { return "plan.upgrade.cattle.io/" + plan }

// RunOf returns how status.history names a revision: the version, and the beginning of the hash.
func RunOf(version, hash string) string { return version + "@" + hash[:min(len(hash), 8)] }
