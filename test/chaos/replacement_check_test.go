// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/clouds"
)

// checkAll looks at all that has happened, and at how things are at the end.
func (c *replaceChaos) checkAll(ctx context.Context) {
	c.t.Helper()
	now := c.objects(ctx, namespace, &corev1.PodList{})
	c.until(ctx, "the journal is up to date", func() (bool, error) { return c.journal.has(now) })
	c.checkSet()
	r := &replaceReplay{replaceChaos: c, nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, late: c.lateClaims(), least: servers}
	for _, e := range c.journal.inOrder() {
		r.next(e)
	}
	if got := c.misdeeds.list(); len(got) > 0 {
		c.problem("the operator has sent %v", got)
	}
	c.t.Logf("at most %d nodes were claimed at once, %d machines were there above what is wanted, and at least %d pods served while nobody else changed anything",
		r.most, c.peak, r.least)
}

// checkSet checks that capacity, machines and Nodes are as they were, and that no place was given a new machine twice for one image.
func (c *replaceChaos) checkSet() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	set, _ := c.world.Set(c.set)
	machines := c.world.Machines(c.set)
	if set.Capacity != c.high || len(machines) != c.high {
		c.problem("the scale set has %d machines and a capacity of %d at the end, want %d", len(machines), set.Capacity, c.high)
	}
	if missing := c.untouched(machines); missing != "" {
		c.problem("at the end %s", missing)
	}
	made := map[string]int{}
	for _, m := range slices.Concat(machines, c.world.Gone(c.set)) {
		made[clouds.ImageName(m.Image)]++
	}
	most := 0
	for n, strict := range c.published {
		name := clouds.ImageName(c.cloud.image(n))
		if strict {
			most = max(most, made[name])
		}
		if strict && made[name] > max(c.high, replaceMachines) {
			c.problem("%d machines were made of image %s, for %d places", made[name], name, c.high)
		}
	}
	c.t.Logf("%d machines were made in all, at most %d of an image while nobody else changed anything", len(machines)+len(c.world.Gone(c.set)), most)
}

// replaceReplay goes through the journal and checks what has to hold after every single change.
type replaceReplay struct {
	*replaceChaos
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
	// late are the turns of claims that arrived when who had made them was dead.
	late map[string]bool

	most, least int
}

// lateClaims are the turns of claims that arrived late.
func (c *replaceChaos) lateClaims() map[string]bool {
	c.t.Helper()
	turns := map[string]bool{}
	for _, w := range c.gate.lateWrites() {
		if w.method != http.MethodPatch || !strings.HasPrefix(w.path, "/api/v1/nodes/") || w.code != http.StatusOK {
			continue
		}
		o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(w.object, nil, nil)
		n, ok := o.(*corev1.Node)
		if err != nil || !ok {
			c.t.Fatalf("reading what was written late, a %T, %v", o, err)
		}
		held, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, claim := range held {
			turns[claim.Turn] = true
		}
	}
	return turns
}

func (r *replaceReplay) next(e entry) {
	r.t.Helper()
	strict := r.strictAt(e.revision)
	switch o := e.object.(type) {
	case *corev1.Node:
		before := r.nodes[o.Name]
		if r.nodes[o.Name] = o; e.deleted {
			delete(r.nodes, o.Name)
			return
		}
		r.claimed(e)
		if strict && before != nil && !before.Spec.Unschedulable && o.Spec.Unschedulable {
			r.cordoned(e)
		}
	case *v1alpha1.NodeRollout:
		if strict && o.Status.Counts != nil && o.Status.Counts.Failed > 0 {
			r.problem("at revision %d turns have failed: %+v", e.revision, o.Status.Failed)
		}
	case *corev1.Pod:
		if r.pods[o.Name] = o; e.deleted {
			delete(r.pods, o.Name)
		}
		serving := 0
		for _, p := range r.pods {
			if bottlerocket.Serves(p) {
				serving++
			}
		}
		if strict && len(r.pods) >= servers {
			if r.least = min(r.least, serving); serving < serversAvailable {
				r.problem("at revision %d only %d pods served", e.revision, serving)
			}
		}
	}
}

