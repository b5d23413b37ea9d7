// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
	"moult.dev/moult/test/cluster"
)

const (
	hostRollout  = "chaos"
	hostMachines = 3
	// hostsAtOnce is how many hosts may be in a turn.
	hostsAtOnce = 2
	hostKills   = 30
	// hostLimit bounds the whole test.
	hostLimit = 12 * time.Minute
	// hostReplicas is how many pods serve on the hosts, and hostAvailable how many of them must.
	hostReplicas  = 3
	hostAvailable = 1
)

// Operator and agents are killed while machines reboot into release after release. No machine may reboot more than once into any.
func TestHostUpdateKilledAtAnyInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes machines, and minutes")
	}
	if err := cluster.CanRunMachines(); err != nil && os.Getenv("MOULT_REQUIRE_MACHINES") != "1" {
		t.Skipf("no machines: %v", err)
	}
	seed := seed(t)
	t.Logf("MOULT_SEED=%d repeats what was drawn, though not what happens in between", seed)
	ctx, cancel := context.WithTimeoutCause(t.Context(), hostLimit, fmt.Errorf("the test took longer than %s", hostLimit))
	defer cancel()
	c := newHostChaos(ctx, t, rand.New(rand.NewPCG(seed, 3)))
	defer c.end()
	began := time.Now()
	c.create(ctx)
	c.killAllOfThem(ctx)
	t.Logf("%d kills in %.1f s, until release %d: %v", hostKills, time.Since(began).Seconds(), c.releases(), c.tally)
	c.waitUntilUpdated(ctx)
	t.Logf("the last release, %d, was everywhere after %.1f s in all", c.releases(), time.Since(began).Seconds())
	for _, a := range c.agents {
		a.gate.wait()
	}
	c.gate.wait()
	c.waitUntilUpdated(ctx) // what came late is nothing
	c.stopOperator()
	c.checkHosts(ctx)
}

// hostChaos is the state of the test.
type hostChaos struct {
	*harness
	agents []*chaosAgent

	mu sync.Mutex
	// versions of the releases so far. The first is what the hosts begin with.
	versions []string
	// last is true when there is to be no further one.
	last bool
}

// chaosAgent is the agent of one host, which runs as a service of the machine.
type chaosAgent struct {
	ctx     context.Context //nolint:containedctx // Kill has none.
	machine *cluster.Machine
	host    *bottlerocket.Host
	gate    *gate
	// first is the boot in which the host was made.
	first string
}

// agentPID is where an agent's process number is.
const agentPID = "/run/moult-agent.pid"

// Kill ends the agent. The machine starts it again.
func (a *chaosAgent) Kill() bool {
	script := "pid=$(cat " + agentPID + ") && kill -9 $pid && while test -e /proc/$pid; do :; done; rm -f " + agentPID
	_, err := a.machine.Exec(a.ctx, "/bin/sh", "-c", script)
	return err == nil
}

