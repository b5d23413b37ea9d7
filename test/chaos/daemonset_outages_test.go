// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

const (
	// outagesEach is how many nodes fail while one template goes out.
	outagesEach = 4
	// outageSeconds is for how long each is not ready. Its pods are not, either, until the simulated kubelet has seen to them.
	outageSeconds = "4"

	annotationReboot        = "test.moult.dev/reboot"
	annotationRebootSeconds = "test.moult.dev/reboot-seconds"
	conditionRebooted       = "MoultTestRebooted"
)

// outages lets nodes fail with their pods, and come back.
type outages struct {
	random  *rand.Rand
	client  client.Client
	journal *journal
	// planned are those to come, and ids those that have begun, by node.
	planned []outage
	ids     map[string]string
	count   int
}

// outage of one node, at some time.
type outage struct {
	at time.Time
	// canary is true for one of those on which the template is tried, if there are some by then.
	canary bool
	node   int
}

func newOutages(random *rand.Rand, c client.Client, j *journal) *outages {
	return &outages{random: random, client: c, journal: j, ids: map[string]string{}}
}

// draw plans some, for the seconds to come.
func (o *outages) draw(now time.Time) {
	for range outagesEach {
		o.planned = append(o.planned, outage{
			at:     now.Add(time.Duration(300+o.random.IntN(8000)) * time.Millisecond),
			canary: o.random.IntN(4) == 0,
			node:   o.random.IntN(daemonNodes),
		})
	}
}

// play begins those that are due.
func (o *outages) play(ctx context.Context, now time.Time) error {
	var later []outage
	for _, one := range o.planned {
		if one.at.After(now) {
			later = append(later, one)
			continue
		}
		if err := o.begin(ctx, one); err != nil {
			return fmt.Errorf("letting a node fail, %w", err)
		}
	}
	o.planned = later
	return nil
}

func (o *outages) begin(ctx context.Context, one outage) error {
	var names, canaries []string
	o.journal.see(func(latest map[string]client.Object) {
		for _, object := range latest {
			switch object := object.(type) {
			case *corev1.Node:
				names = append(names, object.Name)
			case *edsv1.ExtendedDaemonSet:
				if c := object.Status.Canary; c != nil {
					canaries = c.Nodes
				}
			}
		}
	})
	slices.Sort(names)
	if one.canary && len(canaries) > 0 {
		names = canaries
	}
	name := names[one.node%len(names)]
	o.count++
	id := fmt.Sprintf("outage-%d", o.count)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`, annotationReboot, id, annotationRebootSeconds, outageSeconds)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.ids[name] = id
	if err := o.client.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	return o.failPods(ctx, name)
}

// failPods makes the pods of a node unready, as they are after a reboot.
func (o *outages) failPods(ctx context.Context, node string) error {
	var pods []*corev1.Pod
	o.journal.see(func(latest map[string]client.Object) {
		for _, object := range latest {
			if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName == node && serves(pod) {
				pods = append(pods, pod)
			}
		}
	})
	now := metav1.Now().UTC().Format(time.RFC3339)
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeFailed","lastTransitionTime":%q},`+
		`{"type":"ContainersReady","status":"False","reason":"NodeFailed","lastTransitionTime":%q}]}}`, now, now)
	for _, pod := range pods {
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err := o.client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// over reports whether all that were planned have come, and have passed.
func (o *outages) over() bool {
	over := len(o.planned) == 0
	o.journal.see(func(latest map[string]client.Object) {
		for _, object := range latest {
			n, ok := object.(*corev1.Node)
			if ok && (!nodeReady(n) || o.ids[n.Name] != rebooted(n)) {
				over = false
			}
		}
	})
	return over
}

// rebooted is the id of a node's last outage.
func rebooted(n *corev1.Node) string {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == conditionRebooted {
			return c.Message
		}
	}
	return ""
}
