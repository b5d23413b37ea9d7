// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/follow"
	"moult.dev/moult/test/operator"
)

// kind is what can be measured.
type kind struct {
	// ownNodes is true where setup makes the nodes.
	ownNodes bool
	// idle is the default of --idle.
	idle  time.Duration
	setup func(context.Context, *bench) (*setup, error)
}

var kinds = map[string]kind{
	"plan":        {setup: setupPlan},
	"daemonset":   {setup: setupDaemons, idle: time.Minute},
	"hostupdate":  {setup: setupHosts, idle: time.Minute, ownNodes: true},
	"replacement": {setup: setupReplacement, idle: time.Minute, ownNodes: true},
}

// setup is what is measured in one cluster.
type setup struct {
	// bare does the same work without an operator, and says how long that took. Nil: one of the subjects is the bare loop.
	bare     func(context.Context) (time.Duration, error)
	subjects []*subject
	stop     func()
}

// subject is one rollout.
type subject struct {
	name string
	// namespace has its Jobs or pods.
	namespace string
	// builtin is true if Kubernetes itself carries it out.
	builtin bool
	// prepare makes what is there before the operator starts. Nil: nothing.
	prepare func(context.Context) error
	// object is the rollout, and others are created before the operator starts.
	object client.Object
	others []client.Object
	// created are rollouts that a stage creates. They are deleted at the end.
	created []client.Object
	// meters are what is measured. The first is the program that carries out the rollout.
	meters  []*meter
	watches []watched
	stages  []*stage
	// progress says in a line how far it is.
	progress func() string
	// check checks how things are in the end.
	check func(context.Context, *result) error
}

// stage is a part of a measurement.
type stage struct {
	name string
	// units is how many nodes are updated, or pods are created.
	units int
	ideal time.Duration
	// compared is true if its time is compared with the bare loop.
	compared bool
	// before waits until the stage can start. Nil: it can at once.
	before func(context.Context) error
	start  func(context.Context) error
	// done reports whether the stage has ended. Nil: it ends after --idle, and nothing may be written.
	done func(context.Context, *phase) (bool, error)
	// check adds figures, and checks them. Nil: there is nothing to add.
	check func(*phase, *result)
}

// watched are all objects of a resource.
type watched struct {
	begin     follow.Begin
	list      client.ObjectList
	namespace string
	see       func(watch.EventType, any)
}

