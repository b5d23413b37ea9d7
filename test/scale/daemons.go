// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// The stages of a measurement.
const (
	stageCreate = "first rollout"
	stageUpdate = "update"
	stageChurn  = "churn"
	stageIdle   = "idle"
)

// settles bounds how long it takes until the pods of nodes that are gone are collected.
const settles = 3 * time.Minute

// runDaemons measures daemons over each number of nodes, and prints what it has found.
func runDaemons(ctx context.Context, o options, program string, out io.Writer) error {
	var done []*daemonsMeasured
	var problems []error
	for i, size := range o.sizes {
		m, err := newBench(o, i, program).measureDaemons(ctx)
		if err != nil {
			problems = append(problems, fmt.Errorf("measuring %d nodes, %w", size, err))
			break
		}
		if err := m.print(out); err != nil {
			return err
		}
		done = append(done, m)
		problems = append(problems, m.verify())
	}
	if len(done) > 0 {
		problems = append(problems, printDaemonsJSON(out, done, len(o.sizes) > 1))
	}
	return errors.Join(problems...)
}

// measureDaemons measures in a cluster of its own.
func (b *bench) measureDaemons(ctx context.Context) (m *daemonsMeasured, err error) {
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: b.dir, Nodes: b.size, AuditLog: true}); err != nil {
		return nil, fmt.Errorf("starting a cluster, %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.connect(); err != nil {
		return nil, err
	}
	subjects := []*daemonSubject{b.extended()}
	if !b.daemons.noBuiltin {
		subjects = append(subjects, b.builtin())
	}
	if b.daemons.builtinFirst {
		slices.Reverse(subjects)
	}
	m = &daemonsMeasured{options: b.options, size: b.size}
	for i, s := range subjects {
		if err := b.makeNamespace(ctx, s.namespace); err != nil {
			return nil, err
		}
		d, err := b.measureSubject(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("measuring the %s, %w", s.name, err)
		}
		m.daemons = append(m.daemons, d)
		if i < len(subjects)-1 {
			if err := b.clearDaemons(ctx, s); err != nil {
				return nil, fmt.Errorf("clearing up after the %s, %w", s.name, err)
			}
		}
	}
	return m, nil
}

// daemonRun is one subject while it is measured.
type daemonRun struct {
	*bench
	subject  *daemonSubject
	process  *operator.Process // nil for Kubernetes' own
	cpu      processor         // the operator's
	manager  processor         // the process with all of Kubernetes' own controllers
	log      *audit.Log
	pods     *podWatch
	measured *daemonMeasured
}

// measureSubject takes one subject through all stages.
func (b *bench) measureSubject(ctx context.Context, s *daemonSubject) (_ *daemonMeasured, err error) {
	r := &daemonRun{bench: b, subject: s, measured: &daemonMeasured{name: s.name, builtin: s.builtin()}}
	if r.log, err = audit.Open(b.cluster.AuditLog()); err != nil {
		return nil, err
	}
	defer r.log.Close()
	if r.manager, err = processorOfComponent("kube-controller-manager", b.cluster.Dir()); err != nil {
		return nil, err
	}
	r.cpu = r.manager
	if !s.builtin() {
		if r.process, err = b.startOperator(ctx); err != nil {
			return nil, err
		}
		defer r.process.Kill()
		if r.cpu, err = processorOf(b.program); err != nil {
			return nil, err
		}
	}
	if r.pods, err = b.watchPods(ctx, s.namespace); err != nil {
		return nil, err
	}
	defer r.pods.cancel()
	if err := r.stages(ctx); err != nil {
		return nil, r.stuck(ctx, err)
	}
	if r.measured.peak, err = r.cpu.peak(); err != nil {
		return nil, err
	}
	if r.process != nil {
		if err := r.process.Stop(patience); err != nil {
			return nil, err
		}
	}
	r.measured.problems = append(r.measured.problems, r.pods.stop()...)
	return r.measured, nil
}

