// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"slices"
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
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// What machines are made of.
const (
	oldImage = "flatcar-stable-1.37.1-v1-0badc0de"
	newImage = "flatcar-stable-1.37.1-v2-0badcafe"
)

// runReplacements measures replacements over each number of nodes, and prints what it has found.
func runReplacements(ctx context.Context, o options, program string, out io.Writer) error {
	var done []*replacementMeasured
	var problems []error
	for i, size := range o.sizes {
		m, err := newBench(o, i, program).measureReplacement(ctx)
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
		problems = append(problems, printReplacementsJSON(out, done, len(o.sizes) > 1))
	}
	return errors.Join(problems...)
}

// replacementRun is one measurement.
type replacementRun struct {
	*bench
	double   double
	world    *clouds.World
	original []clouds.Machine
	process  *operator.Process
	cpu      processor
	log      *audit.Log
	tally    *machineTally
	rollout  *v1alpha1.NodeRollout
	measured *replacementMeasured
}

// measureReplacement measures in a cluster of its own.
func (b *bench) measureReplacement(ctx context.Context) (_ *replacementMeasured, err error) {
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: b.dir, AuditLog: true}); err != nil {
		return nil, fmt.Errorf("starting a cluster, %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.connect(); err != nil {
		return nil, err
	}
	b.concurrency = b.replacement.atOnce(b.size)
	r := &replacementRun{bench: b, double: doubles[b.replacement.cloud], tally: newMachineTally()}
	r.measured = &replacementMeasured{options: b.options, size: b.size}
	stop := r.startCloud(ctx)
	defer stop()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if r.log, err = audit.Open(b.cluster.AuditLog()); err != nil {
		return nil, err
	}
	defer r.log.Close()
	if r.process, err = b.startOperator(ctx); err != nil {
		return nil, err
	}
	defer r.process.Kill()
	if r.cpu, err = processorOf(b.program); err != nil {
		return nil, err
	}
	nodes, err := b.watchNodes(ctx, 0, r.tally.see)
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
	r.measured.problems = append(r.measured.problems, nodes.stop().problems...)
	return r.measured, r.check(ctx)
}

// startCloud plays the cloud, until stop.
func (r *replacementRun) startCloud(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.world = clouds.New(ctx, clouds.Options{
		Hosts: clouds.SimulatedHosts(r.cluster), CreateTime: r.replacement.machineTime(), DeleteTime: r.replacement.machineTime(),
		Identify: r.double.identify, ID: r.double.id,
	})
	server := httptest.NewServer(r.double.handler(r.world))
	r.env = r.double.env(server.URL)
	return func() {
		cancel()
		server.Close()
		r.world.Wait()
	}
}

// prepare makes the scale set, its nodes, and pods on them.
func (r *replacementRun) prepare(ctx context.Context) error {
	say("making a scale set of %d machines", r.size)
	err := r.world.Create(ctx, clouds.Set{Name: r.double.set, Image: oldImage, Capacity: r.size, Zones: r.double.zones})
	if err != nil {
		return err
	}
	r.original = r.world.Machines(r.double.set)
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, r.replacementPatience(r.size), true, func(ctx context.Context) (bool, error) {
		list, err := r.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		usable := func(n corev1.Node) bool { _, why := unavailable(&n); return why == "" && len(n.Spec.Taints) == 0 }
		return len(list.Items) == r.size && !slices.ContainsFunc(list.Items, func(n corev1.Node) bool { return !usable(n) }), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the nodes, %w", err)
	}
	if n := r.size * r.hosts.podsPerNode; n > 0 {
		const each = 20
		return r.deploy(ctx, (n+each-1)/each, each)
	}
	return nil
}

func (r *replacementRun) stages(ctx context.Context) (err error) {
	if r.measured.start, err = r.cpu.used(); err != nil {
		return err
	}
	err = r.stage(ctx, stageFind, func(ctx context.Context) error {
		r.rollout = r.newRollout()
		return r.create(ctx)
	}, func() bool { return r.complete(oldImage) })
	if err != nil {
		return err
	}
	err = r.stage(ctx, stageUpdate, func(context.Context) error {
		return r.world.Edit(r.double.set, func(s *clouds.Set) error { s.Image = newImage; return nil })
	}, func() bool { return r.complete(newImage) })
	if err != nil {
		return err
	}
	if r.idle > 0 {
		return r.idleStage(ctx)
	}
	return nil
}

