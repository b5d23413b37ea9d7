// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// The stages of a measurement, beside stageUpdate and stageIdle.
const (
	stageStart = "start"
	stageFind  = "finding out"
)

// runHosts measures host updates over each number of nodes, and prints what it has found.
func runHosts(ctx context.Context, o options, program string, out io.Writer) error {
	var done []*hostsMeasured
	var problems []error
	for i, size := range o.sizes {
		m, err := newBench(o, i, program).measureHosts(ctx)
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
		problems = append(problems, printHostsJSON(out, done, len(o.sizes) > 1))
	}
	return errors.Join(problems...)
}

// hostRun is one measurement.
type hostRun struct {
	*bench
	process  *operator.Process
	cpu      processor
	logs     struct{ operator, agents *audit.Log }
	fleet    *fleet
	tally    *hostTally
	rollout  *v1alpha1.NodeRollout
	measured *hostsMeasured
}

// measureHosts measures in a cluster of its own.
func (b *bench) measureHosts(ctx context.Context) (_ *hostsMeasured, err error) {
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: b.dir, Nodes: b.size, AuditLog: true}); err != nil {
		return nil, fmt.Errorf("starting a cluster, %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.connect(); err != nil {
		return nil, err
	}
	r := &hostRun{bench: b, tally: newHostTally(), measured: &hostsMeasured{options: b.options, size: b.size}}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer r.fleet.halt()
	if r.logs.operator, err = audit.Open(b.cluster.AuditLog()); err != nil {
		return nil, err
	}
	defer r.logs.operator.Close()
	if r.logs.agents, err = audit.Open(b.cluster.AuditLog()); err != nil {
		return nil, err
	}
	defer r.logs.agents.Close()
	if r.process, err = b.startOperator(ctx); err != nil {
		return nil, err
	}
	defer r.process.Kill()
	if r.cpu, err = processorOf(b.program); err != nil {
		return nil, err
	}
	nodes, err := b.watchNodes(ctx, b.concurrency, r.tally.see)
	if err != nil {
		return nil, err
	}
	defer nodes.stop()
	if err := r.stages(ctx); err != nil {
		return nil, r.stuck(ctx, err)
	}
	if r.measured.peak, err = r.process.PeakRSS(); err != nil {
		return nil, err
	}
	if err := r.process.Stop(patience); err != nil {
		return nil, err
	}
	r.fleet.halt()
	seen := nodes.stop()
	r.measured.most = seen.most
	r.measured.problems = append(r.measured.problems, seen.verify(b.size)...)
	return r.measured, r.checkNodes(ctx)
}

// prepare makes nodes ones of hosts, with pods on them, and an agent for each that has its own rights.
func (r *hostRun) prepare(ctx context.Context) error {
	say("granting agents the rights of the shipped manifests")
	if err := r.grantRights(ctx); err != nil {
		return err
	}
	nodes, err := r.label(ctx)
	if err != nil {
		return err
	}
	if n := r.size * r.hosts.podsPerNode; n > 0 {
		const each = 20
		if err := r.deploy(ctx, (n+each-1)/each, each); err != nil {
			return err
		}
	}
	tokens, err := r.tokens(ctx, nodes)
	if err != nil {
		return err
	}
	first, last := nodes[0].Name, nodes[len(nodes)-1].Name
	if err := r.untilBounded(ctx, tokens[first], first, last); err != nil {
		return err
	}
	r.fleet = r.newFleet(nodes, tokens)
	return nil
}

func (r *hostRun) stages(ctx context.Context) error {
	if err := r.startStage(ctx); err != nil {
		return err
	}
	err := r.stage(ctx, stageFind, traceFound, 0, func(ctx context.Context) error {
		r.rollout = r.newRollout()
		return r.create(ctx)
	}, func() bool { return true })
	if err != nil {
		return err
	}
	err = r.stage(ctx, stageUpdate, traceUpdate, 1, func(ctx context.Context) error {
		patch := []byte(`{"spec":{"hostUpdate":{"detectOnly":false}}}`)
		return r.plans.Patch(ctx, r.rollout, client.RawPatch("application/merge-patch+json", patch))
	}, r.complete)
	if err != nil {
		return err
	}
	if r.idle > 0 {
		return r.idleStage(ctx)
	}
	return nil
}

// newRollout shows what hosts have to offer, and touches none until it is told to.
func (r *hostRun) newRollout() *v1alpha1.NodeRollout {
	return &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "hosts"},
		Spec: v1alpha1.NodeRolloutSpec{
			Strategy:   &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt(r.concurrency))},
			HostUpdate: &v1alpha1.HostUpdate{DetectOnly: true},
		},
	}
}

// create makes the object. The operator brings its definition along, which the API server may not serve at once.
func (r *hostRun) create(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := r.plans.Create(ctx, r.rollout)
		return err == nil, ignore(ignore(err, apierrors.IsNotFound), meta.IsNoMatchError)
	})
}

