// SPDX-License-Identifier: Apache-2.0

// Package hostupdate judges NodeRollouts with hostUpdate, for their controller and for package view. It is pure: no client, no clock, no logger.
//
//	world.go     what the spec says about turns                                       NewWorld
//	units.go     each node's state and next step; what follows from all hosts         World.Units
//	claimed.go   the next step of a node in a turn
//	reboot.go    the same after the order to reboot: boot id and version
//	claim.go     the claim of a turn that begins                                      NewClaim, Adoption
//	report.go    the operator's last order to the host's agent, and its answer        Read
//	verdict.go   whether a host must be updated, and why it may have to wait          Verdict
//	revision.go  the revision of a rollout and of one turn                            RevisionOf, VersionOf
//	rollback.go  whether hosts return to the last complete version                    Irreversible
//	phase.go     how far a turn has come, and what it waits for                       PhaseOf, Awaits
//	stable.go    whether pods on a changed node are stable                            Stable
//	label.go     which label a Node without one gets for its host                     InterfaceLabel
//	version.go   which of two versions is newer                                       CompareVersions
//
// api/v1alpha1/host.go has the annotations that operator and agent write.
package hostupdate
