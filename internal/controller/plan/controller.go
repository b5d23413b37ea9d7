// SPDX-License-Identifier: Apache-2.0

// Package plan carries out Plans: a Job on each node that lacks the Plan's latest hash, a limited number at a time.
//
// A reconcile is one pass over what the caches show:
//
//	read      the Plan, decoded by itself, so that an invalid Plan harms no other
//	resolve   version and hash                                              resolve.go, channel.go, hash.go
//	gather    nodes, Jobs and pods                                          controller.go
//	judge     each node's state, and what its turn needs next               package kind/plan
//	settle    take that step of each turn                                   package turn, mechanism.go
//	start     choose the next nodes, claim them, create their Jobs          package turn, mechanism.go
//	report    one status write, then Events                                 status.go
//
// All state is in the API: the turn in the claim on the Node, its result in the Job, the outcome in the Node's label.
package plan

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/turn"
)

const kind = "Plan"

// groupVersionKind is that of Plans, which this controller reconciles.
var groupVersionKind = upgradev1.GroupVersion.WithKind(kind)

// +kubebuilder:rbac:groups=upgrade.cattle.io,resources=plans,verbs=list;watch
// +kubebuilder:rbac:groups=upgrade.cattle.io,resources=plans/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=batch,namespace=system-upgrade,resources=jobs,verbs=create;delete
// +kubebuilder:rbac:groups="",namespace=system-upgrade,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=system-upgrade,resources=leases,verbs=get;create;update

// Options are the controller's settings; the comments name system-upgrade-controller's environment variables and defaults.
type Options struct {
	// Name of the controller: the value of the label upgrade.cattle.io/controller on Jobs, and the source of Events.
	Name string
	// Namespace of the Plans to carry out.
	Namespace string
	// NodeName is the node that the controller runs on. It is updated last. Empty when the controller runs outside of the cluster.
	NodeName string
	// Threads is how many Plans are reconciled at once. SYSTEM_UPGRADE_CONTROLLER_THREADS, 2.
	Threads int
	// ClusterID is sent to channels: the uid of the namespace kube-system.
	ClusterID string
	// PollingInterval of channels. SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL, 15m.
	PollingInterval time.Duration
	// Transport is for requests to channels; nil is http.DefaultTransport.
	Transport http.RoundTripper
	// AllowDowngrade lets every channel lead to lower versions.
	AllowDowngrade bool
	// Reserved is what no Plan may use.
	Reserved Reserved
	// Job holds the settings of Jobs.
	Job plan.JobOptions
}

// Controller reconciles Plans.
type Controller struct {
	*turn.Engine
	options  Options
	channels *channels
}

// NewController returns a controller of Plans; SetupWithManager makes it run. See turn.NewEngine for the clients.
func NewController(clk clock.PassiveClock, c client.Client, live drain.Client, pods typedcorev1.CoreV1Interface, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	return &Controller{Engine: turn.NewEngine(kind, clk, c, live, pods, f, recorder), options: o}
}

// Reconcile brings one Plan a step further.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return c.Engine.Reconcile(ctx, request, c.reconcile)
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	p, stored, malformed, err := c.read(ctx, key)
	if err != nil {
		return wake, err
	}
	// A change after this line may be missing in the snapshot. So every change wakes the Plan until it is known to wait for nothing.
	c.Waiting.Set(key, true)
	s, err := c.gather(ctx, key)
	if err != nil {
		return wake, err
	}
	if p == nil {
		c.channels.forget(key)
		c.Works.StopExcept(key, nil)
		c.Forget(key)
		return wake, c.clear(ctx, key, "", s)
	}
	if refused, err := c.Refuses(ctx, key, stored); refused {
		return wake, err
	}
	before := p.Status.DeepCopy()
	w, wake, problem := c.resolve(ctx, p, malformed, c.Clock.Now())
	pass := c.newPass(w, s)
	pass.problem, pass.Wake = problem, wake
	pass.asking = problem == nil && !wake.IsZero() && p.Status.Condition(upgradev1.ConditionLatestResolved).Status == metav1.ConditionUnknown
	errs := []error{c.clear(ctx, key, p.UID, s), pass.Settle(ctx)}
	if w.Ready {
		errs = append(errs, pass.start(ctx))
	} else {
		c.Waiting.Set(key, false)
	}
	pass.WatchPods(func(*plan.Unit) bool { return false })
	errs = append(errs, pass.report(ctx, stored, before))
	return pass.Wake, turn.First(errs)
}

