// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"moult.dev/moult/api/v1alpha1"
)

// ducklett is Ducklett's interface: three flags, and where the scale sets are by environment variables. With any of the flags the two
// NodeRollouts that do what it does are made, and kept as the flags say; without, none is.
type ducklett struct {
	checkPeriod       int64
	workerConcurrency int32
	planeConcurrency  int32
}

// The flags of Ducklett.
const (
	flagCheckPeriod       = "check-period"
	flagWorkerConcurrency = "worker-concurrency"
	flagPlaneConcurrency  = "cp-concurrency"
)

var duckletFlags = []string{flagCheckPeriod, flagWorkerConcurrency, flagPlaneConcurrency}

// The NodeRollouts that are made.
const (
	rolloutWorkers = "ducklett-workers"
	rolloutPlane   = "ducklett-control-plane"
)

// managerDucklett is the field manager of what the flags say.
const managerDucklett = "moult-ducklett"

func (d *ducklett) bind(flags *pflag.FlagSet) {
	flags.Int64Var(&d.checkPeriod, flagCheckPeriod, 300, "as of Ducklett: how often scale sets are looked at, in seconds; with any of these three flags the NodeRollouts "+rolloutWorkers+" and "+rolloutPlane+" are made")
	flags.Int32Var(&d.workerConcurrency, flagWorkerConcurrency, 2, "as of Ducklett: how many workers are replaced at once")
	flags.Int32Var(&d.planeConcurrency, flagPlaneConcurrency, 3, "as of Ducklett: how many nodes of the control plane are replaced at once, as far as etcd allows")

	// What its logger takes.
	var text string
	var is bool
	var number int
	flags.IntVar(&number, "v", 0, "ignored")
	flags.IntVar(&number, "stderrthreshold", 0, "ignored")
	for _, name := range []string{"vmodule", "log_dir", "log_file", "log_file_max_size", "log_backtrace_at"} {
		flags.StringVar(&text, name, "", "ignored")
	}
	for _, name := range []string{"logtostderr", "alsologtostderr", "add_dir_header", "skip_headers", "skip_log_headers", "one_output"} {
		flags.BoolVar(&is, name, false, "ignored")
	}
	for _, name := range loggerFlags {
		_ = flags.MarkHidden(name)
	}
}

var loggerFlags = []string{
	"v", "stderrthreshold", "vmodule", "log_dir", "log_file", "log_file_max_size", "log_backtrace_at",
	"logtostderr", "alsologtostderr", "add_dir_header", "skip_headers", "skip_log_headers", "one_output",
}

// asked reports whether any of the flags is given.
func (*ducklett) asked(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(duckletFlags, flags.Changed)
}

// kept is a NodeRollout that is made and kept: what the flags say of it, and what else it has when it is made.
type kept struct {
	fixed, made v1alpha1.NodeRolloutSpec
}

// whole is what it is made with.
func (k *kept) whole() *v1alpha1.NodeRolloutSpec {
	spec := k.fixed.DeepCopy()
	spec.Drain, spec.Strategy.MaxFailures = k.made.Drain, k.made.Strategy.MaxFailures
	return spec
}

