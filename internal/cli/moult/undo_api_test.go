// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
)

// abortAPlan pauses it, and says how to release the node that is only drained.
func abortAPlan(b *bench) {
	p := b.plan("p", nil, func(s *upgradev1.PlanStatus) {
		for i, phase := range []v1alpha1.Phase{v1alpha1.PhaseDraining, v1alpha1.PhaseChanging} {
			s.Updating = append(s.Updating, v1alpha1.UnitStatus{Node: []string{"draining", "changing"}[i], Phase: phase, Since: &metav1.Time{Time: now}})
		}
	})
	w, err := plan.NewWorld(p)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range []string{"draining", "changing"} {
		value, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{
			Rollout: w.Holder, UID: p.UID, Attempt: w.Attempt(&corev1.Node{}), Shared: true, Turn: "1", Since: metav1.Time{Time: now.Add(-time.Minute)},
		}})
		if err != nil {
			b.t.Fatal(err)
		}
		n := b.node(name)
		before := client.MergeFrom(n.DeepCopy())
		n.Annotations = map[string]string{v1alpha1.AnnotationClaims: value}
		if err := b.Patch(b.t.Context(), n, before); err != nil {
			b.t.Fatal(err)
		}
	}
	b.says(`plan.upgrade.cattle.io/p paused
  changing  Changing  goes on to its end
  draining  Draining  goes on to its end
  → release those that are not changed yet: kubectl label node draining --overwrite plan.upgrade.cattle.io/p=disabled
  → remove the label before you resume: kubectl label node draining plan.upgrade.cattle.io/p-`, "abort", "p")
	if s := read(b, p).Spec.Strategy; s == nil || !s.Paused {
		b.t.Errorf("strategy: %+v", s)
	}
	b.plan("idle", nil)
	b.says("plan.upgrade.cattle.io/idle paused (dry run)\n  no node is in a turn", "abort", "plan/idle", "--dry-run=client")
}

// revision is an ExtendedDaemonSetReplicaSet of an ExtendedDaemonSet with this image.
func (b *bench) revision(d *edsv1.ExtendedDaemonSet, name, image string, status edsv1.ExtendedDaemonSetReplicaSetStatus) *edsv1.ExtendedDaemonSetReplicaSet {
	b.t.Helper()
	rs := &edsv1.ExtendedDaemonSetReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.namespace, Name: name, Labels: map[string]string{edsv1.LabelName: d.Name}, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(d, edsv1.GroupVersion.WithKind("ExtendedDaemonSet")),
		},
	}}
	rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
	b.create(rs)
	rs.Status = status
	if err := b.Status().Update(b.t.Context(), rs); err != nil {
		b.t.Fatal(err)
	}
	return rs
}

// abortACanary fails it, and pauses nothing: a pause would keep the canary's nodes from going back.
func abortACanary(b *bench) {
	d := b.daemon("d", &v1alpha1.WaveStatus{Name: "canary", Number: 1, Of: 2, State: v1alpha1.WaveProgressing, Since: metav1.Time{Time: now}})
	rs := b.revision(d, "d-new", "i", edsv1.ExtendedDaemonSetReplicaSetStatus{Status: edsv1.ReplicaSetCanary})
	d.Status.ActiveReplicaSet, d.Status.Canary = "d-old", &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "d-new"}
	if err := b.Status().Update(b.t.Context(), d); err != nil {
		b.t.Fatal(err)
	}
	const said = "extendeddaemonset.datadoghq.com/d canary d-new failed: its nodes return to d-old"
	for _, dryRun := range []string{"client", "server"} {
		b.run("abort", "d", "--dry-run="+dryRun)
		if edsv1.IsConditionTrue(read(b, rs).Status.Conditions, edsv1.ConditionCanaryFailed) {
			b.t.Errorf("a dry run failed the canary: %s", dryRun)
		}
	}
	b.says(said, "abort", "eds/d")
	if !edsv1.IsConditionTrue(read(b, rs).Status.Conditions, edsv1.ConditionCanaryFailed) || read(b, d).Spec.Strategy.Paused {
		b.t.Errorf("%+v, paused %v", rs.Status.Conditions, d.Spec.Strategy.Paused)
	}
}

func undoAPlan(b *bench) {
	last := func(version, hash string) func(*upgradev1.PlanStatus) {
		return func(s *upgradev1.PlanStatus) {
			s.LatestVersion, s.LastComplete = "v1", &upgradev1.PlanRevision{Version: version, Hash: hash}
		}
	}
	p := b.plan("p", nil, last("v0", "before"))
	b.says("plan.upgrade.cattle.io/p returns to v0 (server dry run)", "undo", "p", "--dry-run=server")
	b.says("plan.upgrade.cattle.io/p returns to v0", "undo", "p")
	if got := read(b, p).Spec.Version; got != "v0" {
		b.t.Errorf("version %s", got)
	}
	b.plan("complete", nil, last("v1", hash))
	b.says("error: plan.upgrade.cattle.io/complete: no version before this one is known that all nodes had: set the version in the spec", "undo", "complete")
	run := func(revision string, result v1alpha1.RunResult) v1alpha1.Run {
		return v1alpha1.Run{Revision: revision, Result: result, CreatedAt: metav1.Time{Time: now}}
	}
	history := func(before ...v1alpha1.Run) func(*upgradev1.PlanStatus) {
		return func(s *upgradev1.PlanStatus) {
			s.History = append([]v1alpha1.Run{run("v1@"+hash[:8], v1alpha1.RunComplete)}, before...)
		}
	}
	v08 := run("v0.8@00000000", v1alpha1.RunComplete)
	b.plan("again", nil, last("v1", hash), history(run("v0.9@00000000", v1alpha1.RunSuperseded), v08, run("v0.7@00000000", v1alpha1.RunComplete)))
	b.says("plan.upgrade.cattle.io/again returns to v0.8", "undo", "again")
	for name, set := range map[string]func(*upgradev1.PlanStatus){
		"secret": history(run("v1@11111111", v1alpha1.RunComplete), v08), // Only the hash is another.
		"new":    func(*upgradev1.PlanStatus) {},
	} {
		b.plan(name, nil, last("v1", hash), set)
		b.says("error: plan.upgrade.cattle.io/"+name+": no version before this one is known that all nodes had: set the version in the spec", "undo", name)
	}
	b.plan("rotating", nil, last("v1", "11111111"), func(s *upgradev1.PlanStatus) { s.History = []v1alpha1.Run{v08} })
	b.says("error: plan.upgrade.cattle.io/rotating: no version before this one is known that all nodes had: set the version in the spec", "undo", "rotating")
	b.plan("back", nil, last("v0", "before"), func(s *upgradev1.PlanStatus) { s.RolledBack = &upgradev1.PlanRevision{Version: "v2", Hash: "failed"} })
	b.says("error: plan.upgrade.cattle.io/back: it has been rolled back to v1: set that version in the spec", "undo", "back")
}

