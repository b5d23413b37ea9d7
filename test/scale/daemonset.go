// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	s := &setup{subjects: []*subject{r.extended(extendedName, nil)}}
	if !b.noBare { // The first subject of a new cluster is slower, whatever it is.
		s.subjects = append([]*subject{r.daemonSet("warm-up", "apps/v1", nil)}, append(s.subjects, r.daemonSet(builtinName, "apps/v1", nil))...)
	}
	for _, p := range b.peers {
		if p.flag == "eds" {
			s.subjects = append(s.subjects, r.extended(p.name, p))
			continue
		}
		advanced := r.daemonSet(p.name, "apps.kruise.io/v1beta1", p)
		// It waits for them, and fills them with webhooks that these have. Every pod of the cluster would go through them.
		advanced.others = []client.Object{
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"}},
		}
		s.subjects = append(s.subjects, advanced)
	}
	return s, nil
}

// extended is an ExtendedDaemonSet, which the operator or a peer carries out.
func (r *daemonRun) extended(name string, p *peer) *subject {
	set := &edsv1.ExtendedDaemonSet{
		Spec: edsv1.ExtendedDaemonSetSpec{
			Template: r.template(),
			Strategy: edsv1.ExtendedDaemonSetSpecStrategy{
				RollingUpdate: edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
					MaxUnavailable:            ptr.To(intstr.FromString(r.maxUnavailable)),
					MaxParallelPodCreation:    ptr.To(int32(r.size)), // A DaemonSet has no limit.
					SlowStartAdditiveIncrease: ptr.To(intstr.FromString("100%")),
				},
			},
		},
	}
	return r.subject(name, set, p, func() (bool, error) {
		is, n := &set.Status, int32(r.size)
		return (p != nil || is.ObservedGeneration == set.Generation) && is.State == edsv1.StateRunning &&
			is.Desired == n && is.UpToDate == n && is.Available == n, nil
	})
}

