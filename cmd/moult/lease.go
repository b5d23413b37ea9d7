// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is what this process holds while it leads.
func (s *settings) lease(cfg *rest.Config) (resourcelock.Interface, error) {
	if !s.leaderElect {
		return nil, nil
	}
	holder, err := leaseHolder(os.Getenv("POD_NAME"))
	if err != nil {
		return nil, fmt.Errorf("naming the holder of the Lease, %w", err)
	}
	// A request that hangs must not cost the Lease.
	cfg = rest.AddUserAgent(cfg, "leader-election")
	cfg.Timeout = max(s.renewDeadline/2, time.Second)
	core, err := corev1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	coordination, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	return resourcelock.New(resourcelock.LeasesResourceLock, s.Namespace, s.Name, core, coordination, resourcelock.ResourceLockConfig{Identity: holder})
}

// leaseHolder names this process in the Lease. In a Pod that is the Pod: a container that went down with its host, and starts again,
// is the same holder, and need not wait until its own Lease has run out. Of two containers of one Pod only one ever runs.
func leaseHolder(pod string) (string, error) {
	if pod != "" {
		return pod, nil
	}
	hostname, err := os.Hostname()
	return hostname + "_" + string(uuid.NewUUID()), err
}