func undoADaemonSet(b *bench) {
	d := b.daemon("d", nil)
	b.says("error: the ExtendedDaemonset has no earlier revision to go back to: see kubectl eds history", "undo", "eds/d")
	b.revision(d, "d-old", "older", edsv1.ExtendedDaemonSetReplicaSetStatus{})
	b.revision(d, "d-new", "i", edsv1.ExtendedDaemonSetReplicaSetStatus{})
	b.says("extendeddaemonset.datadoghq.com/d returns to d-old", "undo", "eds/d")
	if got := read(b, d).Spec.Template.Spec.Containers[0].Image; got != "older" {
		b.t.Errorf("image %s", got)
	}
}

func undoANodeRollout(b *bench) {
	nr := b.nodeRollout("older", nil, nil)
	b.says("error: noderollout.moult.dev/older: no version before this one is known that all nodes had: set the version in the spec", "undo", "nr/older")
	nr.Status.LastComplete = "1.19.0"
	if err := b.Status().Update(b.t.Context(), nr); err != nil {
		b.t.Fatal(err)
	}
	b.says("noderollout.moult.dev/older returns to 1.19.0; hosts that run a newer version go back only if they offer this one", "undo", "nr/older")
	if got := read(b, nr).Spec.HostUpdate.Version; got != "1.19.0" {
		b.t.Errorf("version %s", got)
	}
	nr = b.nodeRollout("complete", nil, nil)
	nr.Status.LastComplete = nr.Status.Revision
	for _, version := range []string{nr.Status.Revision, "1.18.0"} {
		nr.Status.History = append(nr.Status.History, v1alpha1.Run{Revision: version, Result: v1alpha1.RunComplete, CreatedAt: metav1.Time{Time: now}})
	}
	if err := b.Status().Update(b.t.Context(), nr); err != nil {
		b.t.Fatal(err)
	}
	b.says("noderollout.moult.dev/complete returns to 1.18.0; hosts that run a newer version go back only if they offer this one", "undo", "nr/complete")
}

func listAndShowEvents(b *bench) {
	p := b.plan("p", nil)
	b.daemon("d", nil)
	b.says("ExtendedDaemonSet d,Plan p,", "list", "-o", "go-template={{range .items}}{{if .metadata.namespace}}{{.kind}} {{.metadata.name}},{{end}}{{end}}")
	for _, e := range []*corev1.Event{
		{InvolvedObject: corev1.ObjectReference{Kind: "Plan", Namespace: b.namespace, Name: "p", UID: p.UID}, Reason: "SyncJob", Message: "Started", LastTimestamp: metav1.Time{Time: now}},
		{InvolvedObject: corev1.ObjectReference{Kind: "Plan", Namespace: b.namespace, Name: "x", UID: "x"}, Reason: "Other", LastTimestamp: metav1.Time{Time: now}},
	} {
		e.Namespace, e.GenerateName = b.namespace, "e-"
		b.create(e)
	}
	b.says("LAST SEEN   TYPE   REASON    OBJECT   MESSAGE\n0s                 SyncJob   plan/p   Started", "events", "p")
}

// checkTheInstallation of a cluster that has the definitions, first without an operator, then with one that may do nothing.
func checkTheInstallation(b *bench) {
	check := func(name string) {
		var out bytes.Buffer
		root := NewCommand(clocktesting.NewFakeClock(now), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, b)
		root.Version = "v1.2.3"
		root.SetArgs([]string{"check"})
		if err := root.ExecuteContext(b.t.Context()); err == nil || err.Error() != "there are problems" {
			b.t.Errorf("it ends with %v", err)
		}
		golden(b.t, "check/"+name, out.Bytes())
	}
	check("api-server")
	b.says("no Deployment has the label app.kubernetes.io/name=moult\nCOMPONENT   VERSION   NOTE\nplugin                ", "version")
	labels := map[string]string{"app.kubernetes.io/name": "moult"}
	b.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "moult", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Replicas: ptr.To[int32](0),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "moult", upgradev1.LabelController: "suc"}},
			Spec:       corev1.PodSpec{ServiceAccountName: "moult", Containers: []corev1.Container{{Name: "moult", Image: "moult:v1.2.0"}}},
		},
	}})
	check("api-server-operator")
	b.says("error: the operator may not read Secret "+b.namespace+"/moult-notifications: apply config/rbac/notifications.yaml, and restart it",
		"notify", "--test")
}
