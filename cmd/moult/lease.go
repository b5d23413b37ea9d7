// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease returns the lock that this process holds while it leads. In a Pod the holder is the Pod's name. So a container that restarts after its
// host went down need not wait until its own Lease expires. A Pod never runs two of these containers at once.
func (s *settings) lease(cfg *rest.Config) (resourcelock.Interface, error) {
	if !s.leaderElect {
		return nil, nil
	}
	holder := resourcelock.ResourceLockConfig{Identity: cmp.Or(os.Getenv("POD_NAME"), s.nodeName+"_"+string(uuid.NewUUID()))}
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.Namespace, s.Name, holder, cfg, s.renewDeadline)
}