// daemonSet is Kubernetes' own DaemonSet, which is the bare loop, or one that extends it.
func (r *daemonRun) daemonSet(name, apiVersion string, p *peer) *subject {
	template := r.template()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "DaemonSet"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: template,
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString(r.maxUnavailable))},
			},
		},
	})
	set := &unstructured.Unstructured{Object: object}
	return r.subject(name, set, p, func() (bool, error) {
		is, n := &appsv1.DaemonSet{}, int32(r.size)
		err := errors.Join(err, runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, is))
		return is.Status.ObservedGeneration == set.GetGeneration() && is.Status.DesiredNumberScheduled == n && is.Status.UpdatedNumberScheduled == n &&
			is.Status.NumberAvailable == n, err
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

// subject takes an object through all stages. reported says whether its status reports that all pods are as they should be.
func (r *daemonRun) subject(name string, set client.Object, p *peer, reported func() (bool, error)) *subject {
	tally := newPodTally()
	ns := strings.ToLower(name)
	set.SetNamespace(ns)
	set.SetName(ns)
	var began time.Time
	pass := func(name string, units, most int, start func(context.Context) error) *stage {
		return &stage{
			name: name, units: units, compared: true,
			start: func(ctx context.Context) error {
				// An API server answers the first creation of a new kind after 2 seconds.
				err := r.client.Create(ctx, set.DeepCopyObject().(client.Object), client.DryRunAll)
				began = time.Now()
				return errors.Join(client.IgnoreAlreadyExists(err), start(ctx))
			},
			done: func(ctx context.Context, _ *phase) (bool, error) {
				if tally.counts().done < r.size {
					return false, nil
				}
				if err := r.client.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
					return false, err
				}
				return reported()
			},
			check: func(p *phase, result *result) {
				c := tally.counts()
				p.figure("seconds until the status says so", p.Seconds)
				p.Seconds = inSeconds(c.since.Sub(began))
				p.figure("nodes without a pod at once", float64(c.mostLost))
				p.figure("pods in creation at once", float64(c.mostCreating))
				if made := p.Programs[0].Requests["create pods"]; made != units {
					result.wrong("%s: %d pods were created, and %d should be", name, made, units)
				}
				if c.mostLost > most {
					result.wrong("%s: %d nodes were without an available pod at once, and %d may be", name, c.mostLost, most)
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
	// All of Kubernetes' own controllers run in one process.
	meters := []*meter{controllerMeter(p), {name: manager, program: manager}}
	builtin := name != extendedName && p == nil
	if builtin {
		meters = []*meter{{name: manager, program: manager, agent: "daemon-set-controller"}}
	}
	return &subject{
		name: name, namespace: ns, builtin: builtin, peer: p, objects: []client.Object{set}, stages: stages, meters: meters,
		prepare: func(ctx context.Context) error { return r.makeNamespace(ctx, ns) },
		settled: func() bool { return tally.all() == r.size }, // Pods of deleted nodes stay until they are collected.
		watches: []watched{{begin: r.raw.CoreV1().Pods(ns).Watch, list: &corev1.PodList{}, namespace: ns, see: tally.see}},
		progress: func() string {
			c := tally.counts()
			return fmt.Sprintf("%d of %d nodes done, %d have an available pod", c.done, r.size, c.available)
		},
		check: func(_ context.Context, result *result) error {
			result.add(tally.problems...)
			return nil
		},
	}
}

// replaceNodes deletes n nodes, and adds as many others at the same time.
func (r *daemonRun) replaceNodes(ctx context.Context, n int) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	first := r.added
	r.added += n
	_, err = each(ctx, 2*n, writers, func(ctx context.Context, i int) error {
		node := &nodes[i/2]
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
	nodes map[string]*podsOnNode
	pods  map[string]*corev1.Pod
	// creating is how many pods are not ready yet.
	creating int
	podCounts
	problems []error
}

// podsOnNode counts the pods on a node that stay, those of them that are ready, and those of these that have the image.
type podsOnNode struct{ staying, ready, wanted int }

func (n podsOnNode) done() bool { return n.staying == 1 && n.wanted == 1 }

// podCounts are what was counted since expect: nodes with a ready pod, nodes whose only pod is ready and has the image, the most nodes without a
// ready pod, the most pods in creation, and when all nodes became done.
type podCounts struct {
	available, done, mostLost, mostCreating int
	since                                   time.Time
}

func newPodTally() *podTally { return &podTally{pods: map[string]*corev1.Pod{}} }

// expect starts to count again. From now on there should be pods with this image on these nodes.
func (t *podTally) expect(image string, nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.image, t.nodes, t.creating, t.podCounts = image, map[string]*podsOnNode{}, 0, podCounts{}
	for _, node := range nodes {
		t.nodes[node] = &podsOnNode{}
	}
	for _, p := range t.pods {
		t.add(p, 1)
	}
	t.count()
}

// see counts a pod as it became.
func (t *podTally) see(kind watch.EventType, object any) {
	p := object.(*corev1.Pod)
	t.mu.Lock()
	defer t.mu.Unlock()
	if was := t.pods[p.Name]; was != nil {
		t.add(was, -1)
		delete(t.pods, p.Name)
	}
	if kind != watch.Deleted {
		t.pods[p.Name] = p
		t.add(p, 1)
	}
	t.count()
}

// add counts a pod, or with -1 counts it no more.
func (t *podTally) add(p *corev1.Pod, n int) {
	if p.DeletionTimestamp != nil {
		return
	}
	if !podReady(p) {
		t.creating += n
	}
	now := t.nodes[p.Spec.NodeName]
	if now == nil {
		return // It should not be there, or is not scheduled yet.
	}
	was := *now
	now.staying += n
	if podReady(p) {
		now.ready += n
		if p.Spec.Containers[0].Image == t.image {
			now.wanted += n
		}
	}
	t.available += change(was.ready > 0, now.ready > 0)
	t.done += change(was.done(), now.done())
	if n > 0 && now.staying > 1 {
		t.problems = append(t.problems, fmt.Errorf("node %s has %d pods", p.Spec.NodeName, now.staying))
	}
}

// podReady reports whether a pod is ready, and stays.
func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (t *podTally) count() {
	if t.done < len(t.nodes) {
		t.since = time.Time{}
	} else if t.since.IsZero() {
		t.since = time.Now()
	}
	t.mostLost = max(t.mostLost, len(t.nodes)-t.available)
	t.mostCreating = max(t.mostCreating, t.creating)
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
	return t.podCounts
}
