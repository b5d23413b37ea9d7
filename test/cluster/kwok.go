// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

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
