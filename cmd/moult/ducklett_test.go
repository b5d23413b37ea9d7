// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
	"moult.dev/moult/test/cluster"
)

const subscription = "00000000-1111-2222-3333-444444444444"

var azureEnvironment = map[string]string{"ARM_SUBSCRIPTION_ID": subscription, "ARM_RESOURCE_GROUP": "rg", "CLUSTER_NAME": "prod"}

func in(environment map[string]string) func(string) string {
	return func(name string) string { return environment[name] }
}

// as are Ducklett's settings with these arguments.
func as(t *testing.T, args ...string) (*ducklett, *pflag.FlagSet) {
	t.Helper()
	d := &ducklett{}
	flags := pflag.NewFlagSet("moult", pflag.ContinueOnError)
	v := newVariables(flags)
	d.bind(v)
	v.ignore(loggerFlags, loggerSwitches)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return d, flags
}

// What the flags and the variables of Ducklett's manifest come to.
func TestDucklettRollouts(t *testing.T) {
	d, flags := as(t, "--check-period=30", "--worker-concurrency=6", "--cp-concurrency=5")
	if !d.isUsed(flags) {
		t.Fatal("nothing is asked for")
	}
	environment := maps.Clone(azureEnvironment)
	environment["ARM_USE_MANAGED_IDENTITY_EXTENSION"] = "true"
	all, err := d.rollouts(in(environment))
	if err != nil {
		t.Fatal(err)
	}
	azure := `
  provider: {azure: {subscriptionID: 00000000-1111-2222-3333-444444444444, resourceGroup: rg, credential: Managed}}
  imageMatch: OSImage
  kubernetesVersionFromImage: true
  checkPeriod: 30s
`
	want := map[string]string{
		"ducklett-workers": `
nodeSelector:
  matchExpressions:
  - {key: nodegroup, operator: In, values: [agent, telemetry, storage]}
  - {key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}
  - {key: node-role.kubernetes.io/master, operator: DoesNotExist}
strategy: {maxConcurrent: 6, maxFailures: 0}
drain: {timeout: 6m, onTimeout: Force, force: true, deleteEmptyDirData: true}
replacement:` + azure + "  surge: 6\n",
		"ducklett-control-plane": `
nodeSelector:
  matchExpressions:
  - {key: nodegroup, operator: NotIn, values: [agent, telemetry, storage]}
strategy: {maxConcurrent: 5, maxFailures: 0}
drain: {timeout: 6m, onTimeout: Force, force: true, deleteEmptyDirData: true}
replacement:` + azure + "  surge: 5\n  scaleSets: [prod-cp]\n  controlPlane: {etcd: Stacked}\n",
	}
	for name, text := range want {
		var spec v1alpha1.NodeRolloutSpec
		if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&spec, all[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		spec.Drain, spec.Strategy.MaxFailures = nil, nil
		if diff := cmp.Diff(&spec, fixed(all[name])); diff != "" {
			t.Errorf("what is kept of %s (-want +got):\n%s", name, diff)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d NodeRollouts, want %d", len(all), len(want))
	}
}

// The nodes that Ducklett selects are selected, whichever label those of the control plane have, and each by one NodeRollout.
func TestDucklettSelects(t *testing.T) {
	d, _ := as(t)
	all, err := d.rollouts(in(azureEnvironment))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		labels labels.Set
		want   string
	}{
		{labels.Set{"nodegroup": "agent"}, rolloutWorkers},
		{labels.Set{"nodegroup": "telemetry"}, rolloutWorkers},
		{labels.Set{"nodegroup": "storage"}, rolloutWorkers},
		{labels.Set{labelMaster: ""}, rolloutPlane},
		{labels.Set{labelControlPlane: ""}, rolloutPlane},
		{labels.Set{labelControlPlane: "", labelMaster: "", "nodegroup": "master"}, rolloutPlane},
		{labels.Set{labelControlPlane: "", "nodegroup": "agent"}, ""},
	} {
		got := ""
		for name, of := range all {
			selector, err := metav1.LabelSelectorAsSelector(&of.NodeSelector)
			if err != nil {
				t.Fatal(err)
			}
			if selector.Matches(tc.labels) {
				got += name
			}
		}
		if got != tc.want {
			t.Errorf("%v is selected by %q, want %q", tc.labels, got, tc.want)
		}
	}
}

// An image that is no good comes to no further node: the first turn that fails halts what is made, as nothing is tried again by itself.
func TestDucklettHalts(t *testing.T) {
	d, _ := as(t, "--worker-concurrency=6")
	all, err := d.rollouts(in(azureEnvironment))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for name, of := range all {
		asked := of.Strategy
		units := []rollout.Unit{{Node: "failed", State: v1alpha1.UnitFailed, Since: now, RetryAt: rollout.RetryAt(asked.Retries, 1, now)}}
		for _, node := range []string{"a", "b", "c"} {
			units = append(units, rollout.Unit{Node: node, State: v1alpha1.UnitOutdated})
		}
		if got := rollout.Decide(rollout.New(asked, 1, len(units)), units, rollout.Fleet{}, now); got.Halted == "" || len(got.Start) > 0 {
			t.Errorf("%s: halted is %q, and %v start", name, got.Halted, got.Start)
		}
	}
}

func TestDucklettDefaults(t *testing.T) {
	d, flags := as(t)
	if diff := cmp.Diff([]any{int64(300), int32(2), int32(3), false}, []any{d.checkPeriod, d.workerConcurrency, d.planeConcurrency, d.isUsed(flags)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, arg := range []string{"--check-period=300", "--worker-concurrency=2", "--cp-concurrency=3"} {
		if d, flags := as(t, arg); !d.isUsed(flags) {
			t.Errorf("%s asks for nothing", arg)
		}
	}
	if _, flags := as(t, "--vmodule=a=3", "--logtostderr"); d.isUsed(flags) {
		t.Error("the logger's flags ask for NodeRollouts")
	}
}

// Every flag of Ducklett's logger is taken, with one dash or two.
func TestLoggerFlags(t *testing.T) {
	args := []string{"ducklett"}
	for _, name := range loggerFlags {
		args = append(args, "-"+name+"=x", "--"+name, "x")
	}
	for _, name := range append([]string{flagVerbosity + "=3"}, loggerSwitches...) {
		args = append(args, "-"+name, "--"+name)
	}
	flags := pflag.NewFlagSet("moult", pflag.ContinueOnError)
	new(settings).bind(flags)
	if err := flags.Parse(ofPeers(args)[1:]); err != nil || flags.NArg() > 0 {
		t.Errorf("%v: %v, and %v are left", args, err, flags.Args())
	}
}

func TestDucklettProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		args        []string
		environment map[string]string
		want        string
	}{
		"nothing": {nil, nil, "$ARM_SUBSCRIPTION_ID must be given with --check-period, --worker-concurrency, --cp-concurrency\n" +
			"$ARM_RESOURCE_GROUP must be given with --check-period, --worker-concurrency, --cp-concurrency\n" +
			"$CLUSTER_NAME must be given with --check-period, --worker-concurrency, --cp-concurrency"},
	} {
		d, _ := as(t, tc.args...)
		if all, err := d.rollouts(in(tc.environment)); err == nil || err.Error() != tc.want || all != nil {
			t.Errorf("%s: error is %v, want %q", name, err, tc.want)
		}
	}
	// None at once is how Ducklett is paused.
	d, _ := as(t, "--worker-concurrency=0")
	all, err := d.rollouts(in(azureEnvironment))
	if err != nil || all[rolloutWorkers].Strategy.MaxConcurrent.IntVal != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

// The flags need their environment, and the controller that looks after what they ask for.
func TestDucklettSettings(t *testing.T) {
	for name := range azureEnvironment {
		t.Setenv(name, "")
	}
	if _, _, fatal := load(t, []string{"--check-period=30"}, nil); !strings.Contains(fmt.Sprint(errors.Join(fatal...)), "$CLUSTER_NAME must be given") {
		t.Errorf("got %v", fatal)
	}
	for name, value := range azureEnvironment {
		t.Setenv(name, value)
	}
	if s, _, fatal := load(t, []string{"--check-period=30"}, nil); len(fatal) > 0 || len(s.ducklettRollouts) != 2 {
		t.Errorf("got %v, %v", s.ducklettRollouts, fatal)
	}
	if _, _, fatal := load(t, []string{"--check-period=30", "--controllers=plan"}, nil); !strings.Contains(fmt.Sprint(errors.Join(fatal...)), "need replacement among --controllers") {
		t.Errorf("got %v", fatal)
	}
	if s, _, fatal := load(t, nil, nil); len(fatal) > 0 || len(s.ducklettRollouts) != 0 {
		t.Errorf("without the flags: %v, %v", s.ducklettRollouts, fatal)
	}
}

// The example of Ducklett's README starts with Ducklett's Secret, as examples/ducklett has them.
func TestDucklettExample(t *testing.T) {
	all, err := resource.NewLocalBuilder().Unstructured().FilenameParam(false, &resource.FilenameOptions{Kustomize: "../../examples/ducklett"}).Flatten().Do().Infos()
	if err != nil {
		t.Fatal(err)
	}
	var operator appsv1.Deployment
	var secret corev1.Secret
	for _, one := range all {
		o := one.Object.(*unstructured.Unstructured)
		into := map[string]any{"Deployment/moult": &operator, "Secret/ducklett": &secret}[o.GetKind()+"/"+o.GetName()]
		if into == nil {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
			t.Fatal(err)
		}
	}
	if operator.Namespace == "" || operator.Namespace != secret.Namespace {
		t.Fatalf("the operator is in namespace %q, its Secret in %q", operator.Namespace, secret.Namespace)
	}
	c := operator.Spec.Template.Spec.Containers[0]
	for _, e := range c.Env {
		if from := e.ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Name == secret.Name {
			e.Value = secret.StringData[from.SecretKeyRef.Key]
		}
		t.Setenv(e.Name, e.Value)
	}
	called := slices.Concat(c.Command, c.Args)
	if diff := cmp.Diff([]string{"./ducklett", "--check-period=30", "--concurrency=2", "--v=3"}, called); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	args := ofPeers(called)
	s, problems, fatal := load(t, args[1:], nil)
	if len(problems)+len(fatal) > 0 || args[0] != "controller" || s.level() != -3 {
		t.Fatalf("moult %v: level %d, %v, %v", args, s.level(), problems, fatal)
	}
	for name, concurrency := range map[string]int32{rolloutWorkers: 2, rolloutPlane: 3} {
		r := s.ducklettRollouts[name]
		azure := r.Replacement.Provider.Azure
		if r.Strategy.MaxConcurrent.IntVal != concurrency || r.Replacement.CheckPeriod.Duration != 30*time.Second || azure.Credential != v1alpha1.AzureCredentialManaged ||
			azure.SubscriptionID != secret.StringData["SubscriptionID"] || azure.ResourceGroup != secret.StringData["ResourceGroup"] {
			t.Errorf("%s is %+v", name, r)
		}
	}
	// etcd's certificates are where Ducklett has them mounted.
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == s.etcdCertificates }) {
		t.Errorf("%s is not among the mounts %v", s.etcdCertificates, c.VolumeMounts)
	}
}