// complete reports whether the status says that every node is updated.
func (r *hostRun) complete() bool {
	is := &r.rollout.Status
	return is.ObservedGeneration == r.rollout.Generation && is.Counts != nil && int(is.Counts.Updated) == r.size && int(is.Counts.Total) == r.size &&
		meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady)
}

// startStage switches the machines on, and returns when every agent watches.
func (r *hostRun) startStage(ctx context.Context) error {
	used, err := r.used()
	if err != nil {
		return err
	}
	r.measured.start = used.operator
	say("starting %d agents", r.size)
	began := time.Now()
	r.fleet.start(ctx)
	p := &hostPhase{name: stageStart}
	if err := r.untilWatched(ctx, p); err != nil {
		return err
	}
	p.took = time.Since(began)
	return r.finish(ctx, p, used)
}

// untilWatched returns when each agent has begun to watch, and counts its requests.
func (r *hostRun) untilWatched(ctx context.Context, p *hostPhase) error {
	p.agents = newRequests()
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, r.hostPatience(r.size), true, func(context.Context) (bool, error) {
		err := byAgents.read(r.logs.agents, func(e *audit.Event) { p.agents.add(e, time.Time{}) })
		return p.agents.watches >= r.size, errors.Join(err, r.broken())
	})
	if err != nil {
		return fmt.Errorf("waiting until all agents watch (%d do), %w", p.agents.watches, err)
	}
	return nil
}

// broken says what can't go on.
func (r *hostRun) broken() error {
	select {
	case err := <-r.fleet.failed:
		return err
	case <-r.process.Exited():
		return r.process.Died()
	default:
		return nil
	}
}

// stage asks for something, and measures until all Nodes stand as at the trace's end and the status says what it should.
func (r *hostRun) stage(ctx context.Context, name string, trace []string, boots int, ask func(context.Context) error, reported func() bool) error {
	used, err := r.used()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.hostPatience(r.size), fmt.Errorf("%s is not done after %s", name, r.hostPatience(r.size)))
	defer cancel()
	r.tally.begin()
	before := r.fleet.counted()
	p := &hostPhase{name: name}
	began := time.Now()
	if err := ask(ctx); err != nil {
		return fmt.Errorf("asking for: %s, %w", name, err)
	}
	if err := r.untilDone(ctx, name, trace[len(trace)-1], reported); err != nil {
		return err
	}
	p.took = time.Since(began)
	say("%s: %d nodes in %.1f s", name, r.size, p.took.Seconds())
	if err := r.finish(ctx, p, used); err != nil {
		return err
	}
	r.measured.problems = append(r.measured.problems, r.tally.verify(trace, boots)...)
	for i, m := range r.fleet.machines {
		now := m.host.counted()
		if orders := now.orders - before[i].orders; orders != boots {
			r.measured.wrong("%s: host of %s was told to reboot %d times, and should be %d times", name, m.node, orders, boots)
		}
		if n := now.boots - before[i].boots; n != boots {
			r.measured.wrong("%s: host of %s has booted %d times, and should have %d times", name, m.node, n, boots)
		}
	}
	return nil
}