// strictAt reports whether at this revision nobody but the operator changed anything.
func (r *replaceReplay) strictAt(revision uint64) bool {
	return slices.ContainsFunc(r.calms, func(calm [2]uint64) bool {
		end := calm[1]
		if end == 0 {
			end = math.MaxUint64
		}
		return calm[0] < revision && revision <= end
	})
}

// claimed checks how many nodes are claimed. One whose turn has failed serves as before, and is not counted: its claim keeps nobody off. Nor is one whose
// claim arrived when the next operator had chosen others, of another image. No operator can prevent that; but none may cordon that node.
func (r *replaceReplay) claimed(e entry) {
	r.t.Helper()
	claimed, which := 0, ""
	for _, n := range r.nodes {
		held, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil || len(held) > 1 {
			r.problem("at revision %d %s has the claims %q, %v", e.revision, n.Name, n.Annotations[v1alpha1.AnnotationClaims], err)
		}
		if len(held) == 1 && !held[0].Parked() && (!r.late[held[0].Turn] || n.Spec.Unschedulable) {
			claimed++
			which += fmt.Sprintf("; %s, ready %t, unschedulable %t, machine %s, since %s", n.Name, nodeReady(n), n.Spec.Unschedulable, held[0].Machine,
				held[0].Since.Format(time.TimeOnly))
		}
	}
	if r.most = max(r.most, claimed); claimed > min(replaceAtOnce, replaceBudget) {
		r.problem("at revision %d %d nodes are claimed, with a change of %s%s", e.revision, claimed, e.object.GetName(), which)
	}
}

// cordoned checks that what takes the place of a node was ready before the node was cordoned.
func (r *replaceReplay) cordoned(e entry) {
	r.t.Helper()
	usable := 0
	for _, n := range r.nodes {
		if nodeReady(n) && !n.Spec.Unschedulable {
			usable++
		}
	}
	if want := min(r.high, replaceMachines); usable < want {
		r.problem("at revision %d node %s was cordoned, and %d nodes can be used, want %d", e.revision, e.object.GetName(), usable, want)
	}
}

// abandon deletes the rollout in the middle of a turn, and kills the operator meanwhile. What was begun must be ended.
func (c *replaceChaos) abandon(ctx context.Context) {
	c.t.Helper()
	c.begun = c.cloudGate.next()
	c.startOperator()
	c.mu.Lock()
	c.last, c.strict = false, false // What was added for nothing is deleted again.
	c.mu.Unlock()
	c.publish()
	c.until(ctx, "turns have begun", func() (bool, error) {
		r := c.latestRollout()
		return r != nil && len(r.Status.Turns) > 0, nil
	})
	time.Sleep(time.Duration(c.random.IntN(3000)) * time.Millisecond)
	c.t.Logf("the rollout is deleted; %s", c.standing())
	r := c.latestRollout().DeepCopy()
	if err := c.client.Delete(ctx, r); err != nil {
		c.t.Fatal(err)
	}
	for n := range 2 {
		c.killOne(ctx, replaceKills+n+1)
	}
	c.until(ctx, "the rollout is gone", func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(r), r)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	c.gate.wait()
	c.cloudGate.wait()
	missing := ""
	now := c.now
	c.now = func() string { return now() + "; " + missing + "\n" + c.story(ctx) }
	c.until(ctx, "nothing is left of the rollout", func() (bool, error) {
		machines := c.world.Machines(c.set)
		missing = c.untouched(machines)
		if set, _ := c.world.Set(c.set); set.Capacity != c.high || len(machines) != c.high {
			missing = fmt.Sprintf("the capacity is %d, and there are %d machines", set.Capacity, len(machines))
		}
		return missing == "", nil
	})
	c.stopOperator()
}
