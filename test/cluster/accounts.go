// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitForAccounts returns when namespaces have their default service accounts: without one the API server refuses pods.
func WaitForAccounts(ctx context.Context, c client.Reader, namespaces ...string) error {
	for _, ns := range namespaces {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{})
			return err == nil, client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("waiting for the service account of namespace %s, %w", ns, err)
		}
	}
	return nil
}

// waitForAccounts returns when pods can be made in the namespaces that every cluster has.
func (c *Cluster) waitForAccounts(ctx context.Context) error {
	api, err := client.New(c.config, client.Options{})
	if err != nil {
		return err
	}
	return WaitForAccounts(ctx, api, metav1.NamespaceDefault, metav1.NamespaceSystem)
}
