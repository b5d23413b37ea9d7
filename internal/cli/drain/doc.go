// SPDX-License-Identifier: Apache-2.0

// Package drain is the command line of one-shot drains: `moult drain`, `moult cordon` and `moult uncordon`. They take
// the flags of their namesakes of kubectl 1.37 and do the same, so that Moult's own image can stand in for kubectl's in
// the Jobs of a Plan, and a person finds what they know.
//
// They need no more of the API than those Jobs' service account has: get and patch nodes (list with --selector), get,
// list and delete pods, create pods/eviction, get daemonsets; and, with --wait-for-volume-detach, list volumeattachments and
// get persistentvolumeclaims. Without the right to patch nodes/status they only warn. They watch nothing: they look again
// every second.
//
// Where they differ from kubectl:
//   - a node that could not be cordoned is not drained, and cordon and uncordon fail if a node does (kubectl says 0);
//   - pods of critical priority go last (see package internal/drain);
//   - a pod that comes to the node while it is drained, although it is cordoned, is not chased;
//   - an API server that fails during the drain is asked again, until --timeout;
//   - --dry-run=server asks once, and fails if a budget would hold a pod;
//   - a drain that fails or is stopped gives the node back: what it has cordoned is schedulable again, the label that
//     --exclude-from-load-balancers has put on is off, and the node's conditions say that the drain is over;
//   - --on-timeout says what happens when the time is over, and the exit code which end it was;
//   - --wait-for-volume-detach waits for volumes, too;
//   - drain says in the node's conditions how it goes, and records in an annotation whose pods it evicts;
//   - run by a Plan's Job, cordon and drain mark the node as cordoned by the Plan, unless a person had cordoned it.
//
// What carries the mark of the Plan is given back also if an earlier attempt of the Job has put it there, and what a
// person did stays. An attempt that is killed gives nothing back: the next one does, or the controller in the end.
package drain
