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

// parallel bounds how many evictions of one node are asked for at the same time.
const parallel = 20

// request is how pods are told to go.
type request struct {
	grace  *int64
	delete bool
	dryRun bool
}

// all tells these pods to go, at the same time, and gives the answers in their order.
func (d *Drainer) all(ctx context.Context, verdicts []Verdict, r request) []Outcome {
	outcomes := make([]Outcome, len(verdicts))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range verdicts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = answer(&verdicts[i], d.one(ctx, verdicts[i].Pod, r))
		})
	}
	wg.Wait()
	return outcomes
}

// one tells one pod to go. The uid is a precondition: a pod of the same name that came in its place is not meant.
func (d *Drainer) one(ctx context.Context, pod *corev1.Pod, r request) error {
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

// asked says that the pod was told to go before, in the way that the request would tell it. A shorter grace period is
// told again: the API server shortens a running one, and never lengthens it.
func asked(pod *corev1.Pod, r request) bool {
	if pod.DeletionTimestamp.IsZero() {
		return false
	}
	running := pod.DeletionGracePeriodSeconds
	return r.grace == nil || running == nil || *running <= *r.grace
}
