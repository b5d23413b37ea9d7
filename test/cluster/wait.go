// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// poll asks for a condition at once and then every interval, until it holds, fails, or the context ends.
func poll(ctx context.Context, interval time.Duration, condition func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lockFile takes an exclusive lock that other processes respect too, and that the kernel releases should this one die.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, 100*time.Millisecond, func() (bool, error) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

// Passing reports whether an error of a request to the API server is the moment's, and says nothing about what was asked for.
func Passing(err error) bool {
	for _, is := range []func(error) bool{
		apierrors.IsConflict, apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsInternalError, apierrors.IsTooManyRequests,
		apierrors.IsServiceUnavailable, utilnet.IsConnectionReset, utilnet.IsConnectionRefused, utilnet.IsHTTP2ConnectionLost,
		utilnet.IsProbableEOF, utilnet.IsTimeout,
	} {
		if is(err) {
			return true
		}
	}
	return false
}

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
