// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/test/cluster"
)

const hash = "abcdef0123456789"

// bench is a namespace of a real cluster.
type bench struct {
	client.Client
	t         *testing.T
	config    *rest.Config
	namespace string
}

// Load implements source.Config.
func (b *bench) Load() (*rest.Config, string, error) { return b.config, b.namespace, nil }

// TestAPI runs the commands against a real API server.
func TestAPI(t *testing.T) {
	config := cluster.Shared(t, 0).Config()
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme, upgradev1.AddToScheme, edsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	install(t, c)
	for name, test := range map[string]func(*bench){
		"pause":   pauseAndResume,
		"keeps":   resumeKeepsWhatPauseDidNotMake,
		"budget":  pauseABudget,
		"dryrun":  dryRunsWriteNothing,
		"approve": approveWhatWaits,
		"editor":  approveAsAnEditor,
		"refuses": approveRefuses,
		"node":    retryANode,
		"plan":    retryAPlan,
		"names":   retryOfAmbiguousNames,
		"where":   aPlanElsewhere,
		"daemon":  pauseADaemonSet,
		"canary":  approveADaemonSet,
		"either":  bareNames,
		"hosts":   steerANodeRollout,
		"retries": retryANodeRollout,
		"turns":   retryMachines,
		"abort":   abortAPlan,
		"fails":   abortACanary,
		"undo":    undoAPlan,
		"back":    undoADaemonSet,
		"older":   undoANodeRollout,
		"lists":   listAndShowEvents,
		"check":   checkTheInstallation,
		"pages":   showPages,
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{Client: c, t: t, config: config, namespace: "steer-" + name}
			b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
			test(b)
		})
	}
}

// install creates the definitions and waits until the API server serves the kinds.
func install(t *testing.T, c client.Client) {
	t.Helper()
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if err := c.Create(t.Context(), d); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for _, list := range []client.ObjectList{&upgradev1.PlanList{}, &edsv1.ExtendedDaemonSetList{}, &v1alpha1.NodeRolloutList{}, &v1alpha1.NodeDisruptionBudgetList{}} {
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			return c.List(ctx, list) == nil, nil
		}); err != nil {
			t.Fatalf("waiting for %T: %v", list, err)
		}
	}
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), o); err != nil && !apierrors.IsNotFound(err) {
			b.t.Error(err)
		}
	})
}

func (b *bench) plan(name string, strategy *v1alpha1.Strategy, status ...func(*upgradev1.PlanStatus)) *upgradev1.Plan {
	b.t.Helper()
	p := &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: upgradev1.PlanSpec{
			Concurrency: 1, Version: "v1", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": b.namespace}},
			Upgrade: &upgradev1.ContainerSpec{Image: "i"}, Strategy: strategy,
		},
	}
	b.create(p)
	p.Status.LatestHash = hash
	p.Status.SetCondition(upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionFalse, Reason: upgradev1.ReasonSyncJob}, now)
	for _, change := range status {
		change(&p.Status)
	}
	if err := b.Status().Update(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// node is one with a failed claim of each of these Plans.
func (b *bench) node(name string, of ...*upgradev1.Plan) *corev1.Node {
	b.t.Helper()
	var claims []v1alpha1.Claim
	for _, p := range of {
		w, err := plan.NewWorld(p)
		if err != nil {
			b.t.Fatal(err)
		}
		claims = append(claims, v1alpha1.Claim{
			Rollout: w.Holder, UID: p.UID, Attempt: w.Attempt(&corev1.Node{}), Shared: true, Turn: "1", Since: metav1.Time{Time: now},
			Failed: &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Time: metav1.Time{Time: now}},
		})
	}
	value, err := v1alpha1.FormatClaims(claims)
	if err != nil {
		b.t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, "of": b.namespace}, Annotations: map[string]string{v1alpha1.AnnotationClaims: value},
	}}
	if len(of) == 0 {
		n.Annotations = nil
	}
	b.create(n)
	return n
}

// run runs a command line. It returns what was written, or the error.
func (b *bench) run(args ...string) string {
	b.t.Helper()
	var out bytes.Buffer
	root := NewCommand(clocktesting.NewFakeClock(now), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, b)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	if err := root.ExecuteContext(b.t.Context()); err != nil {
		return "error: " + err.Error()
	}
	return out.String()
}

// says runs a command line and compares what it says.
func (b *bench) says(want string, args ...string) {
	b.t.Helper()
	if got := strings.TrimSuffix(b.run(args...), "\n"); got != want {
		b.t.Errorf("%v says\n\t%s\nwant\n\t%s", args, got, want)
	}
}