// newRollout takes as many machines at once as there is surge.
func (r *replacementRun) newRollout() *v1alpha1.NodeRollout {
	surge := ptr.To(intstr.Parse(r.replacement.surge))
	return &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "machines"},
		Spec: v1alpha1.NodeRolloutSpec{
			Strategy: &v1alpha1.Strategy{MaxConcurrent: surge},
			Replacement: &v1alpha1.Replacement{
				Provider: r.double.provider, ScaleSets: []string{r.double.set}, Surge: surge,
				CheckPeriod: &metav1.Duration{Duration: r.hosts.often()},
			},
		},
	}
}

// create makes the object. The operator brings its definition along, which the API server may not serve at once.
func (r *replacementRun) create(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := r.plans.Create(ctx, r.rollout)
		return err == nil, ignore(ignore(err, apierrors.IsNotFound), meta.IsNoMatchError)
	})
}

// complete reports whether all machines are of an image, and the status says so, with nothing under way.
func (r *replacementRun) complete(image string) bool {
	is := &r.rollout.Status
	if is.ObservedGeneration != r.rollout.Generation || is.Counts == nil || int(is.Counts.Updated) != r.size || int(is.Counts.Total) != r.size ||
		len(is.Turns) > 0 || len(is.ScaleSets) != 1 || len(is.ScaleSets[0].Operations) > 0 || !meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady) {
		return false
	}
	machines := r.world.Machines(r.double.set)
	return len(machines) == r.size && !slices.ContainsFunc(machines, func(m clouds.Machine) bool { return clouds.ImageName(m.Image) != image })
}

// stage asks for something, and measures until it is done.
func (r *replacementRun) stage(ctx context.Context, name string, ask func(context.Context) error, done func() bool) error {
	used, err := r.cpu.used()
	if err != nil {
		return err
	}
	bound := r.replacementPatience(r.size)
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("%s is not done after %s", name, bound))
	defer cancel()
	p := &replacementPhase{name: name}
	calls, began := r.world.Calls(), time.Now()
	if err := ask(ctx); err != nil {
		return fmt.Errorf("asking for: %s, %w", name, err)
	}
	if err := r.until(ctx, name, done); err != nil {
		return err
	}
	p.took = time.Since(began)
	say("%s: %d nodes in %.1f s", name, r.size, p.took.Seconds())
	more := func() error {
		now, err := r.cpu.used()
		p.cpu = now - used
		return err
	}
	if err := more(); err != nil {
		return err
	}
	p.calls = minus(r.world.Calls(), calls)
	if p.requests, err = readRequests(ctx, r.log, byOperator, time.Time{}, more); err != nil {
		return err
	}
	r.keep(p)
	return nil
}

// minus is how often each call was made since there were those before.
func minus(now, before map[string]int) map[string]int {
	for name, n := range before {
		now[name] -= n
	}
	maps.DeleteFunc(now, func(_ string, n int) bool { return n == 0 })
	return now
}

// keep takes a stage into the result, and says what was refused in it.
func (r *replacementRun) keep(p *replacementPhase) {
	r.measured.phases = append(r.measured.phases, p)
	for fault, n := range p.requests.faults {
		r.measured.wrong("%s: the API server refused %s, %d times", p.name, fault, n)
	}
}

