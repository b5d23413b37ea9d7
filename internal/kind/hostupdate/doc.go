// SPDX-License-Identifier: Apache-2.0

// Package hostupdate judges NodeRollouts with hostUpdate, for their controller and for package view. It is pure: no client, no clock, no logger.
//
//	world.go     what the spec and Nodes say; which of two versions is newer          NewWorld, InterfaceLabel, CompareVersions
//	units.go     each node's state and next step; what follows from all hosts         World.Units
//	claimed.go   the claim of a turn that begins; the next step of a node in a turn     NewClaim, Adoption
//	reboot.go    the same after the order to reboot: boot id and version
//	report.go    the operator's last order to the host's agent, and its answer        Read
//	verdict.go   whether a host must be updated, and why it may have to wait          Verdict
//	revision.go  the revision of a rollout and of one turn                            RevisionOf, VersionOf
//	             whether hosts return to the last complete version                    Irreversible
//	phase.go     how far a turn has come, and what it waits for                       PhaseOf, Awaits
//	stable.go    whether pods on a changed node are stable                            Stable
//
// api/v1alpha1/host.go has the annotations that operator and agent write.
package hostupdate
