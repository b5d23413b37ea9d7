// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
)

const (
	replaceRollout  = "machines"
	replaceMachines = 12
	replaceSurge    = 2
	// replaceAtOnce is how many machines may be in a turn, and replaceBudget how many nodes may be unavailable.
	replaceAtOnce = 3
	replaceBudget = 2
	replaceKills  = 50
	// From calmUntil to calmAgain kills, machines die, an autoscaler is at work, and answers are lost.
	calmUntil = 18
	calmAgain = 36
	// hurry is after how many kills the image changes whether or not all machines are of the last one.
	hurry = 7
	// replaceLimit bounds the whole test.
	replaceLimit = 20 * time.Minute
	// servers is how many pods serve on the machines, and serversAvailable how many of them must.
	servers          = 6
	serversAvailable = 4
)

// The operator is killed while the image changes again and again, between API server and cloud, at every step of replacing machines. No machine may
// be left behind, and none replaced twice.
func TestReplacementKilledAtAnyInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a cluster, and minutes")
	}
	t.Parallel()
	seed := seed(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), replaceLimit, fmt.Errorf("the test took longer than %s", replaceLimit))
	defer cancel()
	all := replaceFlavours()
	cloud := all[seed%uint64(len(all))]
	t.Logf("MOULT_SEED=%d repeats what was drawn, though not what happens in between; the cloud is %s", seed, cloud.name)
	c := newReplaceChaos(ctx, t, seed, cloud)
	defer c.end()
	defer func() {
		cancel()
		c.goingOn.Wait()
		c.world.Wait()
	}()
	began := time.Now()
	c.create(ctx)
	c.killAllOfThem(ctx)
	t.Logf("%d kills in %.1f s, until image %d: %v", replaceKills, time.Since(began).Seconds(), c.images(), c.tally)
	c.waitUntilReplaced(ctx)
	t.Logf("the last image, %d, was everywhere after %.1f s in all", c.images(), time.Since(began).Seconds())
	c.gate.wait()
	c.cloudGate.wait()
	c.stopOperator()
	c.look(ctx)
	c.waitUntilReplaced(ctx) // what came late is nothing
	c.checkAll(ctx)
	c.abandon(ctx)
	t.Logf("all was over after %.1f s", time.Since(began).Seconds())
}

// replaceChaos is the state of the test.
type replaceChaos struct {
	*pool
	cloudGate *gate
	// begun is closed once the operator has asked the cloud something.
	begun    <-chan struct{}
	misdeeds misdeeds
	goingOn  sync.WaitGroup

	mu sync.Mutex
	// disturbances are drawn from here.
	disturbances *rand.Rand
	// low and high are what the capacity may come to at the end: what the autoscaler and the deaths of machines make of it.
	low, high int
	// lost are machines that were taken away by others than the operator.
	lost map[string]bool
	// tooLate are machines whose Node joined when they were to go already.
	tooLate map[string]bool
	// calm is true while nothing is disturbed, and strict while nothing of that is left either.
	calm, strict bool
	// calms are the stretches of revisions in which it was strict. The last one has no end.
	calms [][2]uint64
	// published says of each image whether it was strict as long as that was the newest.
	published []bool
	// last is true when there is to be no further image.
	last bool
	// peak is the most that the capacity was above high.
	peak int

	problemsMu sync.Mutex
	problems   map[string]bool
}

func newReplaceChaos(ctx context.Context, t *testing.T, seed uint64, cloud *replaceCloud) *replaceChaos {
	t.Helper()
	c := &replaceChaos{
		pool:         &pool{cloud: cloud, set: cloud.set("chaos"), rollout: replaceRollout},
		disturbances: rand.New(rand.NewPCG(seed, 5)),
		low:          replaceMachines, high: replaceMachines, lost: map[string]bool{}, tooLate: map[string]bool{}, calm: true, strict: true, published: []bool{true}, problems: map[string]bool{},
	}
	c.pool.harness = newHarness(ctx, t, rand.New(rand.NewPCG(seed, 4)), cluster.Options{}, writesOfReplacements(&c.misdeeds))
	c.now = c.standing
	c.world = cloud.world(ctx, &chaosHosts{Hosts: clouds.SimulatedHosts(c.cluster), chaos: c})
	server := httptest.NewServer(cloud.handler(c.world))
	t.Cleanup(server.Close)
	c.cloudGate = newGate(t, &rest.Config{Host: server.URL}, writesToClouds(cloud.punctual))
	c.env = cloud.env(c.cloudGate.url)
	c.makeNamespace(ctx, namespace)
	if err := c.world.Create(ctx, cloud.scaleSet(c.pool, replaceMachines)); err != nil {
		t.Fatal(err)
	}
	c.startOperator()
	c.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	c.goingOn.Go(func() { c.measure(ctx) })
	return c
}

