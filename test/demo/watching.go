// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/follow"
)

// untilRollout returns when the status of a NodeRollout is so.
func (d *demo) untilRollout(ctx context.Context, name string, so func(*v1alpha1.NodeRolloutStatus) bool) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(d.cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	var said string
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		r := &v1alpha1.NodeRollout{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, r); err != nil {
			return false, err
		}
		if ready := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			said = ready.Message
		}
		return so(&r.Status), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for NodeRollout %s, which says %q, %w", name, said, err)
	}
	return nil
}

// watchAll lets somebody see all nodes and the workload, and then every change of them, one at a time. end ends that, and says why not all
// was seen, if so.
func (d *demo) watchAll(ctx context.Context, see func(follow.Change)) (end func() error, err error) {
	raw, err := kubernetes.NewForConfig(d.cluster.Config())
	if err != nil {
		return nil, err
	}
	nodes, err := raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	workloads := raw.AppsV1().Deployments("default")
	deployments, err := workloads.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		see(follow.Change{Type: watch.Added, Object: &nodes.Items[i]})
	}
	for i := range deployments.Items {
		see(follow.Change{Type: watch.Added, Object: &deployments.Items[i]})
	}
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan follow.Change, 100)
	broken := make(chan error, 2)
	var ended sync.WaitGroup
	for _, of := range []struct {
		begin           follow.Begin
		resourceVersion string
	}{{raw.CoreV1().Nodes().Watch, nodes.ResourceVersion}, {workloads.Watch, deployments.ResourceVersion}} {
		ended.Go(func() {
			if err := follow.Changes(ctx, of.begin, of.resourceVersion, changes); !errors.Is(err, context.Canceled) {
				broken <- fmt.Errorf("not all changes were seen, %w", err)
			}
		})
	}
	ended.Go(func() {
		for {
			select {
			case change := <-changes:
				see(change)
			case <-ctx.Done():
				return
			}
		}
	})
	return sync.OnceValue(func() error {
		cancel()
		ended.Wait()
		close(broken)
		var all []error
		for err := range broken {
			all = append(all, err)
		}
		return errors.Join(all...)
	}), nil
}
