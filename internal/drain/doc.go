// SPDX-License-Identifier: Apache-2.0

// Package drain evicts the pods of a node. Filter decides which pods to evict, without I/O. Drainer.Pass evicts them and
// never waits. Result explains what still blocks the drain. The package writes to pods only: cordon the node first.
//
// A pass puts every pod of the node into one state. The caller calls Pass again when the node's pods change or at
// Result.Next, until Result.Done or until Result.Stuck:
//
//	                 ┌─ Skipped      stays, for a reason of Filter
//	                 ├─ Refused      the options do not allow its eviction: then no pod is evicted
//	pod ─ Filter ────┤                     ┌─ Blocked      a budget refuses it for now: a later pass tries again
//	                 │                     ├─ Failed       the API returned another error
//	                 └─ may be evicted ────┼─ Evicted ──── Terminating ──── Gone
//	                                       └─ Waiting      its priority is not next, or the drain timed out
//
// The only state between passes is since, the time when the drain began, and the caller keeps it in the API. Everything
// else is read from the pods of the node, which a Watcher or a list gives, so another process can continue a drain.
//
// Order. Pods are evicted in ascending priority, those of the same priority together. Pods of the classes
// system-cluster-critical and system-node-critical (priority from 2,000,000,000) are evicted last, after all others are
// gone, because others may need them to end cleanly. Only this differs from kubectl.
//
// The end. Options.Timeout is how long a drain may take, and Options.OnTimeout is what happens then. Halt and Skip evict
// nothing more, and the drain is never done. Force deletes the remaining pods and ignores every budget. After Halt the
// drain has failed; after Skip the caller releases the node and skips it.
//
// Volumes. With Options.WaitForVolumeDetach a drain is done when the volumes of evicted pods are detached too.
// Result.Attached lists those that are still attached. Volumes of pods that stay are not waited for.
//
// A Watcher reports when pods of a node have changed, so that a controller calls Pass only then.
package drain