// rollouts are the NodeRollouts by name.
func (d *ducklett) rollouts(lookup func(string) (string, bool)) (map[string]kept, error) {
	var problems []error
	value := func(name string) string {
		v, _ := lookup(name)
		if v == "" {
			problems = append(problems, fmt.Errorf("$%s must be given with --%s", name, strings.Join(duckletFlags, ", --")))
		}
		return v
	}
	azure := v1alpha1.AzureProvider{SubscriptionID: value("ARM_SUBSCRIPTION_ID"), ResourceGroup: value("ARM_RESOURCE_GROUP")}
	cluster := value("CLUSTER_NAME")
	if managed, _ := lookup("ARM_USE_MANAGED_IDENTITY_EXTENSION"); managed == "true" {
		azure.Credential = v1alpha1.AzureCredentialManaged
	}
	for _, of := range []struct {
		flag               string
		value, least, most int64
		of                 string
	}{
		{flagCheckPeriod, d.checkPeriod, 1, 365 * 24 * 3600, "seconds"},
		{flagWorkerConcurrency, int64(d.workerConcurrency), 0, v1alpha1.MaxMachineTurns, "nodes"},
		{flagPlaneConcurrency, int64(d.planeConcurrency), 0, v1alpha1.MaxMachineTurns, "nodes"},
	} {
		if of.value < of.least || of.value > of.most {
			problems = append(problems, fmt.Errorf("--%s must be from %d to %d %s, not %d", of.flag, of.least, of.most, of.of, of.value))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	spec := func(concurrency int32, selects []metav1.LabelSelectorRequirement) v1alpha1.NodeRolloutSpec {
		return v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchExpressions: selects},
			Strategy:     &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(concurrency))},
			Replacement: &v1alpha1.Replacement{
				Provider:                   v1alpha1.CloudProvider{Azure: azure.DeepCopy()},
				ImageMatch:                 v1alpha1.ImageMatchOSImage,
				Surge:                      ptr.To(intstr.FromInt32(max(concurrency, 1))),
				KubernetesVersionFromImage: true,
				CheckPeriod:                &metav1.Duration{Duration: time.Duration(d.checkPeriod) * time.Second},
			},
		}
	}
	const pool = "nodegroup"
	pools := []string{"agent", "telemetry", "storage"}
	workers := spec(d.workerConcurrency, []metav1.LabelSelectorRequirement{
		{Key: pool, Operator: metav1.LabelSelectorOpIn, Values: pools},
		// Such a node must leave etcd first, whatever else its labels say.
		{Key: labelControlPlane, Operator: metav1.LabelSelectorOpDoesNotExist},
		{Key: labelMaster, Operator: metav1.LabelSelectorOpDoesNotExist},
	})
	// A selector can't say that a node has the one label or the other, and it must be one NodeRollout that looks after etcd: so it is for all
	// machines of the scale set of the control plane, whichever label their nodes have.
	plane := spec(d.planeConcurrency, []metav1.LabelSelectorRequirement{{Key: pool, Operator: metav1.LabelSelectorOpNotIn, Values: pools}})
	plane.Replacement.ScaleSets = []string{cluster + "-cp"}
	plane.Replacement.ControlPlane = &v1alpha1.ControlPlane{Etcd: v1alpha1.EtcdStacked}
	return map[string]kept{rolloutWorkers: {workers, duckletDefaults()}, rolloutPlane: {plane, duckletDefaults()}}, nil
}

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	labelMaster       = "node-role.kubernetes.io/master"
)

// duckletDefaults are how Ducklett drains, and what takes the place of its trying for ever: a failure halts. A turn that is tried again by itself counts
// as no failure before it was for the last time, and so an image that is no good would come to further nodes meanwhile.
func duckletDefaults() v1alpha1.NodeRolloutSpec {
	return v1alpha1.NodeRolloutSpec{
		Drain: &v1alpha1.NodeDrain{
			Timeout: &metav1.Duration{Duration: 6 * time.Minute}, OnTimeout: "Force", Force: true, DeleteEmptyDirData: ptr.To(true),
		},
		Strategy: &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0))},
	}
}

// keeper makes the NodeRollouts, and puts back what somebody changes of what the flags say. What these do not say is set when one is made, and
// then theirs who change it.
type keeper struct {
	client   client.Client
	rollouts map[string]kept
}

// SetupWithManager makes the manager run it.
func (k *keeper) SetupWithManager(m ctrl.Manager) error {
	ours := func(o client.Object) bool { _, is := k.rollouts[o.GetName()]; return is }
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for name := range k.rollouts {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(m).
		Named("noderollout.ducklett").
		For(nodeRollout(""), builder.WithPredicates(predicate.NewPredicateFuncs(ours), predicate.Or(predicate.GenerationChangedPredicate{}, another))).
		WatchesRawSource(atStart).
		Complete(k)
}

// another is one that was made in the place of one that was deleted: after a watch has broken that is an update, and both may be of the same generation.
var another = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}

// Reconcile brings one of them to what it should be.
func (k *keeper) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	want, ours := k.rollouts[r.Name]
	if !ours {
		return reconcile.Result{}, nil
	}
	there := nodeRollout(r.Name)
	switch err := k.client.Get(ctx, r.NamespacedName, there); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, k.make(ctx, r.Name, &want)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading NodeRollout %s, %w", r.Name, err)
	case there.GetDeletionTimestamp() != nil:
		return reconcile.Result{}, nil // It is made again once it is gone.
	}
	o, err := withSpec(r.Name, &want.fixed)
	if err == nil {
		o.SetUID(there.GetUID()) // An apply makes what is not there, and one deleted since it was read would come back with half of its settings.
		err = k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(managerDucklett), client.ForceOwnership)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("keeping NodeRollout %s, %w", r.Name, err)
	}
	return reconcile.Result{}, nil
}

// make makes one of them whole, so that it is never there with half of its settings.
func (k *keeper) make(ctx context.Context, name string, want *kept) error {
	o, err := withSpec(name, want.whole())
	if err == nil {
		err = k.client.Create(ctx, o, client.FieldOwner(managerDucklett))
	}
	if err != nil {
		return fmt.Errorf("making NodeRollout %s, %w", name, err)
	}
	return nil
}

func nodeRollout(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeRollout"))
	o.SetName(name)
	return o
}

func withSpec(name string, spec *v1alpha1.NodeRolloutSpec) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, err
	}
	o := nodeRollout(name)
	o.Object["spec"] = content
	return o, nil
}