// until returns when it is done.
func (r *replacementRun) until(ctx context.Context, name string, done func() bool) error {
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()
	for {
		select {
		case <-r.process.Exited():
			return r.process.Died()
		case <-time.After(100 * time.Millisecond):
		case <-progress.C:
			say("%s: %s", name, r.tally.progress())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.plans.Get(ctx, client.ObjectKeyFromObject(r.rollout), r.rollout); err != nil {
			return err
		}
		if done() {
			return nil
		}
	}
}

// idleStage lets nothing happen, and counts what is asked all the same.
func (r *replacementRun) idleStage(ctx context.Context) error {
	p := &replacementPhase{name: stageIdle, requests: newRequests()}
	say("idle for %s", r.idle)
	used, err := r.cpu.used()
	if err != nil {
		return err
	}
	calls, began := r.world.Calls(), time.Now()
	select {
	case <-time.After(r.idle):
	case <-r.process.Exited():
		return r.process.Died()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now, err := r.cpu.used()
	if err != nil {
		return err
	}
	p.took, p.cpu, p.calls = time.Since(began), now-used, minus(r.world.Calls(), calls)
	if err := byOperator.read(r.log, func(e *audit.Event) { p.requests.add(e, time.Time{}) }); err != nil {
		return err
	}
	r.keep(p)
	if n := p.requests.writes(); n > 0 {
		r.measured.wrong("%d writes when there was nothing to do", n)
	}
	for _, name := range slices.Sorted(maps.Keys(p.calls)) {
		if changes[name] {
			r.measured.wrong("%d calls %s to the cloud when there was nothing to do", p.calls[name], name)
		}
	}
	if r.idle > 2*r.hosts.often() && len(p.calls) == 0 {
		r.measured.wrong("the cloud was not asked when idle")
	}
	return nil
}

// changes are the calls that change something in a cloud.
var changes = map[string]bool{
	"Update": true, "DeleteInstances": true, // Azure
	"LaunchInstances": true, "SetDesiredCapacity": true, "TerminateInstanceInAutoScalingGroup": true, "UpdateAutoScalingGroup": true, // AWS
	"SuspendProcesses": true, "ResumeProcesses": true, "CreateOrUpdateTags": true, "DeleteTags": true, "CreateLaunchTemplateVersion": true,
	"createInstances": true, "deleteInstances": true, "patch": true, // Google
}

// check looks whether all is left as it should be.
func (r *replacementRun) check(ctx context.Context) error {
	end := &scaleSetEnd{
		capacity: r.size, original: r.original, now: r.world.Machines(r.double.set), gone: r.world.Gone(r.double.set), journal: r.world.Journal(),
	}
	end.set, _ = r.world.Set(r.double.set)
	end.reckon()
	r.measured.most, r.measured.fewest, r.measured.claimed, r.measured.zones = end.most, end.fewest, r.tally.most, end.zones()
	r.measured.problems = append(r.measured.problems, end.verify(newImage, r.concurrency, r.unevenness())...)
	r.measured.problems = append(r.measured.problems, r.tally.verify(r.original, r.concurrency)...)

	list, err := r.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there := map[string]int{}
	for _, m := range end.now {
		there[m.NodeName]++
	}
	for i := range list.Items {
		n := &list.Items[i]
		if why := leftOn(n); why != "" {
			r.measured.wrong("node %s %s", n.Name, why)
		}
		there[n.Name]--
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		switch there[name] {
		case 1:
			r.measured.wrong("machine of node %s has none", name)
		case -1:
			r.measured.wrong("node %s is of no machine", name)
		}
	}
	return nil
}

// unevenness is how many machines more a zone may have than another when all is done. A cloud that chooses the zone of a new machine itself makes old
// and new ones together even, so that it depends on the zones of the last old ones, of which there are as many as the surge.
func (r *replacementRun) unevenness() int {
	if r.double.zonal {
		return 1
	}
	return max(2, r.concurrency/5)
}

// scaleDownDisabled keeps a node from the autoscaler.
const scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// leftOn says what a turn has left on a node.
func leftOn(n *corev1.Node) string {
	switch {
	case n.Annotations[v1alpha1.AnnotationClaims] != "":
		return "is still claimed: " + n.Annotations[v1alpha1.AnnotationClaims]
	case n.Spec.Unschedulable:
		return "is unschedulable"
	case n.Annotations[scaleDownDisabled] != "":
		return "is still kept from the autoscaler"
	case n.Labels[corev1.LabelNodeExcludeBalancers] != "":
		return "is still kept from load balancers"
	}
	return ""
}

// stuck adds to an error how things stand.
func (r *replacementRun) stuck(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	text := "\n  " + r.tally.progress()
	if r.rollout != nil {
		if getErr := r.plans.Get(ctx, client.ObjectKeyFromObject(r.rollout), r.rollout); getErr == nil {
			is := &r.rollout.Status
			text += fmt.Sprintf("\n  %+v\n  %+v", is.Counts, is.ScaleSets)
			for _, c := range is.Conditions {
				text += fmt.Sprintf("\n  %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
			}
			for i := range is.Turns {
				t := &is.Turns[i]
				text += fmt.Sprintf("\n  turn of %s: %s, machine %s by %s, operation %s: %s", t.Node, t.Phase, t.Machine, t.Replacement, t.Operation, t.Message)
			}
			for _, u := range slices.Concat(is.Failed, is.Waiting) {
				text += fmt.Sprintf("\n  node %s: %s %s %s since %s", u.Node, u.Phase, u.Reason, u.Message, u.Since)
			}
		}
	}
	return fmt.Errorf("%w%s\n%s", err, text, operator.Tail(r.operatorLog(), 20))
}
