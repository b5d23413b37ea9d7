// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// leftTemplate is a template as ExtendedDaemonSet hashes it, to the byte: the JSON of Kubernetes 0.31, in which an ampersand
// is escaped and creationTimestamp is null.
const leftTemplate = `{"metadata":{"creationTimestamp":null,"labels":{"app":"agent"}},"spec":{"containers":[{"name":"daemon",` +
	`"image":"moult.dev/busybox:dev","command":["sh","-c","trap 'exit 0' TERM; sleep 3600 \u0026 wait $!"],` +
	`"env":[{"name":"VERSION","value":"%s"}],"resources":{"requests":{"cpu":"5m"}},"imagePullPolicy":"Never"}],"terminationGracePeriodSeconds":5}}`

// leftStrategy is what ExtendedDaemonSet writes into a spec: every default.
const leftStrategy = `
rollingUpdate:
  maxUnavailable: 1
  maxPodSchedulerFailure: 0
  maxParallelPodCreation: 250
  slowStartIntervalDuration: 1m0s
  slowStartAdditiveIncrease: 1
canary:
  replicas: 1
  duration: 10m0s
  nodeSelector: {matchLabels: {}}
  autoPause: {enabled: true, maxRestarts: 2}
  autoFail: {enabled: true, maxRestarts: 5}
  noRestartsDuration: 5m0s
  validationMode: auto
reconcileFrequency: 2s
`

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// leave makes what ExtendedDaemonSet's controller has left in the middle of a canary: v1 is active, and v2 is tried on the
// second node. The first node has other resources by an annotation.
func (d *daemons) leave(t *testing.T, overridden string) {
	t.Helper()
	e := d.daemon()
	if err := yaml.UnmarshalStrict([]byte(leftStrategy), &e.Spec.Strategy); err != nil {
		t.Fatal(err)
	}
	template := func(version string) (s corev1.PodTemplateSpec, hash string) {
		text := fmt.Sprintf(leftTemplate, version)
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		return s, md5Of(text)
	}
	e.Spec.Template, _ = template("v2")
	d.create(t, e)
	condition := func(kind string) []edsv1.Condition {
		return []edsv1.Condition{{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(), LastUpdateTime: metav1.Now()}}
	}
	for i, status := range []edsv1.ExtendedDaemonSetReplicaSetStatus{
		{Status: edsv1.ReplicaSetActive, Desired: 2, Current: 2, Ready: 2, Available: 2, Conditions: condition(edsv1.ConditionActive)},
		{Status: edsv1.ReplicaSetCanary, Desired: 1, Current: 1, Ready: 1, Available: 1, Conditions: condition(edsv1.ConditionCanary)},
	} {
		spec, hash := template(fmt.Sprintf("v%d", i+1))
		r := &edsv1.ExtendedDaemonSetReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: d.namespace, Name: fmt.Sprintf("agent-x8z%d", i), GenerateName: "agent-",
				Labels: map[string]string{edsv1.LabelName: agent}, Annotations: map[string]string{edsv1.AnnotationTemplateHash: hash},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))},
			},
			Spec: edsv1.ExtendedDaemonSetReplicaSetSpec{Selector: d.selector, Template: spec, TemplateGeneration: hash},
		}
		d.create(t, r)
		for j, node := range d.nodes {
			if (j == 1) != (i == 1) {
				continue
			}
			p := leftPod(r, node)
			if i == 1 {
				p.Labels[edsv1.LabelReplicaSetCanary] = edsv1.True
			}
			if j == 0 {
				p.Annotations[edsv1.AnnotationNodeHash] = overridden
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("6m")
			}
			d.create(t, p)
		}
		r.Status = status
		if err := d.Status().Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	e.Status = edsv1.ExtendedDaemonSetStatus{
		Desired: 3, Current: 3, Ready: 3, Available: 3, UpToDate: 1, State: edsv1.StateCanary, ActiveReplicaSet: "agent-x8z0",
		Canary: &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "agent-x8z1", Nodes: d.nodes[1:2]},
	}
	if err := d.Status().Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// leftPod is a pod as ExtendedDaemonSet makes it.
func leftPod(r *edsv1.ExtendedDaemonSetReplicaSet, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *r.Spec.Template.ObjectMeta.DeepCopy(), Spec: *r.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.GenerateName = r.Namespace, r.Name+"-"
	p.Labels[edsv1.LabelName], p.Labels[edsv1.LabelReplicaSetName] = agent, r.Name
	p.Annotations = map[string]string{edsv1.AnnotationTemplateHash: r.Spec.TemplateGeneration, edsv1.AnnotationDaemonsetPod: edsv1.True}
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r, edsv1.GroupVersion.WithKind("ExtendedDaemonSetReplicaSet"))}
	for key, effect := range map[string]corev1.TaintEffect{
		corev1.TaintNodeNotReady: corev1.TaintEffectNoExecute, corev1.TaintNodeUnreachable: corev1.TaintEffectNoExecute,
		corev1.TaintNodeDiskPressure: corev1.TaintEffectNoSchedule, corev1.TaintNodeMemoryPressure: corev1.TaintEffectNoSchedule,
		corev1.TaintNodeUnschedulable: corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable: corev1.TaintEffectNoSchedule,
	} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	return p
}

// TestDaemonsTakeover goes on where ExtendedDaemonSet's controller ended: no pod is replaced, and its canary can be validated.
func TestDaemonsTakeover(t *testing.T) {
	// Not parallel: the operator is stopped meanwhile.
	d := newDaemons(t, "takeover", 3)
	stopped := true
	resume := func() {
		if stopped {
			if err := startOperator(); err != nil {
				t.Fatal(err)
			}
			stopped = false
		}
	}
	t.Cleanup(resume)
	if err := world.operator.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	key, value := edsv1.AnnotationResourcesPrefix+d.namespace+".agent.daemon", `{"requests":{"cpu":"6m"}}`
	patchNode(t, d.nodes[0], map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	d.leave(t, md5Of(key+"="+value))
	before := d.uids(t)

	resume()
	e := d.inCanary(t, 1)
	if e.Status.ActiveReplicaSet != "agent-x8z0" || e.Status.Canary.ReplicaSet != "agent-x8z1" || !slices.Equal(e.Status.Canary.Nodes, d.nodes[1:2]) || e.Generation != 1 {
		t.Errorf("the canary became %s", statusOf(e))
	}
	d.eds(t, "canary", "validate", agent)
	d.settled(t)
	all := d.history(t)
	d.unchanged(t, before, d.nodes[1])
	for _, n := range d.nodes {
		if n != d.nodes[1] && whenMade(all, d.uids(t)[n]) < whenActive(all, "agent-x8z1") {
			t.Errorf("the pod on %s was replaced before the canary passed", n)
		}
	}
	if got := len(d.revisions(t)); got != 2 {
		t.Errorf("there are %d revisions, want 2", got)
	}
	d.disrupted(t, 0, 3, 0)
}