// TestAPIDucklettKeeps runs the keeper of the NodeRollouts against a real API server.
func TestAPIDucklettKeeps(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	shared := cluster.Shared(t, 0)
	cfg := shared.Config()
	if err := installCRDs(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	m, err := ctrl.NewManager(asOverlay(t, shared, "replacement/ducklett"), ctrl.Options{
		Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Cache:      cache.Options{ByObject: turn.CacheOptions()},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // The test may be run more than once in a process.
	})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := as(t)
	all, err := d.rollouts(in(azureEnvironment))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&keeper{client: m.GetClient(), rollouts: all}).SetupWithManager(m); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for name := range all {
			if err := c.Delete(context.WithoutCancel(t.Context()), nodeRollout(name)); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	doesNotHalfMake(t, c, all)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	get := func(name string) (*v1alpha1.NodeRollout, error) {
		nr := &v1alpha1.NodeRollout{}
		return nr, c.Get(ctx, types.NamespacedName{Name: name}, nr)
	}
	await := func(what, name string, holds func(*v1alpha1.NodeRollout) bool) *v1alpha1.NodeRollout {
		t.Helper()
		var last *v1alpha1.NodeRollout
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
			nr, err := get(name)
			last = nr
			return err == nil && holds(nr), client.IgnoreNotFound(err)
		}); err != nil {
			t.Fatalf("%s: %v; %+v", what, err, last)
		}
		return last
	}
	made := await("made", rolloutWorkers, func(*v1alpha1.NodeRollout) bool { return true })
	await("made", rolloutPlane, func(nr *v1alpha1.NodeRollout) bool { return nr.Spec.Replacement.ScaleSets[0] == "prod-cp" })
	if d := made.Spec.Drain; d == nil || d.Timeout.Duration != 6*time.Minute || d.OnTimeout != "Force" || !d.Force {
		t.Errorf("drain is %+v", d)
	}
	if s := made.Spec.Strategy; s.MaxFailures == nil || s.MaxFailures.IntVal != 0 || s.Retries != nil {
		t.Errorf("strategy is %+v", s)
	}

	// What the flags say is put back; what they do not say can be changed.
	patch := func(body string) {
		t.Helper()
		nr := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: rolloutWorkers}}
		if err := c.Patch(ctx, nr, client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner("a-person")); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"spec":{"strategy":{"maxConcurrent":50,"soak":"5m","retries":{"limit":3}},"drain":{"timeout":"20m","onTimeout":"Halt"},"replacement":{"surge":0,"rollback":true}}}`)
	now := await("put back", rolloutWorkers, func(nr *v1alpha1.NodeRollout) bool {
		return nr.Spec.Strategy.MaxConcurrent.IntVal == 2 && nr.Spec.Replacement.Surge.IntVal == 2
	})
	if now.Spec.Drain.Timeout.Duration != 20*time.Minute || now.Spec.Drain.OnTimeout != "Halt" || now.Spec.Strategy.Soak.Duration != 5*time.Minute ||
		!now.Spec.Replacement.Rollback || now.Spec.Strategy.Retries == nil || now.Spec.Strategy.MaxFailures == nil {
		t.Errorf("what a person has changed is lost: %+v", now.Spec)
	}

	// One that is deleted is made again, and one of another owner is not changed.
	if err := c.Delete(ctx, now); err != nil {
		t.Fatal(err)
	}
	again := await("made again", rolloutWorkers, func(nr *v1alpha1.NodeRollout) bool { return nr.UID != now.UID })
	if d := again.Spec.Drain; d == nil || d.Timeout.Duration != 6*time.Minute || again.Spec.Strategy.MaxFailures == nil {
		t.Errorf("it is made again with half of its settings: %+v", again.Spec)
	}
	if _, err := get("ducklett-others"); !apierrors.IsNotFound(err) {
		t.Errorf("there is another: %v", err)
	}
	var list v1alpha1.NodeRolloutList
	if err := c.List(ctx, &list); err != nil || len(list.Items) != 2 {
		t.Errorf("%d NodeRollouts, %v", len(list.Items), err)
	}
}

// doesNotHalfMake deletes a NodeRollout between the keeper's reading and writing: what is written must not make one that lacks what is set only when
// one is made.
func doesNotHalfMake(t *testing.T, c client.WithWatch, all map[string]*v1alpha1.NodeRolloutSpec) {
	t.Helper()
	late := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			return c.Delete(ctx, nodeRollout(key.Name))
		},
	})
	k := &keeper{client: late, rollouts: all}
	r := reconcile.Request{NamespacedName: types.NamespacedName{Name: rolloutWorkers}}
	if _, err := k.Reconcile(t.Context(), r); err != nil {
		t.Fatal("making it:", err)
	}
	if _, err := k.Reconcile(t.Context(), r); !apierrors.IsConflict(err) {
		t.Errorf("writing one that was deleted meanwhile: %v, want a conflict", err)
	}
	if err := c.Get(t.Context(), r.NamespacedName, nodeRollout(r.Name)); !apierrors.IsNotFound(err) {
		t.Errorf("one that was deleted meanwhile is there: %v", err)
	}
}
