// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/internal/kind/daemonset"
)

const (
	// askAfter is how long a pod is in creation before its Events are read.
	askAfter = 10 * time.Second
	// askAgain is the least time between two such reads for an ExtendedDaemonSet. They need a pass that another change or the resync causes.
	askAgain = 20 * time.Second
)

// explainStart finds why the first pod that has been in creation for long does not start. That a volume can't be mounted shows only in the
// pod's Events.
func (p *pass) explainStart(ctx context.Context) {
	for _, s := range p.States {
		pod := s.Current
		if pod == nil || pod.State.Creating.IsZero() || pod.State.Message != "" || pod.Spec.NodeName == "" || s.NodeProblem != "" ||
			!p.HasPassed(pod.State.Creating.Add(askAfter)) {
			continue
		}
		if !p.now.Before(p.Slow.At.Add(askAgain)) {
			*p.Slow = daemonset.SlowPod{Pod: pod.UID, At: p.now}
			p.Slow.Reason, p.Slow.Message = p.lastWarning(ctx, pod)
		}
		if p.Slow.Pod == pod.UID && p.Slow.Reason != "" {
			pod.State.Explain(p.Slow.Reason, p.Slow.Message)
		}
		return
	}
}

// lastWarning returns reason and message of the newest warning about a pod. They are empty if there is none, or Events may not be listed.
func (p *pass) lastWarning(ctx context.Context, pod *daemonset.Pod) (reason, message string) {
	var list corev1.EventList
	if err := p.live.List(ctx, &list, client.InNamespace(p.key.Namespace), client.MatchingFields{
		"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning,
	}); err != nil {
		log.FromContext(ctx).V(1).Info("events of a pod can't be read", "pod", pod.Name, "error", err.Error())
	}
	if len(list.Items) == 0 {
		return "", ""
	}
	newest := slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return newest.Reason, newest.Message
}