// problem notes what is wrong, each thing once.
func (c *replaceChaos) problem(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	c.problemsMu.Lock()
	defer c.problemsMu.Unlock()
	if !c.problems[what] {
		c.t.Errorf("%s %s", time.Now().Format("15:04:05.000"), what)
	}
	if len(c.problems) == 0 {
		c.t.Log(c.story(context.Background()))
	}
	c.problems[what] = true
}

// measure looks at the scale set all the time.
func (c *replaceChaos) measure(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		set, _ := c.world.Set(c.set)
		low, high, strict := c.low, c.high, c.strict
		c.peak = max(c.peak, set.Capacity-high)
		c.mu.Unlock()
		if set.Capacity > high+replaceSurge {
			c.problem("the scale set is to have %d machines, which is more than %d above %d", set.Capacity, replaceSurge, high)
		}
		if strict && set.Capacity < low {
			c.problem("the scale set is to have %d machines, and never fewer than %d", set.Capacity, low)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// create makes what is replaced, and what must not suffer from it, and asks for image after image.
func (c *replaceChaos) create(ctx context.Context) {
	c.t.Helper()
	labels := map[string]string{"app": "serves"}
	serves := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "serves", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](servers), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers:                    []corev1.Container{{Name: "sleep", Image: "example.com/sleep"}},
				},
			},
		},
	}
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "serves", Namespace: namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(serversAvailable)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	for _, o := range []client.Object{serves, pdb} {
		if err := c.client.Create(ctx, o); err != nil {
			c.t.Fatal(err)
		}
	}
	c.until(ctx, "the pods serve", func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(serves), serves)
		return serves.Status.AvailableReplicas == servers, err
	})
	c.journal.follow(ctx, &corev1.PodList{}, namespace, nil)
	budget := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: replaceRollout},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(replaceBudget))},
	}
	rollout := c.cloud.rollout(c.pool, replaceSurge, replaceAtOnce)
	for _, o := range []client.Object{budget, rollout} {
		c.createSoon(ctx, o)
	}
	c.journal.follow(ctx, &v1alpha1.NodeRolloutList{}, "", nil)
	c.calms = [][2]uint64{{c.revision(ctx)}}
	c.goingOn.Go(func() { c.publishAll(ctx) })
}

// revision is how far the API server has come.
func (c *replaceChaos) revision(ctx context.Context) (revision uint64) {
	c.t.Helper()
	var list corev1.NodeList
	if err := c.client.List(ctx, &list, client.Limit(1)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := fmt.Sscan(list.ResourceVersion, &revision); err != nil {
		c.t.Fatal(err)
	}
	return revision
}

// publishAll publishes the next image as soon as all machines are of the last one, until there is to be no further one.
func (c *replaceChaos) publishAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		c.mu.Lock()
		last := c.last
		c.mu.Unlock()
		if last {
			return
		}
		if c.replaced() == "" {
			c.publish()
		}
	}
}

// publish gives the scale set another image.
func (c *replaceChaos) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last {
		return
	}
	if err := c.cloud.setImage(c.pool, len(c.published)); err != nil {
		c.t.Errorf("publishing an image, %v", err)
	}
	c.published = append(c.published, c.strict)
}

func (c *replaceChaos) images() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.published) - 1
}

// killAllOfThem kills the operator again and again: in the middle of what it does with the API server, and with the cloud.
func (c *replaceChaos) killAllOfThem(ctx context.Context) {
	c.t.Helper()
	for n := range replaceKills {
		switch n {
		case calmUntil:
			c.disturb(ctx)
		case calmAgain:
			c.calmDown(ctx)
		}
		if n%hurry == hurry-1 {
			c.publish()
		}
		c.killOne(ctx, n+1)
	}
}

// killOne kills the operator while it speaks to the API server, or to the cloud, and starts it again. It lives for a while that counts from its first
// call of the cloud; of some it counts from the very beginning.
func (c *replaceChaos) killOne(ctx context.Context, n int) {
	c.t.Helper()
	g := c.gate
	if c.random.IntN(3) == 0 {
		g = c.cloudGate
	}
	if c.random.IntN(6) == 0 {
		c.begun = nil
	}
	c.killAt(ctx, n, g, c.begun)
	c.begun = c.cloudGate.next()
	c.startOperator()
}

// waitUntilReplaced returns when all machines are of the last image, and nothing is left to be done.
func (c *replaceChaos) waitUntilReplaced(ctx context.Context) {
	c.t.Helper()
	c.mu.Lock()
	c.last = true
	c.mu.Unlock()
	c.untilReplaced(ctx)
}

func (c *replaceChaos) untilReplaced(ctx context.Context) {
	c.t.Helper()
	missing := "?"
	now := c.now
	c.now = func() string { return now() + "; " + missing + "\n" + c.story(ctx) }
	defer func() { c.now = now }()
	c.until(ctx, "all machines are replaced", func() (bool, error) {
		missing = c.replaced()
		return missing == "", nil
	})
}
