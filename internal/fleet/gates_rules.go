// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
)

// parse reads a budget's gates. The error names the field.
func (r *rules) parse(from *v1alpha1.Gates) error {
	var err error
	if w := from.Workloads; w != nil {
		r.workloads = &workloadsRule{}
		if r.workloads.selector, err = selector(w.Selector); err != nil {
			return fmt.Errorf("workloads.selector: %w", err)
		}
		if r.workloads.namespaces, err = selector(w.NamespaceSelector); err != nil {
			return fmt.Errorf("workloads.namespaceSelector: %w", err)
		}
	}
	for i := range from.Pods {
		p := &from.Pods[i]
		rule := &podsRule{cluster: p.Scope == v1alpha1.PodsInCluster}
		if rule.selector, err = selector(&p.Selector); err != nil {
			return fmt.Errorf("pods[%d].selector: %w", i, err)
		}
		if rule.namespaces, err = selector(p.NamespaceSelector); err != nil {
			return fmt.Errorf("pods[%d].namespaceSelector: %w", i, err)
		}
		r.pods = append(r.pods, rule)
	}
	if a := from.Alerts; a != nil {
		if r.alerts, err = newAlertsRule(a); err != nil {
			return fmt.Errorf("alerts.%w", err)
		}
	}
	return nil
}

// selector reads a selector; nil is one that selects everything.
func selector(from *metav1.LabelSelector) (labels.Selector, error) {
	if from == nil {
		return nil, nil
	}
	s, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		return nil, err
	}
	if s.Empty() {
		return nil, nil
	}
	return s, nil
}

func selects(s labels.Selector, set map[string]string) bool {
	return s == nil || s.Matches(labels.Set(set))
}

// How often Prometheus is asked, at least so soon again when it did not answer, and for how long it may think about that; and for how long
// an answer that is overdue is waited for.
const (
	defaultInterval = 15 * time.Second
	retryInterval   = 15 * time.Second
	longestTimeout  = 10 * time.Second
	longestGrace    = time.Minute
)

// alertsRule is an alerts gate.
type alertsRule struct {
	gate              v1alpha1.AlertsGate
	allow, deny       *regexp.Regexp
	interval, timeout time.Duration
}

func newAlertsRule(from *v1alpha1.AlertsGate) (*alertsRule, error) {
	r := &alertsRule{gate: *from.DeepCopy(), interval: defaultInterval}
	for _, e := range []struct {
		field string
		from  string
		to    **regexp.Regexp
	}{{"allow", from.Allow, &r.allow}, {"deny", from.Deny, &r.deny}} {
		if e.from == "" {
			continue
		}
		// By itself first, so that it can't close the group that anchors it.
		if _, err := regexp.Compile(e.from); err != nil {
			return nil, fmt.Errorf("%s: %w", e.field, err)
		}
		*e.to = regexp.MustCompile("^(?:" + e.from + ")$")
	}
	if from.IntervalSeconds != nil {
		r.interval = time.Duration(max(1, *from.IntervalSeconds)) * time.Second
	}
	r.timeout = min(r.interval, longestTimeout)
	return r, nil
}

// matters reports whether an alert of this name closes the gate.
func (r *alertsRule) matters(name string) bool {
	switch {
	case r.deny != nil:
		return r.deny.MatchString(name)
	case r.allow != nil:
		return !r.allow.MatchString(name)
	}
	return true
}

// patience is for how long an answer counts: until the next, and for some time in which that may be asked for again.
func (r *alertsRule) patience() time.Duration {
	return r.interval + min(r.interval, longestGrace) + r.timeout
}
