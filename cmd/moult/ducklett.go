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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"moult.dev/moult/api/v1alpha1"
)

// ducklett is Ducklett's interface: three flags, and environment variables that name the scale sets. If any of the flags is given, two
// NodeRollouts that do the same are created and kept in line with the flags. Otherwise none is created.
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
	// flagConcurrency is in the example of Ducklett's README alone. Its program has no such flag.
	flagConcurrency = "concurrency"
	// nameDucklett is its program.
	nameDucklett = "ducklett"
)

var (
	ducklettFlags = []string{flagCheckPeriod, flagWorkerConcurrency, flagPlaneConcurrency}
	// loggerFlags and loggerSwitches are the flags of its logger, besides flagVerbosity.
	loggerFlags    = []string{"stderrthreshold", "vmodule", "log_dir", "log_file", "log_file_max_size", "log_backtrace_at"}
	loggerSwitches = []string{"logtostderr", "alsologtostderr", "add_dir_header", "skip_headers", "skip_log_headers", "one_output"}
)

// The NodeRollouts that are created.
const (
	rolloutWorkers = "ducklett-workers"
	rolloutPlane   = "ducklett-control-plane"
)

// managerDucklett is the field manager for the fields that the flags set.
const managerDucklett = "moult-ducklett"

func (d *ducklett) bind(v *variables) {
	add(v, &d.checkPeriod, flagCheckPeriod, 300, "", "as in Ducklett: how often scale sets are looked at, in seconds; with any of these three flags the NodeRollouts "+rolloutWorkers+" and "+rolloutPlane+" are created")
	add(v, &d.workerConcurrency, flagWorkerConcurrency, 2, "", "as in Ducklett: how many workers are replaced at once")
	add(v, &d.planeConcurrency, flagPlaneConcurrency, 3, "", "as in Ducklett: how many nodes of the control plane are replaced at once, as far as etcd allows")
	v.require(flagCheckPeriod, "from 1 to 31536000 seconds", func() bool { return d.checkPeriod >= 1 && d.checkPeriod <= 365*24*3600 })
	nodes := func(n *int32) func() bool { return func() bool { return *n >= 0 && *n <= v1alpha1.MaxMachineTurns } }
	v.require(flagWorkerConcurrency, fmt.Sprintf("from 0 to %d nodes", v1alpha1.MaxMachineTurns), nodes(&d.workerConcurrency))
	v.require(flagPlaneConcurrency, fmt.Sprintf("from 0 to %d nodes", v1alpha1.MaxMachineTurns), nodes(&d.planeConcurrency))
}

// isUsed reports whether any of the flags is given.
func (*ducklett) isUsed(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(ducklettFlags, flags.Changed)
}