func newHostChaos(ctx context.Context, t *testing.T, random *rand.Rand) *hostChaos {
	t.Helper()
	c := &hostChaos{
		harness:  newHarness(ctx, t, random, cluster.Options{Machines: hostMachines}, writesOfHostUpdates),
		versions: []string{hostVersion(0), hostVersion(1)},
	}
	c.now = c.standing
	dir := t.TempDir()
	double, err := bottlerocket.Build(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "moult-agent")
	if err := image.GoBinary(ctx, ".", "moult.dev/moult/cmd/moult-agent", program, "-ldflags=-s -w"); err != nil {
		t.Fatal(err)
	}
	api, err := url.Parse(c.cluster.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.cluster.Machines() {
		a := &chaosAgent{ctx: ctx, machine: m, first: m.BootID(), gate: newGateAt(t, c.cluster.Config(), writesOfAgents, api.Hostname()+":0")}
		a.host, err = double.Install(ctx, m, bottlerocket.Options{
			Interface: v1alpha1.InterfaceUpdateAPI, Version: c.versions[0], Releases: bottlerocket.Releases(c.versions...),
		})
		if err != nil {
			t.Fatal(err)
		}
		// An agent that is killed in the middle of this comes to life while its host is still up.
		if err := a.host.SetFault(ctx, state.RebootSlow, "1s"); err != nil {
			t.Fatal(err)
		}
		if err := a.install(program); err != nil {
			t.Fatal(err)
		}
		c.agents = append(c.agents, a)
	}
	c.makeNamespace(ctx, namespace)
	c.startOperator()
	c.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	return c
}

func hostVersion(n int) string { return fmt.Sprintf("1.%d.0", 10+n) }

// install makes the agent a service of its machine.
func (a *chaosAgent) install(program string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	config, err := os.ReadFile(a.gate.kubeconfig)
	if err != nil {
		return err
	}
	const path, kubeconfig = "/usr/local/bin/moult-agent", "/etc/moult-agent.kubeconfig"
	service := fmt.Sprintf("#!/bin/sh\necho $$ >%s\nexec %s run --node-name=%s --kubeconfig=%s --check-interval=2s --reboot-grace=20s\n",
		agentPID, path, a.machine.Name(), kubeconfig)
	return errors.Join(
		a.machine.WriteFile(path, data, 0o755),
		a.machine.WriteFile(kubeconfig, config, 0o600),
		a.machine.WriteFile(cluster.ServiceDir+"/moult-agent", []byte(service), 0o755),
		a.machine.Reload(a.ctx),
	)
}

// create makes what is updated, and what must not suffer from it, and asks for release after release.
func (c *hostChaos) create(ctx context.Context) {
	c.t.Helper()
	labels := map[string]string{"app": "serves"}
	serves := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "serves", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](hostReplicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers: []corev1.Container{{
						Name: "sleep", Image: cluster.ShellImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
					}},
				},
			},
		},
	}
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "serves", Namespace: namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(hostAvailable)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	for _, o := range []client.Object{serves, pdb} {
		if err := c.client.Create(ctx, o); err != nil {
			c.t.Fatal(err)
		}
	}
	c.until(ctx, "the pods serve", func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(serves), serves)
		return serves.Status.AvailableReplicas == hostReplicas, err
	})
	c.journal.follow(ctx, &corev1.PodList{}, namespace, nil)
	for _, a := range c.agents {
		patch := []byte(`{"metadata":{"labels":{"bottlerocket.aws/updater-interface-version":"2.0.0"}}}`)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.machine.Name()}}
		if err := c.client.Patch(ctx, n, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			c.t.Fatal(err)
		}
	}
	r := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: hostRollout},
		Spec: v1alpha1.NodeRolloutSpec{
			Strategy:   &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(hostsAtOnce))},
			HostUpdate: &v1alpha1.HostUpdate{},
		},
	}
	c.createSoon(ctx, r)
	c.journal.follow(ctx, &v1alpha1.NodeRolloutList{}, "", nil)
	go c.release(ctx)
}

// release publishes the next release as soon as all hosts run the last one, until there is to be no further one.
func (c *hostChaos) release(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		err := c.publish(ctx)
		if err != nil && ctx.Err() == nil {
			c.t.Errorf("publishing a release, %v", err)
			return
		}
	}
}

func (c *hostChaos) publish(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last || !c.run(c.versions[len(c.versions)-1]) {
		return nil
	}
	c.versions = append(c.versions, hostVersion(len(c.versions)))
	for _, a := range c.agents {
		if err := a.host.Publish(ctx, bottlerocket.Releases(c.versions...)); err != nil {
			return err
		}
	}
	return nil
}

// run reports whether all hosts run a version, as their Nodes show it, and no turn is under way.
func (c *hostChaos) run(version string) bool {
	n := 0
	c.journal.see(func(latest map[string]client.Object) {
		for _, o := range latest {
			if node, ok := o.(*corev1.Node); ok && node.Annotations[v1alpha1.AnnotationClaims] == "" &&
				node.Status.NodeInfo.OSImage == fmt.Sprintf("Bottlerocket OS %s (%s)", version, bottlerocket.Variant) {
				n++
			}
		}
	})
	return n == hostMachines
}

func (c *hostChaos) releases() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions) - 1
}

// killAllOfThem kills the operator, or one of the agents, again and again.
func (c *hostChaos) killAllOfThem(ctx context.Context) {
	c.t.Helper()
	for n := range hostKills {
		// As often the operator as all agents.
		if who := c.random.IntN(2 * hostMachines); who < hostMachines {
			c.killAgent(ctx, n+1, c.agents[who])
			continue
		}
		c.kill(ctx, n+1)
		c.startOperator()
	}
}

