// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attempts limits how often a patch is tried on a Node that others write at the same time.
const attempts = 10

// retry writes to a Node. After a conflict it reads the Node and writes again.
func retry(ctx context.Context, c client.Reader, n *corev1.Node, write func(*corev1.Node) error) error {
	for attempt := 1; ; attempt++ {
		err := write(n)
		if err == nil || !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
		latest := &corev1.Node{}
		if getErr := c.Get(ctx, client.ObjectKeyFromObject(n), latest); getErr != nil {
			return getErr
		}
		if latest.UID != n.UID || latest.ResourceVersion == n.ResourceVersion {
			return err // Another node of the same name, or an outdated cache: the caller decides again.
		}
		n = latest
	}
}
