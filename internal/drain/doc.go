// SPDX-License-Identifier: Apache-2.0

// Package drain takes the pods off a node. It decides purely which pods go (Filter), asks for their eviction in passes
// that never wait (Drainer.Pass), and explains what still stands in the way (Result). It writes to pods only: cordon
// the node first.
//
// A pass sorts every pod of the node into one state. The caller calls Pass again when the node's pods change or at
// Result.Next, until Result.Done or until Result.Stuck:
//
//	                 ┌─ Skipped      left where it is, for a reason that Filter gives
//	                 ├─ Refused      needs a leave that the options don't give: then nothing is evicted at all
//	pod ─ Filter ────┤                     ┌─ Blocked      a budget says no for now: asked again in a later pass
//	                 │                     ├─ Failed       the API said something else
//	                 └─ may be evicted ────┼─ Evicted ──── Terminating ──── Gone
//	                                       └─ Waiting      its turn is not yet, or the time is over
//
// Nothing is remembered between passes but since, the time when the drain began, which the caller keeps (a controller
// in the API, the command line in a variable). All else is read from the pods, so that another process can go on where
// this one stopped.
//
// Order. Pods go in ascending priority, those of the same priority together. Pods of the classes system-cluster-critical
// and system-node-critical (priority from 2,000,000,000) go last: they are not asked for until all others are gone,
// because the others may need them to end well. This is the one thing that kubectl does not do.
//
// The end. Options.Timeout says how long a drain may take, Options.OnTimeout what then happens: Halt and Skip leave the
// rest alone and are never done, Force deletes it past every budget. Halt means that the drain has failed, Skip that the
// node is to be given back and left out.
//
// Volumes. With Options.WaitForVolumeDetach a drain is done only when, after its pods, the volumes of these are detached
// from the node, too: Result.Attached lists those that are not. What pods use that stay on the node stays with them.
//
// A Watcher tells when pods of a node have changed, so that a controller passes again only then.
package drain
