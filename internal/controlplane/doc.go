// SPDX-License-Identifier: Apache-2.0

// Package controlplane takes nodes out of a control plane that kubeadm made, with a member of etcd on each. One call makes one step. It does so only if etcd
// keeps its quorum, and still tolerates a failure if it did before.
//
//	plane.go     when a node may leave, and the steps of leaving
//	observe.go   the state of etcd, read from its members
//	quorum.go    how many members may leave, and which member leads next
//	members.go   connections to members, and which member is a node's
//	kubeadm.go   the Kubernetes version that joining machines read
//
// Nothing is kept between calls. Each call reads the members from etcd itself, at the addresses of its pods. So a caller that was killed calls again.
package controlplane
