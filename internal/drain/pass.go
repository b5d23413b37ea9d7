// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// NodeNameField is the field by which pods are listed. A client that reads from a cache needs an index of this name.
	NodeNameField = "spec.nodeName"

	// critical is the priority of system-cluster-critical; system-node-critical is a thousand higher.
	critical int32 = 2_000_000_000
	// parallel limits the concurrent evictions of one node.
	parallel = 20
	// retryAfter is the time until blocked or failed evictions are retried, and volumes are read again.
	retryAfter = 5 * time.Second
)

// Client is what a drain needs of a controller-runtime client: it lists pods, gets DaemonSets, deletes pods and creates
// pods/eviction; and to wait for volumes it lists VolumeAttachments and gets PersistentVolumeClaims. Make it from a config
// that NeverWait returned.
type Client interface {
	client.Reader
	client.SubResourceClientConstructor
	Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error
}

// Drainer drains nodes, any number at the same time.
type Drainer struct {
	clock  clock.PassiveClock
	client Client

	// found holds the uids of DaemonSets that were read, so that a pass doesn't read them again and again.
	found sync.Map
	// accepted holds when requests were accepted. Until the watch shows it, their pods look as before.
	mu       sync.Mutex
	accepted map[accepted]time.Time
}

// accepted is a request to evict a pod.
type accepted struct {
	pod    types.UID
	grace  int64
	delete bool
}

// seenWithin is how soon the watch shows that a pod terminates. Afterwards the request is repeated.
const seenWithin = 5 * time.Second

// New makes a Drainer.
func New(clk clock.PassiveClock, c Client) *Drainer {
	return &Drainer{clock: clk, client: c, accepted: map[accepted]time.Time{}}
}

// Pods lists the pods of a node.
func (d *Drainer) Pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.MatchingFields{NodeNameField: node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s, %w", node, err)
	}
	return pods.Items, nil
}

// Pass advances the drain of a node with these pods as far as possible now, and never waits for a pod. The drain began at
// since, and its timeout counts from then; zero means that it begins now. An error means that the node's volumes or the
// DaemonSets of its pods could not be read now. The result has the outcome of each pod.
func (d *Drainer) Pass(ctx context.Context, node string, pods []corev1.Pod, since time.Time, o Options) (Result, error) {
	now := d.clock.Now()
	verdicts, err := d.judge(ctx, pods, now, since, &o)
	if err != nil {
		return Result{}, err
	}
	r := Result{TimedOut: o.timedOut(since, now)}
	r.forcesLater = r.TimedOut == "" && o.OnTimeout == ForceOnTimeout && o.Timeout > 0
	advance(&r, verdicts, func(candidates []Verdict) { d.evict(ctx, &r, candidates, &o) })
	if o.WaitForVolumeDetach && r.TimedOut != ForceOnTimeout && r.Done() {
		if r.Attached, err = d.attached(ctx, node, verdicts); err != nil {
			return Result{}, err
		}
	}
	r.Next = next(&r, verdicts, &o, since, now)
	return r, nil
}

// Preview is a first pass without any write. Pods that a pass would evict are Evicted in its result. It ignores volumes.
func (d *Drainer) Preview(ctx context.Context, pods []corev1.Pod, o Options) (r Result, err error) {
	verdicts, err := d.judge(ctx, pods, d.clock.Now(), time.Time{}, &o)
	advance(&r, verdicts, func(candidates []Verdict) { r.record(candidates, Evicted, "") })
	return r, err
}

func (d *Drainer) judge(ctx context.Context, pods []corev1.Pod, now, since time.Time, o *Options) ([]Verdict, error) {
	unread, err := d.unreadDaemonSets(ctx, pods)
	return Filter(pods, Facts{Now: now, Since: since, DaemonSets: unread}, *o), err
}

// unreadDaemonSets reads the DaemonSets of pods, and returns the errors of those that can't be read. It returns an error if a later read may
// succeed.
func (d *Drainer) unreadDaemonSets(ctx context.Context, pods []corev1.Pod) (map[types.NamespacedName]error, error) {
	failed := map[types.NamespacedName]error{}
	for i := range pods {
		owner, name, ok := daemonSetOf(&pods[i])
		if !ok || failed[name] != nil {
			continue
		}
		if _, found := d.found.Load(owner.UID); found {
			continue
		}
		switch err := d.client.Get(ctx, name, &appsv1.DaemonSet{}); {
		case err == nil:
			d.found.Store(owner.UID, nil)
		case IsTransient(err):
			return nil, fmt.Errorf("reading DaemonSet %s, %w", name, err)
		default:
			failed[name] = err
		}
	}
	return failed, nil
}

