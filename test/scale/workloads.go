// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

const (
	// namespaceWorkloads holds what gates look at.
	namespaceWorkloads = "workloads"
	// deployments, and replicas of each, are what there is beside Plans.
	deployments = 100
	replicas    = 2
	// writers is how many writes are under way at once.
	writers = 32
)

// deploy returns when so many Deployments are available, each with so many pods.
func (b *bench) deploy(ctx context.Context, deployments int, replicas int32) error {
	say("making %d Deployments with %d pods each", deployments, replicas)
	if err := b.makeNamespace(ctx, namespaceWorkloads); err != nil {
		return err
	}
	client := b.raw.AppsV1().Deployments(namespaceWorkloads)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range deployments {
		group.Go(func() error {
			_, err := client.Create(groupCtx, newDeployment(fmt.Sprintf("workload-%03d", i+1), replicas), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	available := 0
	bound := patience + time.Duration(deployments)*time.Duration(replicas)*50*time.Millisecond
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, bound, true, func(ctx context.Context) (bool, error) {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		available = 0
		for i := range list.Items {
			if list.Items[i].Status.AvailableReplicas == replicas {
				available++
			}
		}
		return available == deployments, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d Deployments are available, %w", available, deployments, err)
	}
	return nil
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/workload"}}},
			},
		},
	}
}