// run measures, and prints what it has found.
func run(ctx context.Context, o options, out io.Writer) ([]*report, error) {
	temporary, err := os.MkdirTemp("", "moult-scale-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	say("building the operator")
	program, err := operator.Build(ctx, temporary)
	if err != nil {
		return nil, err
	}
	var reports []*report
	var problems []error
	for i, size := range o.sizes {
		b := &bench{options: o, size: size, program: program}
		if o.dir != "" && len(o.sizes) > 1 {
			b.dir = filepath.Join(o.dir, fmt.Sprintf("%d-%d", i+1, size))
		}
		r, err := b.measure(ctx)
		if err != nil {
			problems = append(problems, fmt.Errorf("measuring %d nodes, %w", size, err))
			break
		}
		if err := r.print(out); err != nil {
			return nil, err
		}
		reports = append(reports, r)
		problems = append(problems, r.problems())
	}
	if len(reports) > 0 {
		problems = append(problems, printAll(out, reports, len(o.sizes) > 1))
	}
	return reports, errors.Join(problems...)
}

// measure measures in a cluster of its own.
func (b *bench) measure(ctx context.Context) (_ *report, err error) {
	kind := kinds[b.kind]
	o := cluster.Options{Dir: b.dir, Nodes: b.size, PodSeconds: b.podSeconds, AuditLog: true}
	if kind.ownNodes {
		o.Nodes = 0
	}
	if b.cluster, err = cluster.Start(ctx, o); err != nil {
		return nil, fmt.Errorf("starting a cluster, %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.connect(); err != nil {
		return nil, err
	}
	s, err := kind.setup(ctx, b)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	r := &report{Kind: b.kind, Nodes: b.size, Flags: b.given}
	if s.bare != nil && !b.noBare {
		took, err := s.bare(ctx)
		if err != nil {
			return nil, fmt.Errorf("running the bare loop, %w", err)
		}
		r.BareSeconds = inSeconds(took)
		say("bare loop: %d nodes in %.1f s", b.size, took.Seconds())
	}
	for i, subject := range s.subjects {
		result, err := b.measureSubject(ctx, subject)
		if err != nil {
			return nil, fmt.Errorf("measuring %s, %w", subject.name, err)
		}
		r.Subjects = append(r.Subjects, result)
		if i < len(s.subjects)-1 {
			say("clearing up after %s", subject.name)
			if err := b.clear(ctx, subject.namespace, slices.Concat(subject.others, subject.created, []client.Object{subject.object})...); err != nil {
				return nil, err
			}
		}
	}
	r.compare()
	return r, nil
}

// measurement is one subject while it is measured.
type measurement struct {
	*bench
	*subject
	result *result
	// exited is closed when the operator has ended, and watched gets why the watch has.
	exited  <-chan struct{}
	watched chan error
}

// measureSubject measures a subject, stage by stage.
func (b *bench) measureSubject(ctx context.Context, s *subject) (_ *result, err error) {
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return nil, err
		}
	}
	for _, object := range s.others {
		if err := b.create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating %s, %w", object.GetName(), err)
		}
	}
	m := &measurement{bench: b, subject: s, result: &result{Name: s.name, builtin: s.builtin}}
	defer s.closeMeters()
	for _, meter := range s.meters {
		if err := meter.open(b.cluster.AuditLog()); err != nil {
			return nil, err
		}
	}
	stop := func() error { return nil }
	if !s.builtin {
		process, err := b.startOperator(ctx)
		if err != nil {
			return nil, err
		}
		defer process.Kill()
		m.exited = process.Exited()
		stop = func() error { return process.Stop(patience) }
	}
	unwatch, err := m.startWatch(ctx)
	if err != nil {
		return nil, err
	}
	defer unwatch()
	// What the operator takes to start is the first stage. Its requests are counted when the next one begins.
	first := &phase{Name: "operator start", Units: b.size, Programs: make([]usage, len(m.meters))}
	for i, meter := range m.meters {
		if err := meter.find(b.cluster.Dir()); err != nil {
			return nil, err
		}
		first.Programs[i].Program = meter.name
		if i == 0 && !s.builtin {
			if first.Programs[i].CPUSeconds, err = meter.cpu(); err != nil {
				return nil, err
			}
		}
	}
	m.result.Stages = []*phase{first}
	for _, st := range s.stages {
		if err := m.stage(ctx, st); err != nil {
			return nil, b.stuck(ctx, s.object, s.progress(), fmt.Errorf("%s, %w", st.name, err))
		}
	}
	if m.result.PeakRSS, err = m.meters[0].peakRSS(); err != nil {
		return nil, err
	}
	if err := stop(); err != nil {
		return nil, err
	}
	unwatch()
	return m.result, s.check(ctx, m.result)
}