// killAgent kills an agent at an instant that is drawn, and notes what that hit.
func (c *hostChaos) killAgent(ctx context.Context, n int, a *chaosAgent) {
	c.t.Helper()
	began := time.Now()
	at := a.gate.writes.draw(c.random)
	hit := a.gate.arm(at, a)
	wait := patience
	if at.write == anyInstant {
		wait = at.delay
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	what := at.String()
	if at.write == anyInstant {
		what += " an agent"
	}
	select {
	case <-hit:
	case <-timer.C:
		if !a.gate.disarm() {
			<-hit
			break
		}
		if at.write != anyInstant {
			what = "waiting, without " + at.write
		}
		if !a.Kill() {
			what += ", while its machine was away"
		}
	case <-c.process.Exited():
		c.t.Fatal(c.process.Died())
	case err := <-c.journal.failed:
		c.t.Fatal(err)
	case <-ctx.Done():
		c.t.Fatal(c.stuck(context.Cause(ctx)))
	}
	c.tally[what]++
	c.t.Logf("kill %2d after %4d ms, on %s, %s; %s", n, time.Since(began).Milliseconds(), a.machine.Name(), what, c.standing())
}

// standing says in short how things stand.
func (c *hostChaos) standing() (text string) {
	c.journal.see(func(latest map[string]client.Object) {
		for _, a := range c.agents {
			if n, ok := latest[fmt.Sprintf("%T %s", &corev1.Node{}, a.machine.Name())].(*corev1.Node); ok {
				text += fmt.Sprintf("%s: %s; ", n.Annotations[v1alpha1.AnnotationHostVersion], bottlerocket.Intent(n))
			}
		}
	})
	return text
}

// waitUntilUpdated returns when the last release is everywhere, and nothing is left to be done.
func (c *hostChaos) waitUntilUpdated(ctx context.Context) {
	c.t.Helper()
	c.mu.Lock()
	c.last = true
	version := c.versions[len(c.versions)-1]
	c.mu.Unlock()
	c.until(ctx, "the last release is everywhere", func() (bool, error) {
		var r v1alpha1.NodeRollout
		err := c.client.Get(ctx, client.ObjectKey{Name: hostRollout}, &r)
		s := r.Status
		return c.run(version) && c.settledHosts() && s.Revision == version && s.Counts != nil && s.Counts.Updated == hostMachines &&
			meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady), err
	})
}

// settledHosts reports whether every host has said its last word.
func (c *hostChaos) settledHosts() bool {
	settled := true
	c.journal.see(func(latest map[string]client.Object) {
		for _, o := range latest {
			if n, ok := o.(*corev1.Node); ok {
				settled = settled && bottlerocket.Intent(n) == bottlerocket.NotFound[len(bottlerocket.NotFound)-1]
			}
		}
	})
	return settled
}

// checkHosts looks at all that has happened, and at how things are at the end.
func (c *hostChaos) checkHosts(ctx context.Context) {
	c.t.Helper()
	now := c.objects(ctx, namespace, &corev1.PodList{})
	c.until(ctx, "the journal is up to date", func() (bool, error) { return c.journal.has(now) })
	states := map[string][]*corev1.Node{}
	nodes := map[string]*corev1.Node{}
	most := 0
	for _, e := range c.journal.inOrder() {
		n, ok := e.object.(*corev1.Node)
		if !ok {
			continue
		}
		states[n.Name] = append(states[n.Name], n)
		nodes[n.Name] = n
		claimed := 0
		for _, n := range nodes {
			held, err := v1alpha1.ParseClaims(n.Annotations)
			if err != nil || len(held) > 1 {
				c.t.Errorf("%s has the claims %q, %v", n.Name, n.Annotations[v1alpha1.AnnotationClaims], err)
			}
			if len(held) == 1 {
				claimed++
			}
		}
		most = max(most, claimed)
	}
	if most > hostsAtOnce {
		c.t.Errorf("%d hosts were in a turn at once, want at most %d", most, hostsAtOnce)
	}
	least := c.checkPods()
	c.t.Logf("at most %d hosts were in a turn at once, and at least %d pods served", most, least)
	for _, a := range c.agents {
		c.checkTrace(a.machine.Name(), bottlerocket.Trace(states[a.machine.Name()]))
		c.checkBoots(ctx, a)
		n := nodes[a.machine.Name()]
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] != "" || excluded {
			c.t.Errorf("%s is unschedulable %t, with the labels %v and annotations %v", n.Name, n.Spec.Unschedulable, n.Labels, n.Annotations)
		}
	}
}

