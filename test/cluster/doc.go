// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one machine, for tests, for the demo and for scale runs:
//
//	c := cluster.New(t, cluster.Options{Nodes: 20})
//	client, err := kubernetes.NewForConfig(c.Config())
//
// It has two kinds of nodes, and one cluster may have both.
//
// Simulated nodes are objects. kwok plays the kubelet for them, by the stages in stages.yaml: pods become ready, the pods of Jobs complete,
// a node reboots when an annotation asks for it. They need no privileges, and thousands fit.
//
// Real machines are Linux namespaces with a root file system, a network, a containerd and a kubelet of their own. Their pods are real, a
// privileged pod sees a real /host, and a reboot loses what a reboot loses. They need root, on Linux; CanRunMachines says whether that is
// so here.
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
// The supervisor is the test's own executable, started again under another name (see process.go). It owns everything that has to go away
// again, and outlives whoever started it just long enough to do that: a test that is killed, or that runs into its timeout, closes the pipe
// by dying. Were the supervisor killed too, its children die with it, and the next cluster to start finds what is left in the registry (see
// registry.go) and removes it.
//
// A cluster started by `cluster up` has no owner pipe, and stays until `cluster down`.
//
// # What is not as on other machines
//
// The machines share this machine's kernel, so that what a privileged pod does to the kernel itself (its clock, its modules, a sysctl that
// is no namespace's) it does to this machine. The boot id, what the kubelet sets, and the reboot system call are the machine's own. The
// commands reboot and systemctl (which knows only reboot and poweroff) work in a machine and from a privileged pod.
//
// A machine may have programs of its own, in BootDir and ServiceDir: it runs them at each boot before the kubelet, and beside it.
//
// Machines and simulated nodes can be added while the cluster runs, and machines be removed again: see Cluster.AddMachine, Machine.Remove,
// Cluster.AddNode and Cluster.Silence. A node outlives its machine, as in a cluster without a cloud controller.
//
// There is no cluster DNS, and of services only the API server's is reachable. Pods reach pods on other machines by address. Nothing beyond
// the cluster is reachable, so that images have to be imported, under a tag other than latest.
//
// A node that is silent counts as not ready after 20 seconds, or a twentieth of a second for each simulated node, whichever is longer.
//
// # Programs
//
// Kubernetes, etcd and kwok are one program, built from the module programs by package hack/build, once per version,
// into the user's cache directory.
package cluster
