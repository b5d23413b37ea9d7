// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// parse reads a budget's gates. The error names the field.
func (r *rules) parse(from *v1alpha1.Gates) error {
	var err error
	if w := from.Workloads; w != nil {
		r.workloads = &workloadsRule{}
		if r.workloads.selector, err = rollout.NewSelector(w.Selector); err != nil {
			return fmt.Errorf("workloads.selector: %w", err)
		}
		if r.workloads.namespaces, err = rollout.NewSelector(w.NamespaceSelector); err != nil {
			return fmt.Errorf("workloads.namespaceSelector: %w", err)
		}
	}
	if r.pods, err = rollout.NewPodsGates(from.Pods); err != nil {
		return err
	}
	if a := from.Alerts; a != nil {
		if r.alerts, err = newAlertsRule(a); err != nil {
			return fmt.Errorf("alerts.%w", err)
		}
	}
	return nil
}

func selects(s labels.Selector, set map[string]string) bool {
	return s == nil || s.Matches(labels.Set(set))
}

// The interval of queries to Prometheus, the longest interval after an error, the longest timeout of a query, and the
// longest grace for an overdue answer.
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
		// Compiled without the anchors first, so that it can't close their group.
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

// patience is how long an answer is valid: one interval, and a grace for another query.
func (r *alertsRule) patience() time.Duration {
	return r.interval + min(r.interval, longestGrace) + r.timeout
}