// read reads an object anew.
func read[T client.Object](b *bench, o T) T {
	b.t.Helper()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		b.t.Fatal(err)
	}
	return o
}

func pauseAndResume(b *bench) {
	p := b.plan("p", nil)
	b.says("plan.upgrade.cattle.io/p is not paused", "resume", "p")
	b.says("plan.upgrade.cattle.io/p paused", "pause", "plan/p")
	if s := read(b, p).Spec.Strategy; s == nil || !s.Paused {
		b.t.Errorf("strategy: %+v", s)
	}
	b.says("plan.upgrade.cattle.io/p is paused already", "pause", "p")
	b.says("plan.upgrade.cattle.io/p resumed", "resume", "plan.upgrade.cattle.io/p")
	latest := &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "p"}}
	if s := read(b, latest).Spec.Strategy; s != nil {
		b.t.Errorf("a strategy is left: %+v", s)
	}
	b.says(`error: "pod/p" names no Plan, ExtendedDaemonSet, NodeRollout or NodeDisruptionBudget: the word before the slash must be plan, extendeddaemonset, noderollout or nodedisruptionbudget`, "pause", "pod/p")
}

func resumeKeepsWhatPauseDidNotMake(b *bench) {
	p := b.plan("p", &v1alpha1.Strategy{Soak: &metav1.Duration{Duration: time.Minute}})
	b.says("plan.upgrade.cattle.io/p paused", "pause", "p")
	b.says("plan.upgrade.cattle.io/p resumed", "resume", "p")
	if s := read(b, p).Spec.Strategy; s == nil || s.Paused || s.Soak == nil {
		b.t.Errorf("strategy: %+v", s)
	}
}

func pauseABudget(b *bench) {
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "production"}}
	b.create(budget)
	b.says("nodedisruptionbudget.moult.dev/production paused", "pause", "ndb/production")
	if !read(b, budget).Spec.Paused {
		b.t.Error("it is not paused")
	}
	b.says("nodedisruptionbudget.moult.dev/production resumed", "resume", "nodedisruptionbudgets.moult.dev/production")
	latest := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "production"}}
	if read(b, latest).Spec.Paused {
		b.t.Error("it is paused")
	}
	b.says(`error: NodeDisruptionBudget staging not found`, "pause", "ndb/staging")
}

func dryRunsWriteNothing(b *bench) {
	p := b.plan("p", nil)
	b.says("plan.upgrade.cattle.io/p paused (dry run)", "pause", "p", "--dry-run=client")
	b.says("plan.upgrade.cattle.io/p paused (server dry run)", "pause", "p", "--dry-run=server")
	if s := read(b, p).Spec.Strategy; s != nil {
		b.t.Errorf("strategy: %+v", s)
	}
	if got := b.run("pause", "p", "--dry-run=yes"); !strings.Contains(got, `it must be none, client or server`) {
		b.t.Error(got)
	}
}

func waits(state v1alpha1.WaveState, message string) func(*upgradev1.PlanStatus) {
	return func(s *upgradev1.PlanStatus) {
		s.Wave = &v1alpha1.WaveStatus{
			Name: "canary", Number: 1, Of: 2, Revision: hash, State: state, Since: metav1.Time{Time: now}, Message: message,
			Nodes: 1, Updated: 1, ApproveWith: "canary@abcdef0123",
		}
	}
}

var canary = &v1alpha1.Strategy{Waves: []v1alpha1.Wave{{
	Name: "canary", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}, Approval: v1alpha1.ApprovalManual,
}}}

func approveWhatWaits(b *bench) {
	p := b.plan("p", canary, waits(v1alpha1.WaveWaitingForApproval, ""))
	b.says("error: plan.upgrade.cattle.io/p: it is wave canary (1 of 2) that is current, not zone-b", "approve", "p", "--wave", "zone-b")
	b.says("plan.upgrade.cattle.io/p wave canary (1 of 2) approved (dry run)", "approve", "p", "--dry-run=client")
	b.says("plan.upgrade.cattle.io/p wave canary (1 of 2) approved", "approve", "p", "--wave=canary")
	if got := read(b, p); got.Status.Approval == nil || got.Status.Approval.Of != "canary@abcdef0123" || got.Status.Approval.By == "" || len(got.Annotations) > 0 {
		b.t.Errorf("approved %+v, %v", got.Status.Approval, got.Annotations)
	}
	b.says("plan.upgrade.cattle.io/p: wave canary is approved already", "approve", "p")
}

