// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/cluster"
)

// patience bounds a wait that would never end.
const patience = 5 * time.Minute

// alive is a node whose pods run, and end when they are told to. dead is one whose pods do neither.
const (
	alive = "drain-alive"
	dead  = "drain-dead"
)

// bench is a namespace of a real cluster, and a drain that looks at it only.
type bench struct {
	client.Client
	t         *testing.T
	namespace string
	owner     metav1.OwnerReference
	clock     *clocktesting.FakePassiveClock
	drainer   *Drainer
	since     time.Time
}

// TestAPI runs against a real API server, with the controllers that judge budgets and end namespaces.
func TestAPI(t *testing.T) {
	running := cluster.Shared(t, 0)
	config := NeverWait(running.Config())
	config.QPS = -1
	if err := running.AddNode(t.Context(), cluster.NodeOptions{Name: alive}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: dead}}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*bench){
		"budget":      aBudgetHoldsAndYields,
		"force":       forceGoesPastABudget,
		"volumes":     volumesAreWaitedFor,
		"dryrun":      dryRunAsksTheBudget,
		"namesake":    aNamesakeIsNotMeant,
		"shorten":     aRunningGracePeriodIsShortened,
		"terminating": aNamespaceThatEnds,
	} {
		t.Run(name, func(t *testing.T) { test(newBench(t, c, "drain-"+name)) })
	}
}

func newBench(t *testing.T, c client.Client, name string) *bench {
	t.Helper()
	b := &bench{Client: c, t: t, namespace: name, since: time.Now()}
	b.clock = clocktesting.NewFakePassiveClock(b.since)
	b.drainer = New(b.clock, c)
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err := cluster.WaitForAccounts(t.Context(), c, name); err != nil {
		t.Fatal(err)
	}
	// A controller that never does anything: pods that it owns are managed, and don't come back.
	manager := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "manager"}}
	b.create(manager)
	b.owner = owner("v1", "ConfigMap", manager.Name)
	b.owner.UID = manager.UID
	return b
}

func (b *bench) create(obj client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

// pod makes a pod on a node and waits until it runs, if the node is alive.
func (b *bench) pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	b.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.namespace, Name: name, Labels: map[string]string{"test": b.namespace, "app": name},
			OwnerReferences: []metav1.OwnerReference{b.owner},
		},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, c := range change {
		c(p)
	}
	b.create(p)
	if node == alive {
		b.eventually(name+" runs", func() bool {
			b.get(p)
			return p.Status.Phase != corev1.PodPending
		})
	}
	return p
}

func (b *bench) get(obj client.Object) {
	b.t.Helper()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		b.t.Fatal(err)
	}
}

// budget holds all pods of an app, and is in force when it returns.
func (b *bench) budget(name, app string) *policyv1.PodDisruptionBudget {
	b.t.Helper()
	one := intstr.FromInt32(1)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	b.create(pdb)
	b.eventually(name+" is in force", func() bool {
		b.get(pdb)
		return pdb.Status.ObservedGeneration == pdb.Generation && pdb.Status.CurrentHealthy == 1
	})
	return pdb
}

// pass passes over a node, with the pods of this bench only.
func (b *bench) pass(node string, o Options) Result {
	b.t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"test": b.namespace}})
	if err != nil {
		b.t.Fatal(err)
	}
	o.PodSelector = selector
	pods, err := b.drainer.Pods(b.t.Context(), node)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.drainer.Pass(b.t.Context(), node, pods, b.since, o)
	if err != nil {
		b.t.Fatal(err)
	}
	mine := r.Pods[:0]
	for _, p := range r.Pods {
		if p.Message != "is not selected" {
			mine = append(mine, p)
		}
	}
	r.Pods = mine
	return r
}

// drained passes until the drain is done.
func (b *bench) drained(node string, o Options) {
	b.t.Helper()
	b.eventually("the node is drained", func() bool {
		r := b.pass(node, o)
		return r.Done()
	})
}

func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !is(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waiting until %s", what)
		}
	}
}

const verdictOfABudget = " Cannot evict pod as it would violate the pod's disruption budget. The disruption budget api needs 1 " +
	"healthy pods and has 1 currently"

func aBudgetHoldsAndYields(b *bench) {
	b.pod("api", alive)
	b.pod("web", alive)
	pdb := b.budget("api", "api")

	r := b.pass(alive, Options{})
	expect(b.t, "states", map[string]State{"api": Blocked, "web": Evicted}, states(r))
	if r.Stuck() {
		b.t.Errorf("not blocked: %+v", r)
	}
	held := r.In(Blocked)[0]
	expect(b.t, "budget", "drain-budget/api", held.Budget)
	expect(b.t, "line", "pod drain-budget/api is held by PodDisruptionBudget drain-budget/api:"+verdictOfABudget, held.String())

	if err := b.Delete(b.t.Context(), pdb); err != nil {
		b.t.Fatal(err)
	}
	b.drained(alive, Options{})
}

