// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path/filepath"
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
