// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/follow"
	"moult.dev/moult/test/operator"
)

// subject is a rollout to measure.
type subject struct {
	// name of the Plan.
	name     string
	strategy *v1alpha1.Strategy
	budgets  []*v1alpha1.NodeDisruptionBudget
	// limit is how many nodes the budgets allow to be unavailable at once; 0 is no limit.
	limit int
	// parts are how many nodes go before the next ones may.
	parts []int
	// alerts is who is asked for alerts, if anybody is.
	alerts *prometheus
}

func (s *subject) guarded() bool { return s.strategy != nil }

// plain is a Plan as system-upgrade-controller knows it.
func (b *bench) plain() subject { return subject{name: "plain", parts: []int{b.size}} }

// result is what a rollout has shown.
type result struct {
	subject  subject
	took     time.Duration
	requests requests
	// start is the operator's processor time before the Plan was made, and cpu that from then until its last request.
	start, cpu time.Duration
	peak       int64
	// most is how many nodes were unavailable at once.
	most     int
	problems []error
}

// rollout carries out a Plan over all nodes, with an operator of its own, and measures that.
func (b *bench) rollout(ctx context.Context, s subject) (_ *result, err error) {
	log, err := audit.Open(b.cluster.AuditLog())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// What operators did before is none of the rollout's.
	if err := log.Read(operator.UserAgent, func(*audit.Event) {}); err != nil {
		return nil, err
	}
	for _, budget := range s.budgets {
		if err := b.plans.Create(ctx, budget); err != nil {
			return nil, fmt.Errorf("making a budget, %w", err)
		}
	}
	p, err := b.startOperator(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	cpu, err := processorOf(b.program)
	if err != nil {
		return nil, err
	}
	nodes, err := b.watchNodes(ctx, s.limit)
	if err != nil {
		return nil, err
	}
	defer nodes.stop()
	r := &result{subject: s}
	plan := newPlan(s.name, b.concurrency, &metav1.LabelSelector{})
	plan.Spec.Strategy = s.strategy
	waitCtx, cancel := b.bounded(ctx)
	defer cancel()

	if r.start, err = cpu.used(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.plans.Create(ctx, plan); err != nil {
		return nil, err
	}
	if err := b.waitForPlan(waitCtx, plan, b.nodesInPlan(), p); err != nil {
		return nil, b.stuck(ctx, namespace, err)
	}
	r.took = time.Since(began)
	say("%s rollout: %d nodes in %.1f s", s.name, b.size, r.took.Seconds())

	// Its last Events may still be on their way.
	r.requests, err = readRequests(ctx, log, byOperator, began, func() error {
		used, err := cpu.used()
		r.cpu = used - r.start
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.peak, err = p.PeakRSS(); err != nil {
		return nil, err
	}
	if err := p.Stop(patience); err != nil {
		return nil, err
	}
	seen := nodes.stop()
	r.most = seen.most
	if r.problems, err = b.check(ctx, plan, &r.requests); err != nil {
		return nil, err
	}
	r.problems = append(r.problems, seen.verify(b.size)...)
	if s.guarded() {
		problems, err := b.checkGuards(ctx, plan, &s)
		if err != nil {
			return nil, err
		}
		r.problems = append(r.problems, problems...)
	}
	return r, nil
}

// bounded ends a context when the bare loop, or a rollout, has taken too long.
func (b *bench) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := b.patienceFor(b.size)
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it is not done after %s", timeout))
}

func (b *bench) nodesInPlan() int32 { return int32(b.size) }

// waitForPlan returns when the Plan says that it is complete, and leaves it in plan as it is then.
func (b *bench) waitForPlan(ctx context.Context, plan *upgradev1.Plan, nodes int32, p *operator.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failure := make(chan error, 1)
	changes := make(chan follow.Change, 1)
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return b.plans.Watch(ctx, &upgradev1.PlanList{}, client.InNamespace(plan.Namespace),
			client.MatchingFields{"metadata.name": plan.Name}, &client.ListOptions{Raw: &o})
	}
	go func() { failure <- follow.Changes(ctx, begin, plan.ResourceVersion, changes) }()
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()
	for {
		select {
		case change := <-changes:
			now, ok := change.Object.(*upgradev1.Plan)
			if !ok || change.Type == watch.Deleted {
				return fmt.Errorf("a watch of the Plan shows a %T, %s", change.Object, change.Type)
			}
			now.DeepCopyInto(plan)
			if is(plan, upgradev1.ConditionStalled) {
				return fmt.Errorf("it is stalled: %s", plan.Status.Condition(upgradev1.ConditionStalled).Message)
			}
			if complete(plan, nodes) {
				return nil
			}
		case err := <-failure:
			return err
		case <-p.Exited():
			return p.Died()
		case <-progress.C:
			if c := plan.Status.Condition(upgradev1.ConditionReady); c != nil {
				say("%s rollout: %s", plan.Name, c.Message)
			}
		}
	}
}

func complete(p *upgradev1.Plan, nodes int32) bool {
	counts := p.Status.Counts
	return p.Status.ObservedGeneration == p.Generation && is(p, upgradev1.ConditionComplete) && counts != nil && counts.Updated == nodes
}

func is(p *upgradev1.Plan, condition string) bool {
	c := p.Status.Condition(condition)
	return c != nil && c.Status == metav1.ConditionTrue
}

// stuck adds to an error what Jobs and pods wait for, and what the operator says. The context may have ended.
func (b *bench) stuck(ctx context.Context, namespace string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	text := ""
	var plans upgradev1.PlanList
	if listErr := b.plans.List(ctx, &plans); listErr == nil {
		for i := range plans.Items {
			p := &plans.Items[i]
			for _, c := range p.Status.Conditions {
				text += fmt.Sprintf("\n  Plan %s: %s=%s %s %s", p.Name, c.Type, c.Status, c.Reason, c.Message)
			}
			for _, u := range slices.Concat(p.Status.Updating, p.Status.Failed, p.Status.Waiting) {
				text += fmt.Sprintf("\n  Plan %s: node %s: %s %s %s since %s", p.Name, u.Node, u.Phase, u.Reason, u.Message, u.Since)
			}
		}
	}
	if pods, listErr := b.raw.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); listErr == nil {
		const most = 20
		unfinished := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil {
				continue
			}
			if unfinished++; unfinished > most {
				continue
			}
			text += fmt.Sprintf("\n  pod %s: %s on node %q, deleted %v", pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.DeletionTimestamp)
			for _, c := range pod.Status.Conditions {
				if c.Status == corev1.ConditionFalse && c.Message != "" {
					text += fmt.Sprintf(", not %s: %s", c.Type, c.Message)
				}
			}
		}
		text += fmt.Sprintf("\n  %d pods in namespace %s, %d of them not finished", len(pods.Items), namespace, unfinished)
	}
	if namespace != namespaceBare {
		text += "\n" + operator.Tail(b.operatorLog(), 20)
	}
	return fmt.Errorf("%w%s", err, text)
}
