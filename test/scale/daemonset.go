// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const (
	extendedName = "ExtendedDaemonSet"
	builtinName  = "DaemonSet"
	manager      = "kube-controller-manager"
	// parallel is how many pods may be in creation at once: as many as Kubernetes' own controller creates in one go.
	parallel = 250
)

// daemonRun is the measurement of an ExtendedDaemonSet and a DaemonSet.
type daemonRun struct {
	*bench
	maxUnavailable string
	added          int
}

func setupDaemons(_ context.Context, b *bench) (*setup, error) {
	r := &daemonRun{bench: b, maxUnavailable: "10%"}
	if b.opened {
		r.maxUnavailable = "100%"
	}
	s := &setup{subjects: []*subject{r.extended()}, stop: func() {}}
	if !b.noBare {
		s.subjects = append(s.subjects, r.builtin())
	}
	return s, nil
}

// extended is the ExtendedDaemonSet, which the operator carries out.
func (r *daemonRun) extended() *subject {
	set := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "extended", Name: "daemon"},
		Spec: edsv1.ExtendedDaemonSetSpec{
			Template: r.template(),
			Strategy: edsv1.ExtendedDaemonSetSpecStrategy{
				RollingUpdate: edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
					MaxUnavailable:            ptr.To(intstr.FromString(r.maxUnavailable)),
					MaxParallelPodCreation:    ptr.To[int32](parallel),
					SlowStartAdditiveIncrease: ptr.To(intstr.FromInt32(parallel)),
				},
			},
		},
	}
	return r.subject(extendedName, set, func() bool {
		is, n := &set.Status, int32(r.size)
		return is.ObservedGeneration == set.Generation && is.State == edsv1.StateRunning && is.Desired == n && is.UpToDate == n && is.Available == n
	})
}

// builtin is Kubernetes' own DaemonSet, the bare loop.
func (r *daemonRun) builtin() *subject {
	template := r.template()
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "builtin", Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: template,
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString(r.maxUnavailable))},
			},
		},
	}
	return r.subject(builtinName, set, func() bool {
		is, n := &set.Status, int32(r.size)
		return is.ObservedGeneration == set.Generation && is.DesiredNumberScheduled == n && is.UpdatedNumberScheduled == n && is.NumberAvailable == n
	})
}

func (r *daemonRun) template() corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "daemon"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: daemonImage(1)}}},
	}
	if r.startSeconds > 0 {
		t.Annotations = map[string]string{"test.moult.dev/start-seconds": strconv.FormatFloat(r.startSeconds, 'f', -1, 64)}
	}
	return t
}

func daemonImage(version int) string { return fmt.Sprintf("example.com/daemon:v%d", version) }

// subject takes either object through all stages. reported says whether its status reports that all pods are as they should be.
func (r *daemonRun) subject(name string, set client.Object, reported func() bool) *subject {
	tally := newPodTally()
	ns := set.GetNamespace()
	var began time.Time
	pass := func(name string, units, most int, start func(context.Context) error) *stage {
		return &stage{
			name: name, units: units, compared: true,
			start: func(ctx context.Context) error { began = time.Now(); return start(ctx) },
			done: func(ctx context.Context, _ *phase) (bool, error) {
				if tally.counts().done < r.size {
					return false, nil
				}
				err := r.client.Get(ctx, client.ObjectKeyFromObject(set), set)
				return reported(), err
			},
			check: func(p *phase, result *result) {
				c := tally.counts()
				p.figure("seconds until the status says so", p.Seconds)
				p.Seconds = inSeconds(c.since.Sub(began))
				p.figure("nodes without a pod at once", float64(c.mostLost))
				p.figure("pods in creation at once", float64(c.mostCreating))
				if result.builtin {
					return
				}
				if made := p.Programs[0].created("pods"); made != units {
					result.wrong("%s: %d pods were created, and %d should be", name, made, units)
				}
				if c.mostLost > most {
					result.wrong("%s: %d nodes were without an available pod at once, and %d may be", name, c.mostLost, most)
				}
				if c.mostCreating > parallel {
					result.wrong("%s: %d pods were in creation at once, and %d may be", name, c.mostCreating, parallel)
				}
			},
		}
	}
	expect := func(ctx context.Context, version int) error {
		nodes, err := r.nodes(ctx)
		tally.expect(daemonImage(version), names(nodes))
		return err
	}
	most, churned := (r.size+9)/10, (r.size*r.churn+99)/100
	if r.opened {
		most = r.size
	}
	stages := []*stage{
		pass("first rollout", r.size, r.size, func(ctx context.Context) error {
			if err := expect(ctx, 1); err != nil {
				return err
			}
			return r.create(ctx, set)
		}),
		pass(stageUpdate, r.size, most, func(ctx context.Context) error {
			if err := expect(ctx, 2); err != nil {
				return err
			}
			patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, daemonImage(2))
			return r.client.Patch(ctx, set, client.RawPatch("application/merge-patch+json", patch))
		}),
	}
	if churned > 0 {
		stages = append(stages, pass("churn", churned, r.size, func(ctx context.Context) error {
			if err := r.replaceNodes(ctx, churned); err != nil {
				return err
			}
			return expect(ctx, 2)
		}))
	}
	if r.idle > 0 {
		stages = append(stages, &stage{name: stageIdle, units: r.size, before: func(ctx context.Context) error {
			// Pods of deleted nodes stay until they are collected.
			return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) { return tally.all() == r.size, nil })
		}})
	}
	// All of Kubernetes' own controllers run in one process.
	builtin := name == builtinName
	meters := []*meter{operatorMeter(), {name: manager, program: manager}}
	if builtin {
		meters = []*meter{{name: manager, program: manager, agent: "daemon-set-controller"}}
	}
	return &subject{
		name: name, namespace: ns, builtin: builtin, object: set, stages: stages,
		prepare: func(ctx context.Context) error { return r.makeNamespace(ctx, ns) },
		meters:  meters,
		watches: []watched{{begin: r.raw.CoreV1().Pods(ns).Watch, list: &corev1.PodList{}, namespace: ns, see: func(kind watch.EventType, o any) {
			if p, ok := o.(*corev1.Pod); ok {
				tally.see(kind, p)
			}
		}}},
		progress: func() string {
			c := tally.counts()
			return fmt.Sprintf("%d of %d nodes done, %d have an available pod", c.done, r.size, c.available)
		},
		check: func(_ context.Context, result *result) error {
			if !builtin {
				result.add(tally.problems...)
			}
			return nil
		},
	}
}

