// SPDX-License-Identifier: Apache-2.0

// Package hostupdate says what a Node tells of its host, and what a rollout wants of it. It is pure: no client, no clock, no logger.
//
//	report.go    what the operator last said to the host's agent, and what that said            Read
//	label.go     which label a Node without one gets for its host                              InterfaceLabel
//	version.go   which of two versions is newer                                                 CompareVersions
//	wish.go      whether a host is to be updated, and if it is and may not be yet, why not      Wish.Judge
//	revision.go  what all hosts of a rollout are brought to                                     Wish.Revision
//	phase.go     how far a turn has come, and what it waits for                                 PhaseOf, Awaits
//	stable.go    whether pods on a changed node are well                                        Stable
//
// What operator and agent say to each other, and in which annotations, stands in api/v1alpha1/host.go.
package hostupdate
