// SPDX-License-Identifier: Apache-2.0

// Package daemonset knows what an ExtendedDaemonSet wants of one node and its pod. It is pure: no client, no clock, no logger.
//
//	defaults.go   the spec with all that its author left out, and what is wrong with it
//	hash.go       the hash of a template, which names a revision
//	fit.go        whether the daemon belongs on a node
//	settings.go   which Settings count
//	overrides.go  which resources its containers get on a node
//	make.go       the pod for a node
//	sync.go       whether a pod is what would be made today
//	look.go       what state a pod is in
//	canary.go     which nodes are canaries, and whether the canary is to be paused or has failed
//	limits.go     how many pods may be in creation, and what percentages come to
//
// It takes over the pods of DataDog's ExtendedDaemonSet as they are: hashes, keys and formulas are the same.
package daemonset