// advance records the pods that stay or are refused, and evicts the others unless one is refused.
func advance(r *Result, verdicts []Verdict, evict func([]Verdict)) {
	var candidates []Verdict
	for i := range verdicts {
		if v := &verdicts[i]; v.State != "" {
			r.record(verdicts[i:i+1], v.State, v.Message)
		} else {
			candidates = append(candidates, *v)
		}
	}
	if len(r.In(Refused)) > 0 {
		r.record(candidates, Waiting, "other pods are refused")
	} else {
		evict(candidates)
	}
	slices.SortStableFunc(r.Pods, inOrder)
}

// request is how pods are evicted.
type request struct {
	grace  *int64
	delete bool
	dryRun bool
}

// evict evicts the candidates, lowest priority first, those of one priority together.
func (d *Drainer) evict(ctx context.Context, r *Result, candidates []Verdict, o *Options) {
	how := request{grace: o.GracePeriodSeconds, delete: o.DisableEviction || r.TimedOut == ForceOnTimeout, dryRun: r.TimedOut.ended()}
	for len(candidates) > 0 {
		lowest := priority(candidates[0].Pod)
		n := slices.IndexFunc(candidates, func(v Verdict) bool { return priority(v.Pod) != lowest })
		if n < 0 {
			n = len(candidates)
		}
		group := candidates[:n]
		candidates = candidates[n:]
		// After the timeout critical pods are not postponed.
		if r.TimedOut == "" && lowest >= critical && !r.Done() {
			r.record(group, Waiting, "its priority is critical, so it is evicted last")
			continue
		}
		var requested []Verdict
		for i := range group {
			if isRequested(group[i].Pod, how) || d.wasAccepted(group[i].Pod, how) {
				r.record(group[i:i+1], Terminating, "")
			} else {
				requested = append(requested, group[i])
			}
		}
		r.Pods = append(r.Pods, d.evictAll(ctx, requested, how)...)
	}
}

// evictAll evicts these pods concurrently, and returns the outcomes in their order. After the timeout it only asks whether they could be evicted.
func (d *Drainer) evictAll(ctx context.Context, verdicts []Verdict, r request) []Outcome {
	outcomes := make([]Outcome, len(verdicts))
	// After the end of ctx each request fails, so that each pod has an outcome.
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), parallel, len(verdicts), func(i int) {
		err := d.evictOne(ctx, verdicts[i].Pod, r)
		outcomes[i] = outcomeOfAnswer(&verdicts[i], err)
		switch {
		case err == nil && r.dryRun:
			outcomes[i].State, outcomes[i].Message = Waiting, "the drain timed out"
		case err == nil:
			d.mu.Lock()
			d.accepted[r.of(verdicts[i].Pod)] = d.clock.Now()
			d.mu.Unlock()
		}
	})
	return outcomes
}

func (r request) of(pod *corev1.Pod) accepted {
	return accepted{pod.UID, ptr.Deref(r.grace, -1), r.delete}
}

// wasAccepted reports whether the request was accepted a moment ago.
func (d *Drainer) wasAccepted(pod *corev1.Pod, r request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	maps.DeleteFunc(d.accepted, func(_ accepted, at time.Time) bool { return now.Sub(at) >= seenWithin })
	_, is := d.accepted[r.of(pod)]
	return is && !r.dryRun
}

// evictOne evicts one pod. The uid is a precondition, so that a new pod of the same name is not evicted.
func (d *Drainer) evictOne(ctx context.Context, pod *corev1.Pod, r request) error {
	o := client.DeleteOptions{GracePeriodSeconds: r.grace, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if r.dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	if r.delete {
		return d.client.Delete(ctx, pod, &o)
	}
	return d.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: o.AsDeleteOptions(),
	})
}

// isRequested reports whether the pod already terminates as the request wants. A shorter grace period is requested again:
// the API server shortens a running one, and never lengthens it.
func isRequested(pod *corev1.Pod, r request) bool {
	running := pod.DeletionGracePeriodSeconds
	return !pod.DeletionTimestamp.IsZero() && (r.grace == nil || running == nil || *running <= *r.grace)
}

// next returns the earliest time at which another pass can have another result without a change of a pod.
func next(r *Result, verdicts []Verdict, o *Options, since, now time.Time) time.Time {
	if r.Done() || r.Stuck() {
		return time.Time{}
	}
	var at time.Time
	wake := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if r.TimedOut == "" {
		wake(o.deadline(since))
	}
	if len(r.In(Blocked, Failed)) > 0 || len(r.Attached) > 0 {
		wake(now.Add(retryAfter))
	}
	isAlive := func(v Verdict) bool { return v.State == "" && v.Pod.DeletionTimestamp.IsZero() }
	if len(r.In(Evicted, Terminating)) > 0 && slices.ContainsFunc(verdicts, isAlive) {
		wake(now.Add(seenWithin)) // An accepted request may have no effect.
	}
	if o.SkipWaitForDelete > 0 {
		for i := range verdicts {
			if v := &verdicts[i]; v.State == "" && !v.Pod.DeletionTimestamp.IsZero() {
				wake(v.Pod.DeletionTimestamp.Add(o.SkipWaitForDelete + time.Second))
			}
		}
	}
	return at
}