func forceGoesPastABudget(b *bench) {
	b.pod("api", alive)
	b.budget("api", "api")
	o := Options{Timeout: time.Minute, OnTimeout: ForceOnTimeout}
	expect(b.t, "in time", map[string]State{"api": Blocked}, states(b.pass(alive, o)))
	b.clock.SetTime(b.since.Add(time.Minute))
	expect(b.t, "after it", map[string]State{"api": Evicted}, states(b.pass(alive, o)))
	b.drained(alive, o)
}

// volume makes a PersistentVolume that is attached to a node and bound to a claim of the same name.
func (b *bench) volume(name, node string) *storagev1.VolumeAttachment {
	b.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com", VolumeHandle: name},
			},
		},
	}
	b.create(pv)
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), pv); err != nil {
			b.t.Error(err)
		}
	})
	b.create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, VolumeName: pv.Name, StorageClassName: new(string),
		},
	})
	va := attachment(node, pv.Name)
	b.create(va)
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), va); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
	return va
}

func volumesAreWaitedFor(b *bench) {
	gone := b.volume("db", alive)
	b.volume("kept", alive)
	b.pod("db", alive, claiming("db"))
	b.pod("kept", alive, claiming("kept"), func(p *corev1.Pod) { p.Labels = nil })
	o := Options{WaitForVolumeDetach: true}

	expect(b.t, "first", map[string]State{"db": Evicted}, states(b.pass(alive, o)))
	var r Result
	b.eventually("the pod is gone", func() bool {
		r = b.pass(alive, o)
		return len(r.Pods) == 0
	})
	expect(b.t, "attached", []string{"drain-volumes-db"}, r.Attached)
	if r.Done() || r.Stuck() {
		b.t.Errorf("does not wait: %+v", r)
	}
	expect(b.t, "next", b.since.Add(retryAfter), r.Next)
	if err := b.Delete(b.t.Context(), gone); err != nil {
		b.t.Fatal(err)
	}
	b.drained(alive, o)
}

func dryRunAsksTheBudget(b *bench) {
	b.pod("api", alive)
	web := b.pod("web", alive)
	pdb := b.budget("api", "api")
	before := pdb.DeepCopy()
	b.clock.SetTime(b.since.Add(time.Minute))
	for _, disable := range []bool{false, true} {
		r := b.pass(alive, Options{Timeout: time.Minute, DisableEviction: disable}) // After the timeout evictions are dry runs.
		want := map[string]State{"api": Blocked, "web": Waiting}
		if disable {
			want["api"] = Waiting
		}
		expect(b.t, "states", want, states(r))
	}
	b.get(web)
	b.get(pdb)
	if !web.DeletionTimestamp.IsZero() {
		b.t.Error("a dry run evicts")
	}
	expect(b.t, "budget", before.Status, pdb.Status)
}

func aNamesakeIsNotMeant(b *bench) {
	old := b.pod("db-0", alive)
	if err := b.Delete(b.t.Context(), old.DeepCopy()); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("it is gone", func() bool {
		return apierrors.IsNotFound(b.Get(b.t.Context(), client.ObjectKeyFromObject(old), &corev1.Pod{}))
	})
	namesake := b.pod("db-0", alive)

	for _, how := range []request{{}, {delete: true}} {
		o := outcomeOfAnswer(&Verdict{Pod: old}, b.drainer.evictOne(b.t.Context(), old, how))
		expect(b.t, "state", Gone, o.State)
	}
	b.get(namesake)
	if !namesake.DeletionTimestamp.IsZero() {
		b.t.Error("it was evicted")
	}
}

func aRunningGracePeriodIsShortened(b *bench) {
	hour, ten := int64(3600), int64(10)
	p := b.pod("slow", dead, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &hour })
	expect(b.t, "first", map[string]State{"slow": Evicted}, states(b.pass(dead, Options{})))
	b.get(p)
	expect(b.t, "its own", hour, *p.DeletionGracePeriodSeconds)
	expect(b.t, "shorter", map[string]State{"slow": Evicted}, states(b.pass(dead, Options{GracePeriodSeconds: &ten})))
	b.get(p)
	expect(b.t, "now", ten, *p.DeletionGracePeriodSeconds)
	expect(b.t, "again", map[string]State{"slow": Terminating}, states(b.pass(dead, Options{GracePeriodSeconds: &ten})))
}

func aNamespaceThatEnds(b *bench) {
	ten := int64(10)
	b.pod("lost", dead)
	if err := b.Delete(b.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}); err != nil {
		b.t.Fatal(err)
	}
	r := b.pass(dead, Options{GracePeriodSeconds: &ten})
	expect(b.t, "states", map[string]State{"lost": Terminating}, states(r))
	expect(b.t, "line", "pod drain-terminating/lost is still terminating: its namespace is being deleted", r.Pods[0].String())
	if r.Stuck() {
		b.t.Errorf("got %+v", r)
	}
}
