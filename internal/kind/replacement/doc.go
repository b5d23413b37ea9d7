// SPDX-License-Identifier: Apache-2.0

// Package replacement says what the turn of a machine that is replaced needs next: which machine is added for it, which one takes its place, when
// its node goes, and what is taken back when it does not. It is given everything, and only says.
//
// Memory is a v1alpha1.MachineTurn for each turn and a v1alpha1.CloudOperation for each thing that a cloud was asked for, both in the rollout's
// status, and the claim on the Node. What is said here is written down first, and done afterwards; and all that is done can be done again.
//
// Machines of a set are alike. A turn adds one and deletes one, and never more than that is counted: how many a set has in all is for others to
// change at any time.
package replacement