// Who may edit a rollout and not patch its status approves by the annotation.
func approveAsAnEditor(b *bench) {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{upgradev1.GroupVersion.Group}, Resources: []string{"plans"}, Verbs: []string{"get", "patch"}}}
	b.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "editor"}, Rules: rules})
	b.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "editor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "steer-editor"}},
	})
	p := b.plan("p", canary, waits(v1alpha1.WaveWaitingForApproval, ""))
	b.config = rest.CopyConfig(b.config)
	b.config.Impersonate = rest.ImpersonationConfig{UserName: "steer-editor", Groups: []string{"system:authenticated"}}
	if err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return strings.Contains(b.run("approve", "plan/p", "--dry-run=server"), "approved"), nil
	}); err != nil {
		b.t.Fatal("the role does not count: ", b.run("approve", "plan/p", "--dry-run=server"))
	}
	b.says("plan.upgrade.cattle.io/p wave canary (1 of 2) approved", "approve", "plan/p")
	if got := read(b, p); got.Status.Approval != nil || got.Annotations[v1alpha1.AnnotationApprove] != "canary@abcdef0123" {
		b.t.Errorf("approved %+v, %v", got.Status.Approval, got.Annotations)
	}
	b.says("plan.upgrade.cattle.io/p: wave canary is approved already", "approve", "plan/p")
}

func approveRefuses(b *bench) {
	b.plan("none", nil)
	b.says("error: plan.upgrade.cattle.io/none: it has no waves, or the operator has not begun with them, so there is nothing to approve", "approve", "none")
	b.plan("new", canary)
	b.says("error: plan.upgrade.cattle.io/new: it has no waves, or the operator has not begun with them, so there is nothing to approve", "approve", "new")
	b.plan("soaks", canary, waits(v1alpha1.WaveSoaking, "wave 1 (canary) soaks until noon"))
	b.says("error: plan.upgrade.cattle.io/soaks: wave canary (1 of 2) does not wait for approval, it is Soaking: wave 1 (canary) soaks until noon", "approve", "soaks")
	b.plan("old", canary, waits(v1alpha1.WaveWaitingForApproval, ""), func(s *upgradev1.PlanStatus) { s.LatestHash = "another" })
	b.says("error: plan.upgrade.cattle.io/old: wave canary waits at an older revision: the rollout has changed, and begins at its first wave", "approve", "old")
	b.says(`error: Plan steer-refuses/nowhere not found`, "approve", "nowhere")
}

const stamp = "2026-11-20T12:00:00Z"

func retryANode(b *bench) {
	one, two := b.plan("one", nil), b.plan("two", nil)
	n := b.node("retried", one, two)
	b.says("error: on node retried have failed as well, and would be retried too: steer-node/two (JobFailed); leave --rollout out to retry all", "retry", "retried", "--rollout", "one")
	b.says("error: rollout three has not failed on node retried, so there is nothing to retry", "retry", "retried", "--rollout", "three")
	if got := read(b, n).Annotations[v1alpha1.AnnotationRetry]; got != "" {
		b.t.Errorf("refused, and yet annotated: %q", got)
	}
	b.says("node/retried is retried: steer-node/one (JobFailed), steer-node/two (JobFailed)", "retry", "retried")
	if got := read(b, n).Annotations[v1alpha1.AnnotationRetry]; got != stamp {
		b.t.Errorf("annotated %q", got)
	}
	b.node("single", two)
	b.says("node/single is retried: steer-node/two (JobFailed)", "retry", "node/single", "--rollout=plan/two")
	b.node("healthy")
	b.says("error: nothing has failed on node healthy, so there is nothing to retry", "retry", "healthy")
	b.says(`error: Node nowhere not found, and Plan steer-node/nowhere not found`, "retry", "nowhere")
}

func retryAPlan(b *bench) {
	p := b.plan("p", nil)
	b.says("error: nothing has failed of plan.upgrade.cattle.io/p, so there is nothing to retry", "retry", "p")
	b.node("failed-1", p)
	b.node("failed-2", p)
	b.says("plan.upgrade.cattle.io/p is retried: failed-1 (JobFailed), failed-2 (JobFailed) (server dry run)", "retry", "p", "--dry-run=server")
	b.says("error: --rollout goes with the name of a node", "retry", "p", "--rollout", "p")
	b.says("plan.upgrade.cattle.io/p is retried: failed-1 (JobFailed), failed-2 (JobFailed)", "retry", "p")
	if got := read(b, p).Annotations[v1alpha1.AnnotationRetry]; got != stamp {
		b.t.Errorf("annotated %q", got)
	}
}

func retryOfAmbiguousNames(b *bench) {
	p := b.plan("both", nil)
	b.node("both", p)
	b.says(`error: several objects are named "both": say node/both or plan/both`, "retry", "both")
	b.says("node/both is retried: steer-names/both (JobFailed)", "retry", "node/both")
}