// replaceNodes deletes n nodes, spread evenly, and adds as many others at the same time.
func (r *daemonRun) replaceNodes(ctx context.Context, n int) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	var leaving []corev1.Node
	for i := range nodes {
		if i*n/len(nodes) != (i+1)*n/len(nodes) {
			leaving = append(leaving, nodes[i])
		}
	}
	first := r.added
	r.added += n
	_, err = each(ctx, 2*n, writers, func(ctx context.Context, i int) error {
		node := &leaving[i/2]
		if i%2 == 0 {
			return r.raw.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
		}
		return r.cluster.AddNode(ctx, cluster.NodeOptions{Name: fmt.Sprintf("new-%04d", first+i/2+1), Zone: node.Labels[corev1.LabelTopologyZone]})
	})
	return err
}

// podTally counts daemon pods, change by change.
type podTally struct {
	mu sync.Mutex
	// image is what the pods should have, and nodes are where they should be.
	image string
	nodes sets.Set[string]
	// pods are by name, and byNode by node and name.
	pods   map[string]daemonPod
	byNode map[string]map[string]daemonPod
	// available are the nodes with a ready pod, and done those whose only pod is ready and has the image.
	available, done sets.Set[string]
	creating        int
	most            podCounts
	problems        []error
}

type daemonPod struct {
	node, image    string
	ready, leaving bool
}

func (d daemonPod) creating() bool { return d != daemonPod{} && !d.ready && !d.leaving }

// podCounts are what was counted since expect. since is when all nodes became done.
type podCounts struct {
	done, available, mostLost, mostCreating int
	since                                   time.Time
}

func newPodTally() *podTally {
	return &podTally{pods: map[string]daemonPod{}, byNode: map[string]map[string]daemonPod{}}
}

// expect starts to count again. From now on there should be pods with this image on these nodes.
func (t *podTally) expect(image string, nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.image, t.nodes = image, sets.New(nodes...)
	t.available, t.done = sets.Set[string]{}, sets.Set[string]{}
	for node := range t.nodes {
		t.judge(node)
	}
	t.most = podCounts{}
	t.count()
}

// see counts a pod as it became.
func (t *podTally) see(kind watch.EventType, p *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, now := t.pods[p.Name], daemonPod{}
	if kind != watch.Deleted {
		now = daemonPod{node: p.Spec.NodeName, image: p.Spec.Containers[0].Image, leaving: p.DeletionTimestamp != nil}
		for i := range p.Status.Conditions {
			c := &p.Status.Conditions[i]
			now.ready = now.ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		t.pods[p.Name] = now
	} else {
		delete(t.pods, p.Name)
	}
	t.creating += change(was.creating(), now.creating())
	delete(t.byNode[was.node], p.Name)
	if kind != watch.Deleted {
		if t.byNode[now.node] == nil {
			t.byNode[now.node] = map[string]daemonPod{}
		}
		t.byNode[now.node][p.Name] = now
	}
	t.judge(was.node)
	t.judge(now.node)
	t.count()
}

// judge finds out whether a node has an available pod, and whether it is done.
func (t *podTally) judge(node string) {
	if !t.nodes.Has(node) {
		return
	}
	ready, staying, wanted := 0, 0, 0
	for _, p := range t.byNode[node] {
		if p.leaving {
			continue
		}
		staying++
		if p.ready {
			ready++
		}
		if p.ready && p.image == t.image {
			wanted++
		}
	}
	t.available.Delete(node)
	t.done.Delete(node)
	if ready > 0 {
		t.available.Insert(node)
	}
	if staying == 1 && wanted == 1 {
		t.done.Insert(node)
	}
	if staying > 1 {
		t.problems = append(t.problems, fmt.Errorf("node %s has %d pods", node, staying))
	}
}

func (t *podTally) count() {
	if t.done.Len() < t.nodes.Len() {
		t.most.since = time.Time{}
	} else if t.most.since.IsZero() {
		t.most.since = time.Now()
	}
	t.most.mostLost = max(t.most.mostLost, t.nodes.Len()-t.available.Len())
	t.most.mostCreating = max(t.most.mostCreating, t.creating)
}

// all is how many pods there are, on whatever nodes.
func (t *podTally) all() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pods)
}

func (t *podTally) counts() podCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.most
	c.done, c.available = t.done.Len(), t.available.Len()
	return c
}
