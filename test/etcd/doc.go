// SPDX-License-Identifier: Apache-2.0

// Package etcd runs real clusters of etcd for tests, set up as kubeadm does: a member for each node, with mutual TLS, that joins as a learner
// and is promoted. Each member is a process of this machine with an address of its own in 127.0.0.0/8, and ports 2379 and 2380 there.
package etcd