func aPlanElsewhere(b *bench) {
	b.plan("p", nil)
	b.namespace = "default"
	b.says(`error: Plan default/p not found; Plan p is in steer-where: use -n`, "pause", "p")
	b.says(`error: Node p not found, and Plan default/p not found; Plan p is in steer-where: use -n`, "retry", "p")
}

// daemon is an ExtendedDaemonSet with a canary, in which state its wave may be.
func (b *bench) daemon(name string, wave *v1alpha1.WaveStatus) *edsv1.ExtendedDaemonSet {
	b.t.Helper()
	d := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if wave != nil {
		d.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{ValidationMode: edsv1.ValidationModeManual}
	}
	b.create(d)
	d.Status.ObservedGeneration, d.Status.Wave = d.Generation, wave
	if err := b.Status().Update(b.t.Context(), d); err != nil {
		b.t.Fatal(err)
	}
	return d
}

func pauseADaemonSet(b *bench) {
	d := b.daemon("d", nil)
	b.says("extendeddaemonset.datadoghq.com/d is not paused", "resume", "eds/d")
	b.says("extendeddaemonset.datadoghq.com/d paused (server dry run)", "pause", "eds/d", "--dry-run=server")
	b.says("extendeddaemonset.datadoghq.com/d paused", "pause", "extendeddaemonset/d")
	if !read(b, d).Spec.Strategy.Paused {
		b.t.Error("it is not paused")
	}
	b.says("extendeddaemonset.datadoghq.com/d is paused already", "pause", "extendeddaemonsets.datadoghq.com/d")
	// spec.strategy must be there, and stays.
	b.says("extendeddaemonset.datadoghq.com/d resumed", "resume", "eds/d")
	latest := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "d"}}
	if read(b, latest).Spec.Strategy.Paused {
		b.t.Error("it is paused")
	}
	latest.Annotations = map[string]string{edsv1.AnnotationRolloutFrozen: edsv1.True}
	if err := b.Update(b.t.Context(), latest); err != nil {
		b.t.Fatal(err)
	}
	b.says("extendeddaemonset.datadoghq.com/d is not paused\n"+
		"annotation extendeddaemonset.datadoghq.com/rollout-frozen still pauses it: kubectl eds unfreeze-rollout d -n steer-daemon", "resume", "eds/d")
	b.says(`error: ExtendedDaemonSet steer-daemon/x not found`, "pause", "eds/x")
	b.says(`error: "eds/d" names no Node, Plan or NodeRollout: the word before the slash must be node, plan or noderollout`, "retry", "eds/d")
}

func approveADaemonSet(b *bench) {
	wave := &v1alpha1.WaveStatus{
		Name: "canary", Number: 1, Of: 2, Revision: hash, State: v1alpha1.WaveWaitingForApproval, Since: metav1.Time{Time: now}, Nodes: 1, Updated: 1, ApproveWith: "canary@abcdef0123",
	}
	d := b.daemon("d", wave)
	b.says("error: extendeddaemonset.datadoghq.com/d: it is wave canary (1 of 2) that is current, not first", "approve", "eds/d", "--wave=first")
	b.says("extendeddaemonset.datadoghq.com/d wave canary (1 of 2) approved", "approve", "eds/d")
	if got := read(b, d).Status.Approval; got == nil || got.Of != "canary@abcdef0123" {
		b.t.Errorf("approved %+v", got)
	}
	b.says("extendeddaemonset.datadoghq.com/d: wave canary is approved already", "approve", "eds/d")
	d.Spec.Template.Spec.Containers[0].Image = "another"
	if err := b.Update(b.t.Context(), d); err != nil {
		b.t.Fatal(err)
	}
	b.says("error: extendeddaemonset.datadoghq.com/d: wave canary waits at an older revision: the rollout has changed, and begins at its first wave", "approve", "eds/d")
	b.daemon("plain", nil)
	b.says("error: extendeddaemonset.datadoghq.com/plain: it has no waves, or the operator has not begun with them, so there is nothing to approve",
		"approve", "eds/plain")
}

// bareNames are Plans', and where there is none those of ExtendedDaemonSets.
func bareNames(b *bench) {
	b.daemon("d", nil)
	b.says("extendeddaemonset.datadoghq.com/d paused", "pause", "d")
	b.plan("d", nil)
	b.says(`error: several objects are named "d": say plan/d or eds/d`, "pause", "d")
	b.says("plan.upgrade.cattle.io/d paused", "pause", "plan/d")
	b.says(`error: Plan steer-either/nothing not found`, "pause", "nothing")
	b.namespace = "default"
	b.says(`error: Plan default/d not found; Plan d is in steer-either: use -n; ExtendedDaemonSet d is in steer-either: use -n`, "approve", "d")
}