// rollouts returns the initial NodeRollouts by name. They drain as Ducklett does. Ducklett retries for ever. Here the first failure halts the rollout,
// because with retries a bad image would reach more nodes before a turn fails.
func (d *ducklett) rollouts(getenv func(string) string) (map[string]*v1alpha1.NodeRolloutSpec, error) {
	var problems []error
	value := func(name string) string {
		v := getenv(name)
		if v == "" {
			problems = append(problems, fmt.Errorf("$%s must be given with --%s", name, strings.Join(ducklettFlags, ", --")))
		}
		return v
	}
	azure := v1alpha1.AzureProvider{SubscriptionID: value("ARM_SUBSCRIPTION_ID"), ResourceGroup: value("ARM_RESOURCE_GROUP")}
	cluster := value("CLUSTER_NAME")
	if getenv("ARM_USE_MANAGED_IDENTITY_EXTENSION") == "true" {
		azure.Credential = v1alpha1.AzureCredentialManaged
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	spec := func(concurrency int32, selects ...metav1.LabelSelectorRequirement) *v1alpha1.NodeRolloutSpec {
		return &v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchExpressions: selects},
			Strategy:     &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(concurrency)), MaxFailures: ptr.To(intstr.FromInt32(0))},
			Drain: &v1alpha1.NodeDrain{
				Timeout: &metav1.Duration{Duration: 6 * time.Minute}, OnTimeout: "Force", Force: true, DeleteEmptyDirData: ptr.To(true),
			},
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
	workers := spec(d.workerConcurrency,
		metav1.LabelSelectorRequirement{Key: pool, Operator: metav1.LabelSelectorOpIn, Values: pools},
		// A control plane node must leave etcd first, whatever its other labels are.
		metav1.LabelSelectorRequirement{Key: labelControlPlane, Operator: metav1.LabelSelectorOpDoesNotExist},
		metav1.LabelSelectorRequirement{Key: labelMaster, Operator: metav1.LabelSelectorOpDoesNotExist},
	)
	// A selector can't say "this label or that label", and one NodeRollout must handle etcd. So the rollout covers all machines of the scale
	// set of the control plane, whatever labels their nodes have.
	plane := spec(d.planeConcurrency, metav1.LabelSelectorRequirement{Key: pool, Operator: metav1.LabelSelectorOpNotIn, Values: pools})
	plane.Replacement.ScaleSets = []string{cluster + "-cp"}
	plane.Replacement.ControlPlane = &v1alpha1.ControlPlane{Etcd: v1alpha1.EtcdStacked}
	return map[string]*v1alpha1.NodeRolloutSpec{rolloutWorkers: workers, rolloutPlane: plane}, nil
}

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	labelMaster       = "node-role.kubernetes.io/master"
)

// fixed are the fields that the flags set. People may change the others.
func fixed(spec *v1alpha1.NodeRolloutSpec) *v1alpha1.NodeRolloutSpec {
	spec = spec.DeepCopy()
	spec.Drain, spec.Strategy.MaxFailures = nil, nil
	return spec
}

// keeper creates the NodeRollouts, and restores the fields that the flags set. The other fields have initial values, and people may change them.
type keeper struct {
	client   client.Client
	rollouts map[string]*v1alpha1.NodeRolloutSpec
}

// SetupWithManager makes the manager run the keeper, if there are NodeRollouts to keep.
func (k *keeper) SetupWithManager(m ctrl.Manager) error {
	if len(k.rollouts) == 0 {
		return nil
	}
	ours := func(o client.Object) bool { _, is := k.rollouts[o.GetName()]; return is }
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for name := range k.rollouts {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(m).
		Named("noderollout.ducklett").
		For(nodeRollout(""), builder.WithPredicates(predicate.NewPredicateFuncs(ours), predicate.GenerationChangedPredicate{})).
		WatchesRawSource(atStart).
		Complete(k)
}

// Reconcile creates one NodeRollout, or restores its fields.
func (k *keeper) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	want := k.rollouts[r.Name]
	there := nodeRollout(r.Name)
	err := k.client.Get(ctx, r.NamespacedName, there, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		// Create all fields at once, so that the object never exists with half of its settings.
		err = k.client.Create(ctx, withSpec(r.Name, want), client.FieldOwner(managerDucklett))
	case err == nil && there.GetDeletionTimestamp() == nil: // Otherwise it is created again after its deletion.
		kept := withSpec(r.Name, fixed(want))
		kept.SetUID(there.GetUID()) // With the uid, apply can not recreate a deleted object with half of its settings.
		err = k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(kept), client.FieldOwner(managerDucklett), client.ForceOwnership)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("keeping NodeRollout %s, %w", r.Name, err)
	}
	return reconcile.Result{}, nil
}

func nodeRollout(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeRollout"))
	o.SetName(name)
	return o
}

func withSpec(name string, spec *v1alpha1.NodeRolloutSpec) *unstructured.Unstructured {
	o := nodeRollout(name)
	o.Object["spec"], _ = runtime.DefaultUnstructuredConverter.ToUnstructured(spec) // Plain data always encodes.
	return o
}
