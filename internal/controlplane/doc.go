// SPDX-License-Identifier: Apache-2.0

// Package controlplane takes nodes out of a control plane that kubeadm made, with a member of etcd on each: one step a call, and only where
// etcd keeps its quorum, and keeps bearing a failure where it did.
//
// Nothing is remembered between calls. What is left to do is read each time: members from etcd itself, by the addresses in its pods, and
// ConfigMap kube-system/kubeadm-config. So a caller that is killed calls again.
package controlplane
