// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Unhealthy returns why a node is not healthy, or "", and when the clock alone can change that. A healthy node exists, has been ready for
// long enough, and meets gates.nodes of every budget that selects it.
func (f *Fleet) Unhealthy(name string, now time.Time) (why string, next time.Time) {
	return f.health(name, &Health{}, now)
}

// health returns why a node is not healthy by the budgets and by a rollout's own requirements. It also returns when the
// clock alone can change that.
func (f *Fleet) health(name string, own *Health, now time.Time) (why string, end time.Time) {
	n := f.Nodes[name]
	if n == nil {
		return "there is no such node", end
	}
	for _, asked := range f.asked(n, own) {
		if h, end := asked.unmet(n, now); h.Cause != "" {
			return h.Message, end
		}
	}
	return "", end
}

// asked returns a rollout's own requirements, and those of the budgets that select a node.
func (f *Fleet) asked(n *Node, own *Health) []*Health {
	all := []*Health{own}
	for i := range f.Budgets {
		if b := &f.Budgets[i]; b.Selects(n) {
			all = append(all, &b.Health)
		}
	}
	return all
}

// healthySince returns since when a node has been healthy by the budgets and by a rollout's own requirements, according to
// its conditions.
func (f *Fleet) healthySince(name string, own *Health) time.Time {
	n := f.Nodes[name]
	if n == nil {
		return time.Time{}
	}
	var since time.Time
	for _, asked := range f.asked(n, own) {
		since = Later(since, n.ready().since.Add(asked.MinReady))
		for _, want := range asked.Conditions {
			if c := NodeCondition(n.Conditions, corev1.NodeConditionType(want.Type)); c != nil {
				since = Later(since, c.LastTransitionTime.Time)
			}
		}
	}
	return since
}

// SoakEnd returns when the soak of a changed node ends: this long after the later of the change and the node's health. It
// does not check whether the node is healthy now.
func (f *Fleet) SoakEnd(name string, changed time.Time, soak time.Duration) time.Time {
	return Later(changed, f.healthySince(name, &Health{})).Add(soak)
}

// NodeCondition returns the condition of this type, or nil.
func NodeCondition(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	return Find(conditions, func(c *corev1.NodeCondition) bool { return c.Type == kind })
}

// readiness is whether a node is ready, and since when. The zero value is not known yet.
type readiness struct {
	known, ready bool
	since        time.Time
}

func (n *Node) ready() readiness {
	if n.readiness.known {
		return n.readiness
	}
	c := NodeCondition(n.Conditions, corev1.NodeReady)
	if c == nil {
		return readiness{known: true}
	}
	return readiness{true, c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time}
}

// EndTurn makes the node as it is after the turns of these claims: without them, drained, and ready.
func (n *Node) EndTurn(ended func(v1alpha1.Claim) bool) {
	n.Claims, n.Draining = slices.DeleteFunc(slices.Clone(n.Claims), ended), false
	if !n.ready().ready {
		n.readiness = readiness{known: true, ready: true}
	}
}

// unmet returns why a node does not meet the requirements, and when the clock alone ends that. A healthy node has no Cause.
func (asked *Health) unmet(n *Node, now time.Time) (h Holder, end time.Time) {
	r := n.ready()
	switch {
	case !r.ready:
		return Holder{Cause: v1alpha1.CauseNotReady, Message: "not ready" + sinceText(r.since), Since: r.since}, end
	case asked.MinReady > 0 && now.Before(r.since.Add(asked.MinReady)):
		message := "ready only" + sinceText(r.since) + ", and minReadySeconds is " + asked.MinReady.String()
		return Holder{Cause: v1alpha1.CauseMinReadySeconds, Message: message, Since: r.since}, r.since.Add(asked.MinReady)
	}
	for _, want := range asked.Conditions {
		c := NodeCondition(n.Conditions, corev1.NodeConditionType(want.Type))
		switch {
		case c == nil:
			return Holder{Cause: v1alpha1.CauseUnhealthy, Message: fmt.Sprintf("condition %s is absent, and must be %s", want.Type, want.Status)}, end
		case metav1.ConditionStatus(c.Status) != want.Status:
			message := fmt.Sprintf("condition %s is %s, and must be %s", want.Type, c.Status, want.Status)
			return Holder{Cause: v1alpha1.CauseUnhealthy, Message: message, Since: c.LastTransitionTime.Time}, end
		}
	}
	for _, pattern := range asked.AbsentTaints {
		for i := range n.Taints {
			if taint := n.Taints[i].Key; taintMatches(pattern, taint) {
				return Holder{Cause: v1alpha1.CauseUnhealthy, Message: "taint " + taint + " must be absent"}, end
			}
		}
	}
	return h, end
}

// taintMatches reports whether a key equals the pattern, or has the prefix of a pattern that ends in *. A prefix never
// matches the taint of a cordon or of outdated nodes: rollouts set these themselves, and would wait for themselves.
func taintMatches(pattern, taint string) bool {
	prefix, ok := strings.CutSuffix(pattern, "*")
	if !ok {
		return pattern == taint
	}
	domain, _, _ := strings.Cut(taint, "/")
	return strings.HasPrefix(taint, prefix) && taint != corev1.TaintNodeUnschedulable && !strings.HasSuffix(domain, v1alpha1.TaintOutdatedSuffix)
}

func sinceText(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " since " + since.UTC().Format(time.RFC3339)
}