// checkPods checks that there were always enough pods, and none on a host that was told to reboot. It returns how few there were.
func (c *hostChaos) checkPods() int {
	c.t.Helper()
	least := hostReplicas
	pods := map[string]*corev1.Pod{}
	for _, e := range c.journal.inOrder() {
		switch o := e.object.(type) {
		case *corev1.Pod:
			if pods[o.Name] = o; e.deleted {
				delete(pods, o.Name)
			}
			serving := 0
			for _, p := range pods {
				if bottlerocket.Serves(p) {
					serving++
				}
			}
			if len(pods) >= hostReplicas {
				least = min(least, serving)
			}
		case *corev1.Node:
			if !strings.HasPrefix(bottlerocket.Intent(o), "reboot-update,perform-update") {
				continue
			}
			for _, p := range pods {
				if p.Spec.NodeName == o.Name && !bottlerocket.Ended(p) {
					c.t.Errorf("at revision %d %s was told to reboot with %s on it", e.revision, o.Name, p.Name)
				}
			}
		}
	}
	if least < hostAvailable {
		c.t.Errorf("only %d pods served, want %d at least:\n%s", least, hostAvailable, c.story())
	}
	return least
}

// story is what happened to pods and nodes.
func (c *hostChaos) story() string {
	var text strings.Builder
	last := map[string]string{}
	for _, e := range c.journal.inOrder() {
		line := ""
		switch o := e.object.(type) {
		case *corev1.Node:
			line = bottlerocket.Intent(o)
			for _, condition := range o.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
					line += " not ready"
				}
			}
		case *corev1.Pod:
			line = fmt.Sprintf("%s on %s serves %t", o.Status.Phase, o.Spec.NodeName, bottlerocket.Serves(o))
			if o.DeletionTimestamp != nil {
				line += " ending"
			}
		}
		if e.deleted {
			line = "gone"
		}
		if key := fmt.Sprintf("%T %s", e.object, e.object.GetName()); line != "" && last[key] != line {
			last[key] = line
			fmt.Fprintf(&text, "%d %s: %s\n", e.revision, e.object.GetName(), line)
		}
	}
	return text.String()
}

// checkTrace checks that a host went through the protocol step by step, once for each release.
func (c *hostChaos) checkTrace(name string, trace []string) {
	c.t.Helper()
	after := map[string][]string{}
	follows := func(before string, next ...string) { after[before] = append(after[before], next...) }
	chain := func(steps ...string) {
		for i := range len(steps) - 1 {
			follows(steps[i], steps[i+1])
		}
	}
	chain(slices.Concat(bottlerocket.Labelled, bottlerocket.Found, bottlerocket.Updated, bottlerocket.NotFound)...)
	found, notFound := bottlerocket.Found[len(bottlerocket.Found)-1], bottlerocket.NotFound[len(bottlerocket.NotFound)-1]
	// The next release may be there before the host has said that there is none, and comes at any time after that.
	chain(bottlerocket.NotFound[1], found)
	chain(notFound, found)
	// A host that had said so before another one found that release is asked again.
	chain(notFound, bottlerocket.NotFound[0])
	turns := 0
	for i, intent := range trace {
		if intent == bottlerocket.Updated[0] {
			turns++
		}
		if i > 0 && !slices.Contains(after[trace[i-1]], intent) {
			c.t.Errorf("%s: after %q came %q, in\n%v", name, trace[i-1], intent, trace)
			return
		}
	}
	if turns != c.releases() {
		c.t.Errorf("%s had %d turns, want %d, one a release", name, turns, c.releases())
	}
}

// checkBoots checks that a machine has rebooted once for each release, and into that.
func (c *hostChaos) checkBoots(ctx context.Context, a *chaosAgent) {
	c.t.Helper()
	all, err := a.host.Boots(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	var versions []string
	ids := map[string]bool{}
	for _, b := range all {
		versions = append(versions, b.Version)
		ids[b.BootID] = true
	}
	if !slices.Equal(versions, c.versions) || len(ids) != len(all) || all[0].BootID != a.first {
		c.t.Errorf("%s has booted %v, want one boot into each of %v", a.machine.Name(), versions, c.versions)
	}
	orders, err := a.host.Orders(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%s has rebooted %d times, by %d orders", a.machine.Name(), len(all)-1, len(orders))
	if got, err := a.host.OSRelease(ctx, "VERSION_ID"); err != nil || got != c.versions[len(c.versions)-1] {
		c.t.Errorf("%s runs %s, %v", a.machine.Name(), got, err)
	}
}
