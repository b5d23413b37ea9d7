// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one machine, for tests, for
// the demo and for scale runs:
//
//	c := cluster.New(t, cluster.Options{Nodes: 20})
//	client, err := kubernetes.NewForConfig(c.Config())
//
// It has two kinds of nodes, and one cluster may have both.
//
// Simulated nodes are objects. kwok plays the kubelet for them, by the stages in
// stages.yaml: pods become ready, the pods of Jobs complete, a node reboots when
// an annotation asks for it. They need no privileges, and thousands fit.
//
// Real machines are Linux namespaces with a root file system, a network, a
// containerd and a kubelet of their own. Their pods are real, a privileged pod
// sees a real /host, and a reboot loses what a reboot loses. They need root, on
// Linux; CanRunMachines says whether that is so here.
//
// # Processes
//
//	test ──────────── owner pipe ────────────┐ end of file: tear down
//	  │                                      ▼
//	  └─ control socket ──────────────▶ supervisor ─┬─ etcd
//	                                                ├─ kube-apiserver
//	                                                ├─ kube-controller-manager
//	                                                ├─ kube-scheduler
//	                                                ├─ kwok
//	                                                └─ machine-N: init ─┬─ containerd ── pods
//	                                                                    └─ kubelet
//
// The supervisor is the test's own executable, started again under another name
// (see reexec.go). It owns everything that has to go away again, and outlives
// whoever started it just long enough to do that: a test that is killed, or that
// runs into its timeout, closes the pipe by dying. Were the supervisor killed
// too, its children die with it, and the next cluster to start finds what is
// left in the registry (see registry.go) and removes it.
//
// A cluster started by `cluster up` has no owner pipe, and stays until `cluster
// down`.
//
// # Binaries
//
// Kubernetes, etcd and kwok are built from the modules below modules/, once per
// version, into the user's cache directory.
package cluster
