// SPDX-License-Identifier: Apache-2.0

// Package daemonset decides about one ExtendedDaemonSet: facts from caches become the states of nodes, units for rollout.Decide, and
// then actions and a status. It is pure: no client, no clock, no logger. The controller and view call the same Judge.
//
//	judge.go          the facts, and which revision is wanted and active
//	nodestate.go      which pods are on a node, and which should be
//	units.go          what the engine decides about: whether a pod is what would be created today, and why an outdated one may not be replaced
//	decide.go         which pods are created, replaced and deleted, and how many may be in creation
//	canary.go         where the canary runs, and when it is promoted
//	status.go         the statuses
//
// These files read one node, one pod or one field:
//
//	defaults.go       the spec with its defaults, and what is invalid in it
//	fit.go            whether pods belong on a node, and whether two need the same port of the host
//	settings.go       which Settings apply
//	overrides.go      which resources the containers get on a node
//	make.go           the hash of a template, which names a revision; the pod for a node
//	podstate.go       the state of a pod
//	canaryverdict.go  which nodes become canaries, and whether the canary is paused or has failed
//
// Moult takes over the pods of DataDog's ExtendedDaemonSet unchanged: hashes, keys and formulas are the same.
package daemonset
