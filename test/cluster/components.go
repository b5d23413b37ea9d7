// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// startEtcd starts the API server's store. Nothing in it outlives the cluster, so it never waits for the disk.
func (s *supervisor) startEtcd() error {
	client, peer := loopbackURL(s.record.Ports[portEtcd]), loopbackURL(s.record.Ports[portEtcdPeer])
	return s.startComponent("etcd",
		"--name=etcd",
		"--data-dir="+filepath.Join(s.spec.Dir, "etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=etcd="+peer,
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
}

func loopbackURL(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// At the default of 20 requests a second the job controller makes 3 Jobs a second, and every rollout would look equally slow.
const (
	clientQPS   = "--kube-api-qps=2000"
	clientBurst = "--kube-api-burst=4000"
)

func (s *supervisor) startControllerManager() error {
	kubeconfig, err := s.systemKubeconfig("kube-controller-manager")
	if err != nil {
		return err
	}
	// Looking at every node every second is quick to notice one that is cut off, and with thousands of them is all it would do.
	grace := nodeGrace(s.spec.Nodes)
	if s.spec.Nodes == 0 && s.spec.Machines == 0 {
		grace = time.Hour // Whoever makes a node says himself how it is, and need not say it all along.
	}
	period := time.Second
	if s.spec.Nodes > 200 {
		period = 5 * time.Second
	}
	return s.startComponent("kube-controller-manager",
		"--kubeconfig="+kubeconfig,
		"--use-service-account-credentials=true",
		"--root-ca-file="+s.ca.path("ca.crt"),
		"--service-account-private-key-file="+s.ca.path("service-account.key"),
		"--cluster-signing-cert-file="+s.ca.path("ca.crt"),
		"--cluster-signing-key-file="+s.ca.path("ca.key"),
		"--leader-elect=false",
		"--secure-port=0",
		"--node-monitor-period="+period.String(),
		"--node-monitor-grace-period="+grace.String(),
		"--concurrent-job-syncs=20",
		clientQPS, clientBurst,
	)
}

func (s *supervisor) startScheduler() error {
	kubeconfig, err := s.systemKubeconfig("kube-scheduler")
	if err != nil {
		return err
	}
	return s.startComponent("kube-scheduler",
		"--kubeconfig="+kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		clientQPS, clientBurst,
	)
}

// systemKubeconfig writes the kubeconfig of a component that has a role of its own.
func (s *supervisor) systemKubeconfig(name string) (string, error) {
	path := filepath.Join(s.ca.dir, name+".kubeconfig")
	return path, s.ca.writeKubeconfig(path, s.apiURL(), name, identityOf{user: "system:" + name})
}

// nodeGrace is how long a node may be silent before it counts as not ready.
//
// A node has to renew its lease a few times within it. With few nodes it is short, so that a cut-off machine shows soon; with many it
// grows, so that the leases of simulated nodes stay a trickle: at most 50 writes a second.
func nodeGrace(nodes int) time.Duration {
	return max(20*time.Second, time.Duration(nodes)*time.Second/20)
}

// renewInterval is how often the leases of simulated nodes are renewed.
func renewInterval(nodes int) time.Duration { return nodeGrace(nodes) * 2 / 5 }

// leaseSeconds is the duration in a simulated node's lease, of which kwok renews it after a quarter.
func leaseSeconds(nodes int) string {
	return fmt.Sprintf("%.0f", (4 * renewInterval(nodes)).Seconds())
}

// stages is how simulated nodes behave.
//
//go:embed stages.yaml
var stages string

// kwokManaged marks the nodes that kwok plays the kubelet of. It leaves the real machines alone.
const kwokManaged = "kwok.x-k8s.io/node"

func (s *supervisor) startKwok() error {
	kubeconfig := filepath.Join(s.ca.dir, "kwok.kubeconfig")
	err := s.ca.writeKubeconfig(kubeconfig, s.apiURL(), "kwok", identityOf{user: "kwok", group: "system:masters"})
	if err != nil {
		return err
	}
	config := filepath.Join(s.spec.Dir, "kwok.yaml")
	milliseconds := strconv.Itoa(int(s.spec.PodSeconds * 1000))
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(stages, "${POD_MILLISECONDS}", milliseconds)), 0o644); err != nil {
		return err
	}
	return s.startComponent("kwok",
		"--kubeconfig="+kubeconfig,
		"--config="+config,
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector="+kwokManaged+"=fake",
		"--node-lease-duration-seconds="+leaseSeconds(s.spec.Nodes),
		"--cidr=10.128.0.0/10",
		"--v=WARN",
	)
}