// startWatch passes on every change, in the order in which the API server has made them, until stop.
func (m *measurement) startWatch(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait() }
	m.watched = make(chan error, len(m.watches))
	for _, w := range m.watches {
		err := m.client.List(ctx, w.list, client.InNamespace(w.namespace))
		if err == nil {
			err = meta.EachListItem(w.list, func(o runtime.Object) error { w.see(watch.Added, o); return nil })
		}
		if err != nil {
			stop()
			return nil, err
		}
		changes := make(chan follow.Change, 1000)
		running.Go(func() { m.watched <- follow.Changes(ctx, w.begin, w.list.GetResourceVersion(), changes) })
		running.Go(func() {
			for {
				select {
				case change := <-changes:
					w.see(change.Type, change.Object)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return stop, nil
}

// stage measures one stage.
func (m *measurement) stage(ctx context.Context, st *stage) error {
	bound := m.patience(st.ideal) + m.idle
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it is not done after %s", bound))
	defer cancel()
	if st.before != nil {
		if err := st.before(ctx); err != nil {
			return err
		}
	}
	previous := m.result.Stages[len(m.result.Stages)-1]
	if st.done == nil {
		if err := m.settle(ctx, func() (bool, error) { return m.read(previous, previous, time.Time{}) }); err != nil {
			return err
		}
	} else if _, err := m.read(previous, previous, time.Time{}); err != nil {
		return err
	}
	p := &phase{Name: st.name, Units: st.units, Ideal: inSeconds(st.ideal), compared: st.compared, Programs: make([]usage, len(m.meters))}
	base := make([]float64, len(m.meters))
	for i, meter := range m.meters {
		p.Programs[i].Program = meter.name
		var err error
		if base[i], err = meter.cpu(); err != nil {
			return err
		}
	}
	latencies, err := m.apiLatencies(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	p.read = func() (bool, error) {
		came, err := m.read(p, previous, began)
		for i, meter := range m.meters {
			now, cpuErr := meter.cpu()
			if came || p.Seconds == 0 {
				p.Programs[i].CPUSeconds = now - base[i]
			}
			err = errors.Join(err, cpuErr)
		}
		return came, err
	}
	if st.start != nil {
		if err := st.start(ctx); err != nil {
			return err
		}
	}
	if err := m.until(ctx, st, p, began); err != nil {
		return err
	}
	took := time.Since(began)
	say("%s, %s: %.1f s", m.name, st.name, took.Seconds())
	_, err = p.read()
	p.Seconds = inSeconds(took)
	if err == nil && st.done != nil {
		err = m.settle(ctx, p.read)
	}
	if err != nil {
		return err
	}
	now, err := m.apiLatencies(ctx)
	if err != nil {
		return err
	}
	p.figure("API server, 99 % answered within ms", now.p99(latencies))
	m.result.Stages = append(m.result.Stages, p)
	m.judge(st, p)
	return nil
}

func (s *subject) closeMeters() {
	for _, meter := range s.meters {
		if meter.log != nil {
			_ = meter.log.Close() // It was only read.
		}
	}
}

// judge notes what went wrong in a stage.
func (m *measurement) judge(st *stage, p *phase) {
	for i := range p.Programs {
		u := &p.Programs[i]
		for _, fault := range u.faults() {
			m.result.wrong("%s: the API server refused requests of %s: %s", p.Name, u.Program, fault)
		}
		if st.done == nil && u.Writes > 0 && !m.builtin {
			m.result.wrong("%s: %d writes by %s when there was nothing to do", p.Name, u.Writes, u.Program)
		}
	}
	if st.check != nil {
		st.check(p, m.result)
	}
}

// read counts the requests since the last time: those received before began in previous.
func (m *measurement) read(p, previous *phase, began time.Time) (came bool, err error) {
	for i, meter := range m.meters {
		c, readErr := meter.read(&p.Programs[i], &previous.Programs[i], began)
		came, err = came || c, errors.Join(err, readErr)
	}
	return came, err
}

// until returns when a stage has ended.
func (m *measurement) until(ctx context.Context, st *stage, p *phase, began time.Time) error {
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()
	for {
		ended, err := st.done == nil && time.Since(began) >= m.idle, error(nil)
		if st.done != nil {
			ended, err = st.done(ctx, p)
		}
		if err = ignore(err, cluster.Passing); err != nil || ended {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-progress.C:
			say("%s, %s: %s", m.name, st.name, m.progress())
		case <-m.exited:
			return errors.New("the operator has ended")
		case err := <-m.watched:
			return fmt.Errorf("watching all changes, %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle returns when no more requests come. A status is written at most once a second.
func (m *measurement) settle(ctx context.Context, read func() (bool, error)) error {
	const quiet = 2 * time.Second
	for last := time.Now(); time.Since(last) <= quiet; {
		came, err := read()
		if err != nil {
			return err
		}
		if came {
			last = time.Now()
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the last request, %w", context.Cause(ctx))
		}
	}
	return nil
}