// untilDone returns when all Nodes stand so, and the status says what it should.
func (r *hostRun) untilDone(ctx context.Context, name, standing string, reported func() bool) error {
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()
	for {
		if err := r.broken(); err != nil {
			return err
		}
		if r.tally.at(standing) == r.size {
			if err := r.plans.Get(ctx, client.ObjectKeyFromObject(r.rollout), r.rollout); err != nil {
				return err
			}
			if reported() {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-progress.C:
			say("%s: %s", name, r.tally.progress())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish counts what a stage took, until no more requests come.
func (r *hostRun) finish(ctx context.Context, p *hostPhase, before hostUsage) (err error) {
	more := func() error {
		now, err := r.used()
		p.cpu = now.minus(before)
		return err
	}
	if err := more(); err != nil {
		return err
	}
	counted := p.agents
	if p.operator, err = readRequests(ctx, r.logs.operator, byOperator, time.Time{}, more); err != nil {
		return err
	}
	if p.agents, err = readRequests(ctx, r.logs.agents, byAgents, time.Time{}, more); err != nil {
		return err
	}
	p.agents.plus(&counted)
	r.keep(p)
	return nil
}

// keep takes a stage into the result, and says what was refused in it.
func (r *hostRun) keep(p *hostPhase) {
	r.measured.phases = append(r.measured.phases, p)
	for who, requests := range map[string]*requests{"operator": &p.operator, "agents": &p.agents} {
		for fault, n := range requests.faults {
			r.measured.wrong("%s, %s: the API server refused %s, %d times", p.name, who, fault, n)
		}
	}
}

// idleStage lets nothing happen, and counts what is asked all the same. It begins the agents anew, so that they check more often,
// and waits until each has checked once.
func (r *hostRun) idleStage(ctx context.Context) error {
	interval := r.hosts.often()
	used, err := r.used()
	if err != nil {
		return err
	}
	say("starting all agents anew, to check every %s", interval)
	before := r.fleet.counted()
	again := &hostPhase{name: stageAgain}
	began := time.Now()
	if err := r.fleet.again(ctx, interval); err != nil {
		return err
	}
	if err := r.untilWatched(ctx, again); err != nil {
		return err
	}
	again.took = time.Since(began)
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settles, true, func(context.Context) (bool, error) {
		_, least := r.fleet.checks(before)
		return least > 0, r.broken()
	})
	if err != nil {
		return fmt.Errorf("waiting until every agent has checked, %w", err)
	}
	if err := r.finish(ctx, again, used); err != nil {
		return err
	}

	p := &hostPhase{name: stageIdle, operator: newRequests(), agents: newRequests()}
	say("idle for %s", r.idle)
	if used, err = r.used(); err != nil {
		return err
	}
	before, began = r.fleet.counted(), time.Now()
	select {
	case <-time.After(r.idle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now, err := r.used()
	if err != nil {
		return err
	}
	p.took, p.cpu = time.Since(began), now.minus(used)
	p.checks, _ = r.fleet.checks(before)
	err = errors.Join(
		byOperator.read(r.logs.operator, func(e *audit.Event) { p.operator.add(e, time.Time{}) }),
		byAgents.read(r.logs.agents, func(e *audit.Event) { p.agents.add(e, time.Time{}) }),
	)
	if err != nil {
		return err
	}
	r.keep(p)
	if n := p.operator.writes() + p.agents.writes(); n > 0 {
		r.measured.wrong("%d writes when there was nothing to do", n)
	}
	if r.idle > 2*interval && p.checks < r.size {
		r.measured.wrong("only %d checks of %d agents when idle", p.checks, r.size)
	}
	return r.broken()
}

// checkNodes looks whether every node was left as it should be.
func (r *hostRun) checkNodes(ctx context.Context) error {
	list, err := r.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if n := len(list.Items); n != r.size {
		r.measured.wrong("there are %d nodes", n)
	}
	hosts := map[string]*playedHost{}
	for _, m := range r.fleet.machines {
		hosts[m.node] = m.host
	}
	for i := range list.Items {
		n := &list.Items[i]
		if why := notLeft(n, hosts[n.Name]); why != "" {
			r.measured.wrong("node %s %s", n.Name, why)
		}
	}
	return nil
}

// notLeft says what is wrong with a node after its update.
func notLeft(n *corev1.Node, h *playedHost) string {
	running, _ := h.Version(context.Background())
	boot, _ := h.BootID()
	switch {
	case running != newRelease:
		return "has a host that runs " + running
	case n.Annotations[v1alpha1.AnnotationHostVersion] != running:
		return "says that its host runs " + n.Annotations[v1alpha1.AnnotationHostVersion]
	case n.Status.NodeInfo.BootID != boot || n.Status.NodeInfo.OSImage != osImage(running):
		return "tells of boot " + n.Status.NodeInfo.BootID + " and of " + n.Status.NodeInfo.OSImage
	case n.Annotations[v1alpha1.AnnotationClaims] != "":
		return "is still claimed: " + n.Annotations[v1alpha1.AnnotationClaims]
	case n.Spec.Unschedulable:
		return "is unschedulable"
	case n.Labels[hostProtocol.Update] != v1alpha1.HostUpdateFalse:
		return "has " + n.Labels[hostProtocol.Update] + " in its label for updates"
	case n.Annotations[v1alpha1.AnnotationHostError] != "":
		return "has an error: " + n.Annotations[v1alpha1.AnnotationHostError]
	}
	return ""
}

// hostUsage is processor time: the operator's, and that of this process, which plays the agents.
type hostUsage struct{ operator, agents time.Duration }

func (u hostUsage) minus(o hostUsage) hostUsage {
	return hostUsage{u.operator - o.operator, u.agents - o.agents}
}

func (r *hostRun) used() (u hostUsage, err error) {
	if u.operator, err = r.cpu.used(); err != nil {
		return u, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, fmt.Errorf("reading how much processor time the agents have used, %w", err)
	}
	u.agents = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return u, nil
}

// stuck adds to an error how things stand.
func (r *hostRun) stuck(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	text := "\n  " + r.tally.progress()
	if r.rollout != nil {
		if getErr := r.plans.Get(ctx, client.ObjectKeyFromObject(r.rollout), r.rollout); getErr == nil {
			is := &r.rollout.Status
			text += fmt.Sprintf("\n  %+v", is.Counts)
			for _, c := range is.Conditions {
				text += fmt.Sprintf("\n  %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
			}
			for _, u := range slices.Concat(is.Updating, is.Failed, is.Waiting) {
				text += fmt.Sprintf("\n  node %s: %s %s %s since %s", u.Node, u.Phase, u.Reason, u.Message, u.Since)
			}
		}
	}
	if nodes, listErr := r.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); listErr == nil {
		for i := range nodes.Items {
			if said := nodes.Items[i].Annotations[v1alpha1.AnnotationHostError]; said != "" {
				text += fmt.Sprintf("\n  the agent of %s says: %s", nodes.Items[i].Name, said)
			}
		}
	}
	return fmt.Errorf("%w%s\n%s", err, text, operator.Tail(r.operatorLog(), 20))
}
