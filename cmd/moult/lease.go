// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is what this process holds while it leads. In a Pod its holder is the Pod: a container that starts again after its host went down is the
// same holder, and need not wait until its own Lease has run out. Only one of two containers of a Pod ever runs.
func (s *settings) lease(cfg *rest.Config) (resourcelock.Interface, error) {
	if !s.leaderElect {
		return nil, nil
	}
	holder := resourcelock.ResourceLockConfig{Identity: cmp.Or(os.Getenv("POD_NAME"), s.nodeName+"_"+string(uuid.NewUUID()))}
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.Namespace, s.Name, holder, cfg, s.renewDeadline)
}
