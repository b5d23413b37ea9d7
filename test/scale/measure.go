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
	// bare does the same work without an operator, and says how long that took, ideally as long as ideal. Nil: one of the subjects is the bare loop.
	bare     func(context.Context) (time.Duration, error)
	ideal    time.Duration
	subjects []*subject
}

// subject is one rollout.
type subject struct {
	name string
	// namespace has its Jobs or pods.
	namespace string
	// builtin is true if Kubernetes itself carries it out. Otherwise the peer does, or the operator where it is nil.
	builtin bool
	peer    *peer
	// prepare makes what is there before the operator starts. Nil: nothing.
	prepare func(context.Context) error
	// objects are the rollout, or several, which a stage creates, and others are created before the operator starts.
	objects, others []client.Object
	// meters are what is measured. The first is the program that carries out the rollout.
	meters  []*meter
	watches []watched
	stages  []*stage
	// settled reports whether the idle stage can begin; nil: at once. checkIdle checks that stage; nil: no check.
	settled   func() bool
	checkIdle func(*phase, *result)
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
	start    func(context.Context) error
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
	peers, err := buildPeers(ctx, o)
	if err != nil {
		return nil, err
	}
	var reports []*report
	var problems []error
	for i, size := range o.sizes {
		b := &bench{options: o, size: size, program: program, peers: peers}
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
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, stop := range b.stops {
			stop()
		}
	}()
	s, err := kind.setup(ctx, b)
	if err != nil {
		return nil, err
	}
	r := &report{Kind: b.kind, Nodes: b.size, Flags: b.given}
	if s.bare != nil && !b.noBare {
		bareCtx, cancel := context.WithTimeout(ctx, b.patience(s.ideal))
		took, err := s.bare(bareCtx)
		cancel()
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
			if err := b.clear(ctx, subject.namespace, slices.Concat(subject.others, subject.objects)...); err != nil {
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
	// process carries it out; nil where Kubernetes itself does.
	process *operator.Process
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
	m := &measurement{bench: b, subject: s, result: &result{Name: s.name, builtin: s.builtin, ours: !s.builtin && s.peer == nil}}
	for _, meter := range s.meters {
		if err := meter.open(ctx, b.cluster); err != nil {
			return nil, err
		}
	}
	program := b.moult()
	if s.peer != nil {
		program = s.peer.program
		if err := b.install(ctx, s.peer); err != nil {
			return nil, err
		}
	}
	stages := s.stages
	if b.idle > 0 {
		stages = append(stages, &stage{name: stageIdle, units: b.size, check: s.checkIdle})
	}
	if !s.builtin {
		stages = append([]*stage{m.starting(program)}, stages...)
		defer func() {
			if m.process != nil {
				m.process.Kill()
			}
		}()
	}
	watching, unwatch, err := b.follow(ctx, m.watches...)
	if err != nil {
		return nil, err
	}
	defer unwatch()
	for _, st := range stages {
		if err := m.stage(watching, st); err != nil {
			err = errors.Join(fmt.Errorf("%s, %w", st.name, err), context.Cause(watching))
			return nil, b.stuck(ctx, s.objects[0], s.progress(), b.log(program), err)
		}
	}
	if m.result.PeakRSS, err = m.meters[0].peakRSS(); err != nil {
		return nil, err
	}
	if m.process != nil {
		if err := m.process.Stop(patience); err != nil {
			return nil, err
		}
	}
	unwatch()
	return m.result, s.check(ctx, m.result)
}

// starting is the stage in which a program fills its caches.
func (m *measurement) starting(p program) *stage {
	return &stage{
		name: "operator start", units: m.size,
		start: func(context.Context) (err error) {
			if m.process, err = m.bench.start(p); err == nil {
				m.meters[0].pid = m.process.PID()
			}
			return err
		},
		done: func(_ context.Context, p *phase) (bool, error) {
			_, err := p.read()
			return p.Programs[0].Watches > 0, err
		},
	}
}

// follow calls see for what there is and for every change, in the order in which the API server has made them, until stop.
// The context that it returns ends when a change is lost.
func (b *bench) follow(ctx context.Context, watches ...watched) (_ context.Context, stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	stop = func() { cancel(nil); running.Wait() }
	for _, w := range watches {
		err := b.client.List(ctx, w.list, client.InNamespace(w.namespace))
		if err == nil {
			err = meta.EachListItem(w.list, func(o runtime.Object) error { w.see(watch.Added, o); return nil })
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
		changes := make(chan follow.Change, 1000)
		running.Go(func() {
			cancel(fmt.Errorf("watching all changes, %w", follow.Changes(ctx, w.begin, w.list.GetResourceVersion(), changes)))
		})
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
	return ctx, stop, nil
}

// stage measures one stage.
func (m *measurement) stage(ctx context.Context, st *stage) error {
	bound := m.patience(st.ideal) + m.idle
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it is not done after %s", bound))
	defer cancel()
	p := &phase{Name: st.name, Units: st.units, Ideal: inSeconds(st.ideal), compared: st.compared, Programs: make([]usage, len(m.meters))}
	for i, meter := range m.meters {
		p.Programs[i].Program = meter.name
	}
	previous := p
	if n := len(m.result.Stages); n > 0 {
		previous = m.result.Stages[n-1]
	}
	err := m.settle(ctx, func() (bool, error) {
		came, err := m.read(previous, previous, time.Time{})
		return came || st.done == nil && m.settled != nil && !m.settled(), err
	})
	if err != nil {
		return err
	}
	for _, meter := range m.meters {
		if meter.base, err = meter.cpu(); err != nil {
			return err
		}
	}
	began := time.Now()
	p.read = func() (bool, error) {
		came, err := m.read(p, previous, began)
		for i, meter := range m.meters {
			now, cpuErr := meter.cpu()
			if came || p.Seconds == 0 {
				p.Programs[i].CPUSeconds = now - meter.base
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
	m.result.Stages = append(m.result.Stages, p)
	m.judge(st, p)
	return nil
}

// judge notes what went wrong in a stage.
func (m *measurement) judge(st *stage, p *phase) {
	for i := range p.Programs {
		u := &p.Programs[i]
		p.spread("API server to "+u.Program, u.answered, 99)
		for _, fault := range u.faults() {
			m.result.wrong("%s: the API server refused requests of %s: %s", p.Name, u.Program, fault)
		}
		if st.done == nil && u.Writes > 0 {
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
	var exited <-chan struct{}
	if m.process != nil {
		exited = m.process.Exited()
	}
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
		case <-exited:
			return errors.New("the program has ended")
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