func (r *daemonRun) stages(ctx context.Context) error {
	if r.process != nil {
		started, err := r.used()
		if err != nil {
			return err
		}
		r.measured.start = started.cpu
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	err = r.stage(ctx, stageCreate, len(nodes), func(ctx context.Context) error {
		r.pods.tally.expect(daemonImage(1), nodes)
		return r.create(ctx)
	})
	if err != nil {
		return err
	}
	err = r.stage(ctx, stageUpdate, len(nodes), func(ctx context.Context) error {
		r.pods.tally.expect(daemonImage(2), nodes)
		return r.updateDaemons(ctx, r.subject, daemonImage(2))
	})
	if err != nil {
		return err
	}
	if n := r.daemons.churned(len(nodes)); n > 0 {
		err = r.stage(ctx, stageChurn, n, func(ctx context.Context) error {
			names, err := r.churn(ctx, n)
			r.pods.tally.expect(daemonImage(2), names)
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.idle > 0 {
		return r.idleStage(ctx)
	}
	return nil
}

// create makes the object. The operator brings its definition along, which the API server may not serve at once.
func (r *daemonRun) create(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := r.plans.Create(ctx, r.subject.object(daemonImage(1)))
		return err == nil, ignore(ignore(err, apierrors.IsNotFound), meta.IsNoMatchError)
	})
}

// stage asks for something that takes so many pods, and measures until it is done and reported.
func (r *daemonRun) stage(ctx context.Context, name string, pods int, ask func(context.Context) error) error {
	p := &daemonPhase{name: name, pods: pods}
	// What was before is none of it.
	if err := r.subject.by.read(r.log, func(*audit.Event) {}); err != nil {
		return err
	}
	used, err := r.used()
	if err != nil {
		return err
	}
	waitCtx, cancel := context.WithTimeoutCause(ctx, r.daemonPatience(r.size), fmt.Errorf("the %s is not done after %s", name, r.daemonPatience(r.size)))
	defer cancel()
	began := time.Now()
	if err := ask(waitCtx); err != nil {
		return fmt.Errorf("asking for the %s, %w", name, err)
	}
	if err := r.untilDone(waitCtx, name); err != nil {
		return err
	}
	p.took, p.ready = time.Since(began), r.pods.tally.readyAt().Sub(began)
	p.counts = r.pods.tally.counts()
	say("%s: %s of %d pods in %.1f s, reported after %.1f s", r.subject.name, name, pods, p.ready.Seconds(), p.took.Seconds())
	p.requests, err = readRequests(ctx, r.log, r.subject.by, began, func() error {
		now, err := r.used()
		p.cpu, p.manager = now.cpu-used.cpu, now.manager-used.manager
		return err
	})
	if err != nil {
		return err
	}
	r.measured.phases = append(r.measured.phases, p)
	r.check(p)
	return nil
}

// usage is processor time.
type usage struct{ cpu, manager time.Duration }

func (r *daemonRun) used() (u usage, err error) {
	if u.cpu, err = r.cpu.used(); err != nil {
		return u, err
	}
	u.manager, err = r.manager.used()
	return u, err
}

// untilDone returns when all pods are as they should be, and the status says so.
func (r *daemonRun) untilDone(ctx context.Context, name string) error {
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()
	var exited <-chan struct{}
	if r.process != nil {
		exited = r.process.Exited()
	}
	object := r.subject.object("")
	for {
		nodes := r.size
		if r.pods.tally.counts().done == nodes {
			if err := r.plans.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			if r.subject.reports(object, nodes) {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-exited:
			return r.process.Died()
		case <-r.pods.done:
			return errors.Join(r.pods.tally.problems...)
		case <-progress.C:
			c := r.pods.tally.counts()
			say("%s: %s: %d of %d nodes done, %d have an available pod", r.subject.name, name, c.done, nodes, c.available)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// idleStage lets nothing happen, and counts what is asked all the same.
func (r *daemonRun) idleStage(ctx context.Context) error {
	// Pods of nodes that are gone stay until they are collected.
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settles, true, func(context.Context) (bool, error) {
		return r.pods.tally.all() == r.size, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until the pods of nodes that are gone are gone too, %w", err)
	}
	if _, err := readRequests(ctx, r.log, r.subject.by, time.Time{}, func() error { return nil }); err != nil {
		return err
	}
	p := &daemonPhase{name: stageIdle, took: r.idle, requests: newRequests()}
	say("%s: idle for %s", r.subject.name, r.idle)
	before, err := r.used()
	if err != nil {
		return err
	}
	select {
	case <-time.After(r.idle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := r.used()
	if err != nil {
		return err
	}
	p.cpu, p.manager = after.cpu-before.cpu, after.manager-before.manager
	if err := r.subject.by.read(r.log, func(e *audit.Event) { p.requests.add(e, time.Time{}) }); err != nil {
		return err
	}
	p.counts = r.pods.tally.counts()
	r.measured.phases = append(r.measured.phases, p)
	r.check(p)
	return nil
}

// check looks whether a stage went as it should.
func (r *daemonRun) check(p *daemonPhase) {
	wrong := func(format string, args ...any) {
		r.measured.problems = append(r.measured.problems, fmt.Errorf("%s: %w", p.name, fmt.Errorf(format, args...)))
	}
	for fault, n := range p.requests.faults {
		wrong("the API server refused %s, %d times", fault, n)
	}
	if r.subject.builtin() {
		return // It is as it is.
	}
	made := p.requests.made("pods")
	if made != p.pods {
		wrong("%d pods were made, and %d should be", made, p.pods)
	}
	if most := r.daemons.mayLose(r.size); p.name == stageUpdate && p.counts.mostLost > most {
		wrong("%d nodes were without an available pod at once, and %d may be", p.counts.mostLost, most)
	}
	if p.counts.mostCreating > parallel {
		wrong("%d pods were in creation at once, and %d may be", p.counts.mostCreating, parallel)
	}
	if n := p.requests.writes(); p.name == stageIdle && n > 0 {
		wrong("%d writes when there was nothing to do", n)
	}
}

// clearDaemons takes away what a subject has left.
func (b *bench) clearDaemons(ctx context.Context, s *daemonSubject) error {
	say("clearing up after the %s", s.name)
	ctx, cancel := context.WithTimeout(ctx, b.daemonPatience(b.size))
	defer cancel()
	if err := b.plans.Delete(ctx, s.object(""), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return err
	}
	if !s.builtin() {
		// The garbage collector takes half a minute to learn of kinds that are new.
		if err := b.plans.DeleteAllOf(ctx, &edsv1.ExtendedDaemonSetReplicaSet{}, client.InNamespace(s.namespace)); err != nil {
			return err
		}
	}
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		pods := b.raw.CoreV1().Pods(s.namespace)
		list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return err == nil, err
		}
		// Some are on nodes that are gone.
		return false, pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
	})
}

// stuck adds to an error how things stand.
func (r *daemonRun) stuck(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	c := r.pods.tally.counts()
	text := fmt.Sprintf("\n  %d nodes done, %d with an available pod", c.done, c.available)
	object := r.subject.object("")
	if getErr := r.plans.Get(ctx, client.ObjectKeyFromObject(object), object); getErr == nil {
		object.SetManagedFields(nil)
		text += fmt.Sprintf("\n  %+v", object)
	}
	if r.process != nil {
		text += "\n" + operator.Tail(r.operatorLog(), 20)
	}
	return fmt.Errorf("%w%s", err, text)
}
