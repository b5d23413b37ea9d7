// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Unhealthy says why a node is not healthy, or "": it is not ready, or not for long enough, or it does not meet what a budget
// that selects it asks of its nodes. A node that is not there is not healthy.
func (f *Fleet) Unhealthy(name string, now time.Time) string {
	why, _ := f.health(name, &Health{}, now)
	return why
}

// health says why a node is not healthy, of which a rollout asks this besides, and when the clock alone can change that.
func (f *Fleet) health(name string, own *Health, now time.Time) (why string, end time.Time) {
	n := f.Nodes[name]
	if n == nil {
		return "there is no such node", end
	}
	r := n.ready()
	if !r.ready {
		return "not ready" + from(r.since), end
	}
	if cause, message, _, end := ill(own.MinReady, &own.NodesGate, n, r, now); cause != "" {
		return message, end
	}
	for i := range f.Budgets {
		b := &f.Budgets[i]
		if !b.selects(n) {
			continue
		}
		if cause, message, _, end := b.ill(n, r, now); cause != "" {
			return message, end
		}
	}
	return "", end
}

// healthySince is since when a node that is healthy now, also by what a rollout asks besides, has been so, as far as its conditions tell.
func (f *Fleet) healthySince(name string, own *Health) time.Time {
	n := f.Nodes[name]
	if n == nil {
		return time.Time{}
	}
	since := n.wellSince(own.MinReady, &own.NodesGate)
	for i := range f.Budgets {
		b := &f.Budgets[i]
		if b.MinReady == 0 && len(b.Health.Conditions) == 0 || !b.selects(n) {
			continue
		}
		since = later(since, n.wellSince(b.MinReady, &b.Health))
	}
	return since
}

// wellSince is since when a node has met what is asked of it.
func (n *Node) wellSince(least time.Duration, asked *v1alpha1.NodesGate) time.Time {
	since := n.ready().since.Add(least)
	for _, want := range asked.Conditions {
		if c := n.condition(want.Type); c != nil {
			since = later(since, c.LastTransitionTime.Time)
		}
	}
	return since
}

// SoakEnd is when a node has soaked that was changed at this time: so long after it has become healthy, as far as its
// conditions tell. Whether it is healthy is not asked.
func (f *Fleet) SoakEnd(name string, changed time.Time, soak time.Duration) time.Time {
	return later(changed, f.healthySince(name, &Health{})).Add(soak)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (n *Node) condition(kind string) *corev1.NodeCondition {
	for i := range n.Conditions {
		if string(n.Conditions[i].Type) == kind {
			return &n.Conditions[i]
		}
	}
	return nil
}

// readiness is whether a node is ready, and since when it is or is not.
type readiness struct {
	ready bool
	since time.Time
}

// Settled returns the node, which is not changed any more, with what is asked of it again and again found out.
func (n *Node) Settled() *Node {
	r := n.ready()
	n.readiness = &r
	return n
}

func (n *Node) ready() readiness {
	if n.readiness != nil {
		return *n.readiness
	}
	c := n.condition(string(corev1.NodeReady))
	if c == nil {
		return readiness{}
	}
	return readiness{c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time}
}

// ill says why a node is unavailable for itself, since when, and when the clock alone ends that.
func (b *Budget) ill(n *Node, r readiness, now time.Time) (cause v1alpha1.UnavailableCause, message string, since, end time.Time) {
	return ill(b.MinReady, &b.Health, n, r, now)
}

// ill says why a node is not healthy that is to be ready for so long at least and to meet what is asked.
func ill(least time.Duration, asked *v1alpha1.NodesGate, n *Node, r readiness, now time.Time) (cause v1alpha1.UnavailableCause, message string, since, end time.Time) {
	ready, since := r.ready, r.since
	switch until := since.Add(least); {
	case !ready:
		return v1alpha1.CauseNotReady, "not ready" + from(since), since, end
	case least > 0 && now.Before(until):
		return v1alpha1.CauseMinReadySeconds, "ready only" + from(since) + ", and minReadySeconds is " + least.String(), since, until
	}
	for _, want := range asked.Conditions {
		c := n.condition(want.Type)
		switch {
		case c == nil:
			return v1alpha1.CauseUnhealthy, fmt.Sprintf("condition %s is absent, and must be %s", want.Type, want.Status), time.Time{}, end
		case metav1.ConditionStatus(c.Status) != want.Status:
			return v1alpha1.CauseUnhealthy, fmt.Sprintf("condition %s is %s, and must be %s", want.Type, c.Status, want.Status), c.LastTransitionTime.Time, end
		}
	}
	for _, pattern := range asked.AbsentTaints {
		for i := range n.Taints {
			if taint := n.Taints[i].Key; fits(pattern, taint) {
				return v1alpha1.CauseUnhealthy, "taint " + taint + " must be absent", time.Time{}, end
			}
		}
	}
	return "", "", since, end
}

// fits reports whether a key is the pattern, or begins like one that ends in *. That of a cordon and those of outdated nodes tell of no
// illness, but of what a rollout does, or is to do: who waits for their absence in general would wait for itself.
func fits(pattern, taint string) bool {
	prefix, ok := strings.CutSuffix(pattern, "*")
	if !ok {
		return pattern == taint
	}
	domain, _, _ := strings.Cut(taint, "/")
	return strings.HasPrefix(taint, prefix) && taint != corev1.TaintNodeUnschedulable && !strings.HasSuffix(domain, v1alpha1.TaintOutdatedSuffix)
}

func from(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " since " + since.UTC().Format(time.RFC3339)
}
