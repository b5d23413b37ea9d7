// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// GroupName is the API group of Moult's own kinds, and the prefix of its own labels and annotations.
const GroupName = "moult.dev"

// Keys that Moult puts on Nodes.
const (
	// AnnotationClaims holds the claims on a Node: a JSON list of Claim. It is written with a resourceVersion
	// precondition only, so that two rollouts can never both take the Node.
	AnnotationClaims = "moult.dev/claims"

	// AnnotationCordonedBy names the rollout that made the Node unschedulable, as "Kind/namespace/name". A Node that is
	// unschedulable without it was cordoned by a person, or by another tool, and stays so unless a claim says uncordon.
	AnnotationCordonedBy = "moult.dev/cordoned-by"

	// AnnotationRetry requests one more attempt of failed turns. On a rollout it applies to all its failed nodes, on a Node
	// to every rollout that failed there. Each new value counts once. Any value works, such as a date.
	AnnotationRetry = "moult.dev/retry"

	// AnnotationExcludedBy names the rollout that put the label node.kubernetes.io/exclude-from-external-load-balancers on
	// the Node, as "Kind/namespace/name". Without this annotation the label was set by a person or another tool, and stays.
	AnnotationExcludedBy = "moult.dev/excluded-by"

	// AnnotationScaleDownBy names the rollout that set AnnotationScaleDownDisabled on the Node, as "Kind/namespace/name".
	// Without it the other annotation was set by a person or another tool, and stays.
	AnnotationScaleDownBy = "moult.dev/scale-down-disabled-by"

	// ReasonMaintenance is the reason of the maintenance conditions that Moult sets on a Node. Those with another reason belong to other programs.
	ReasonMaintenance = "MoultTurn"

	// AnnotationEvicted lists the controllers of pods that a drain has evicted from the Node: a JSON list of
	// "Kind/namespace/name", such as "ReplicaSet/shop/cart-5d4f". It is there until all of them are available again, or for an hour after the turn.
	AnnotationEvicted = "moult.dev/evicted"
)

// AnnotationScaleDownDisabled, with the value "true", keeps the cluster autoscaler from removing the Node.
const AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// Keys that people put on rollouts.
const (
	// AnnotationApprove approves a wave of the rollout. The value names wave, revision and template: that of status.wave.approveWith. It
	// is for people who may edit the rollout; status.approval also says who approved.
	AnnotationApprove = "moult.dev/approve"
)

// AnnotationTestNotifications on the ConfigMap moult-notifications makes the operator send a test to each webhook. Each new value is one test:
// kubectl moult notify --test.
const AnnotationTestNotifications = "moult.dev/test-notifications"

// TaintOutdatedSuffix is part of TaintOutdated.
const TaintOutdatedSuffix = ".outdated." + GroupName

// TaintOutdated is the taint that strategy.taintOutdated puts on outdated nodes. KIND is plan or noderollout, NAME the rollout's.
func TaintOutdated(kind, name string) string { return kind + TaintOutdatedSuffix + "/" + name }

// Keys that Moult puts on the objects it creates.
const (
	// AnnotationTemplate identifies the template that a Job was made from. A Job is replaced when its rollout would now use
	// another template.
	AnnotationTemplate = "moult.dev/template"

	// AnnotationTurn identifies the turn (Claim.Turn) that a Job was made for.
	AnnotationTurn = "moult.dev/turn"
)

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