// newPass judges the turns of a Plan.
func (c *Controller) newPass(w *plan.World, s snapshot) *pass {
	w.Fleet, w.SharedHostnames = s.Fleet, s.SharedHostnames
	p := &pass{w: w, controller: c}
	p.Pass = &turn.Pass[*plan.Unit]{
		Engine: c.Engine, Mechanism: jobs{p}, Object: w.Plan, Key: client.ObjectKeyFromObject(w.Plan), UID: w.Plan.UID, Holder: w.Holder, Taint: w.Taint,
		Generation: w.Plan.Generation, Spec: w.Plan.Spec.Strategy, Turns: w.Units(s.Objects, s.jobs, s.pods), Seen: s.Snapshot, Now: w.Now,
	}
	if d := w.Plan.Spec.Drain; d != nil {
		p.Options, _ = drain.OptionsOfPlan(d) // Validation has refused options that can't be read.
	}
	return p
}

// newStored returns an empty Plan.
func newStored() *unstructured.Unstructured { return turn.Undecoded(groupVersionKind) }

// read gets a Plan. If the object does not decode, malformed says why, and p has only the fields needed to report that.
func (c *Controller) read(ctx context.Context, key types.NamespacedName) (p *upgradev1.Plan, stored *unstructured.Unstructured, malformed, err error) {
	stored, err = turn.Get(ctx, c.Client, key, newStored())
	if err != nil || stored == nil || stored.GetDeletionTimestamp() != nil {
		return nil, nil, nil, err
	}
	p = &upgradev1.Plan{}
	malformed, err = turn.DecodeInto(stored, p, &p.Spec, &p.Status)
	return p, stored, malformed, err
}

// clear removes the taint, Jobs and claims of a deleted Plan of this name. It removes a claim only when the Jobs and their pods are gone. It
// also deletes Jobs whose node is gone. live is the UID of the present Plan, or "" if there is none.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s snapshot) error {
	errs := c.Clear(ctx, plan.HolderOf(key.Namespace, key.Name), v1alpha1.TaintOutdated("plan", key.Name), live, &s.Snapshot, func(n *corev1.Node, claim v1alpha1.Claim) error {
		isOfLive := func(j *batchv1.Job) bool {
			owner := metav1.GetControllerOf(j)
			return live != "" && owner != nil && owner.UID == live
		}
		jobs := s.jobs[n.Name]
		if left := slices.DeleteFunc(unfinished(jobs), isOfLive); len(left) > 0 {
			return c.deleteJobs(ctx, left)
		}
		for _, pod := range s.pods[n.Name] {
			if !slices.ContainsFunc(jobs, func(j *batchv1.Job) bool { return metav1.IsControlledBy(pod, j) && isOfLive(j) }) {
				return nil // The end of the pod wakes the Plan.
			}
		}
		return turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), nil)
	})
	for name, jobs := range s.jobs {
		if s.Nodes[name] == nil {
			errs = append(errs, c.deleteJobs(ctx, unfinished(jobs)))
		}
	}
	return turn.First(errs)
}

func unfinished(jobs []*batchv1.Job) []*batchv1.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *batchv1.Job) bool { return plan.Finished(j) != nil })
}

// snapshot is what the caches show of one Plan. Its objects belong to the caches and must not be changed.
type snapshot struct {
	fleet.Snapshot
	// jobs and pods of the Plan, by the name of their node. For a node without a claim of the Plan, jobs has only the Jobs of
	// indexPlan.
	jobs map[string][]*batchv1.Job
	pods map[string][]*corev1.Pod
}

func (c *Controller) gather(ctx context.Context, key types.NamespacedName) (snapshot, error) {
	holder := plan.HolderOf(key.Namespace, key.Name)
	nodes, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return snapshot{}, err
	}
	ofPlan := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{indexPlan: key.Name}, client.UnsafeDisableDeepCopy}
	var jobs batchv1.JobList
	var pods corev1.PodList
	if err := errors.Join(c.Client.List(ctx, &jobs, ofPlan...), c.Client.List(ctx, &pods, ofPlan...)); err != nil {
		return snapshot{}, fmt.Errorf("listing jobs and pods, %w", err)
	}
	s := snapshot{Snapshot: nodes, jobs: byNode(jobs.Items, (*batchv1.Job).GetLabels), pods: byNode(pods.Items, (*corev1.Pod).GetLabels)}
	for _, name := range s.Claimed {
		if !slices.ContainsFunc(s.Nodes[name].Claims, func(c v1alpha1.Claim) bool { return c.Rollout == holder }) {
			continue
		}
		var all batchv1.JobList
		err := c.Client.List(ctx, &all, client.InNamespace(key.Namespace), client.MatchingFields{indexNode: onNode(key.Name, name)},
			client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency) // The list above has waited for own writes.
		if err != nil {
			return snapshot{}, fmt.Errorf("listing jobs of node %s, %w", name, err)
		}
		s.jobs[name] = byNode(all.Items, (*batchv1.Job).GetLabels)[name]
	}
	return s, nil
}

func byNode[T any](objects []T, labelsOf func(*T) map[string]string) map[string][]*T {
	by := map[string][]*T{}
	for i := range objects {
		name := labelsOf(&objects[i])[upgradev1.LabelNode]
		by[name] = append(by[name], &objects[i])
	}
	return by
}
