// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parallel limits the concurrent evictions of one node.
const parallel = 20

// request is how pods are evicted.
type request struct {
	grace  *int64
	delete bool
	dryRun bool
}

// evictAll evicts these pods concurrently, and returns the outcomes in their order.
func (d *Drainer) evictAll(ctx context.Context, verdicts []Verdict, r request) []Outcome {
	outcomes := make([]Outcome, len(verdicts))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range verdicts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = answer(&verdicts[i], d.evictOne(ctx, verdicts[i].Pod, r))
		})
	}
	wg.Wait()
	return outcomes
}

// evictOne evicts one pod. The uid is a precondition, so that a new pod of the same name is not evicted.
func (d *Drainer) evictOne(ctx context.Context, pod *corev1.Pod, r request) error {
	preconditions := &metav1.Preconditions{UID: &pod.UID}
	var dryRun []string
	if r.dryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	if r.delete {
		return d.client.Delete(ctx, pod, &client.DeleteOptions{
			GracePeriodSeconds: r.grace, Preconditions: preconditions, DryRun: dryRun,
		})
	}
	return d.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: r.grace, Preconditions: preconditions, DryRun: dryRun,
		},
	})
}

// isRequested reports whether the pod already terminates as the request wants. A shorter grace period is requested again:
// the API server shortens a running one, and never lengthens it.
func isRequested(pod *corev1.Pod, r request) bool {
	if pod.DeletionTimestamp.IsZero() {
		return false
	}
	running := pod.DeletionGracePeriodSeconds
	return r.grace == nil || running == nil || *running <= *r.grace
}
