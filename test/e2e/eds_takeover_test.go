// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// leftTemplate is a template as ExtendedDaemonSet has it hashed, to the byte: the JSON of Kubernetes 0.31, in which an ampersand
// is escaped and creationTimestamp is null.
const leftTemplate = `{"metadata":{"creationTimestamp":null,"labels":{"app":"%s"}},"spec":{"containers":[{"name":"daemon",` +
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

// leftover is an ExtendedDaemonSet as its own controller leaves it.
type leftover struct {
	name string
	// versions on the nodes, in their order.
	versions []string
	// active and tried are the versions of the active revision, and of the canary.
	active, tried string
	state         edsv1.State
	annotations   map[string]string
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// leave makes what ExtendedDaemonSet's controller would have made, without any controller: the ExtendedDaemonSet, its
// revisions, its pods, and what all of them say.
func (d *daemons) leave(t *testing.T, l leftover, overrides func(node string, p *corev1.Pod)) *edsv1.ExtendedDaemonSet {
	t.Helper()
	var strategy map[string]any
	if err := yaml.Unmarshal([]byte(leftStrategy), &strategy); err != nil {
		t.Fatal(err)
	}
	templateOf := func(version string) (object map[string]any, hash string) {
		text := fmt.Sprintf(leftTemplate, l.name, version)
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		return object, md5Of(text)
	}
	of := func(kind, name string, metadata, spec map[string]any) *unstructured.Unstructured {
		metadata["name"], metadata["namespace"] = name, d.namespace
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": edsv1.GroupVersion.String(), "kind": kind, "metadata": metadata, "spec": spec,
		}}
		d.create(t, o)
		return o
	}
	selector := map[string]any{"matchLabels": map[string]any{target: d.selector.MatchLabels[target]}}
	current := l.active
	if l.tried != "" {
		current = l.tried
	}
	template, _ := templateOf(current)
	annotations := map[string]any{}
	for key, value := range l.annotations {
		annotations[key] = value
	}
	set := of("ExtendedDaemonSet", l.name, map[string]any{"annotations": annotations},
		map[string]any{"selector": selector, "template": template, "strategy": strategy})

	revisions := map[string]*edsv1.ExtendedDaemonSetReplicaSet{}
	for i, version := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(l.versions), current, l.active)))) {
		template, hash := templateOf(version)
		name := fmt.Sprintf("%s-x8z%d", l.name, i)
		of("ExtendedDaemonSetReplicaSet", name, map[string]any{
			"generateName": l.name + "-",
			"labels":       map[string]any{edsv1.LabelName: l.name},
			"annotations":  map[string]any{edsv1.AnnotationTemplateHash: hash},
			"ownerReferences": []any{map[string]any{
				"apiVersion": edsv1.GroupVersion.String(), "kind": "ExtendedDaemonSet", "name": l.name, "uid": string(set.GetUID()),
				"controller": true, "blockOwnerDeletion": true,
			}},
		}, map[string]any{"selector": selector, "template": template, "templateGeneration": hash})
		revisions[version] = d.revision(t, name)
	}
	for i, version := range l.versions {
		p := leftPod(revisions[version], l.name, d.nodes[i])
		if version == l.tried {
			p.Labels[edsv1.LabelReplicaSetCanary] = edsv1.True
		}
		overrides(d.nodes[i], p)
		d.create(t, p)
	}
	eventually(t, l.name+"'s pods are ready", func(context.Context) (string, bool) {
		pods := d.pods(t, l.name)
		return fmt.Sprint(len(pods)), len(pods) == len(l.versions) && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !podAvailable(&p) })
	})
	d.leaveStatus(t, l, revisions)
	return d.get(t, l.name)
}

// leftPod is a pod as ExtendedDaemonSet makes it.
func leftPod(r *edsv1.ExtendedDaemonSetReplicaSet, set, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *r.Spec.Template.ObjectMeta.DeepCopy(), Spec: *r.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.GenerateName = r.Namespace, r.Name+"-"
	p.Labels[edsv1.LabelName], p.Labels[edsv1.LabelReplicaSetName] = set, r.Name
	p.Annotations = map[string]string{edsv1.AnnotationTemplateHash: r.Spec.TemplateGeneration, edsv1.AnnotationDaemonsetPod: edsv1.True}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: edsv1.GroupVersion.String(), Kind: "ExtendedDaemonSetReplicaSet", Name: r.Name, UID: r.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	for key, effect := range map[string]corev1.TaintEffect{
		corev1.TaintNodeNotReady: corev1.TaintEffectNoExecute, corev1.TaintNodeUnreachable: corev1.TaintEffectNoExecute,
		corev1.TaintNodeDiskPressure: corev1.TaintEffectNoSchedule, corev1.TaintNodeMemoryPressure: corev1.TaintEffectNoSchedule,
		corev1.TaintNodeUnschedulable: corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable: corev1.TaintEffectNoSchedule,
	} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	return p
}

// leaveStatus writes what ExtendedDaemonSet writes into the statuses.
func (d *daemons) leaveStatus(t *testing.T, l leftover, revisions map[string]*edsv1.ExtendedDaemonSetReplicaSet) {
	t.Helper()
	now := metav1.Now()
	count := func(version string) (n int32) {
		for _, v := range l.versions {
			if v == version {
				n++
			}
		}
		return n
	}
	all := int32(len(l.versions))
	for version, r := range revisions {
		n := count(version)
		r.Status = edsv1.ExtendedDaemonSetReplicaSetStatus{Status: edsv1.ReplicaSetUnknown, Current: n, Ready: n, Available: n}
		kind := edsv1.ConditionLastFullSync
		switch version {
		case l.tried:
			r.Status.Status, r.Status.Desired, kind = edsv1.ReplicaSetCanary, n, edsv1.ConditionCanary
		case l.active:
			r.Status.Status, r.Status.Desired, kind = edsv1.ReplicaSetActive, all-count(l.tried), edsv1.ConditionActive
		}
		for _, kind := range slices.Compact([]string{kind, edsv1.ConditionLastFullSync}) {
			r.Status.Conditions = append(r.Status.Conditions, edsv1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: now, LastUpdateTime: now})
		}
		if err := d.Status().Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	e := d.get(t, l.name)
	e.Status = edsv1.ExtendedDaemonSetStatus{
		Desired: all, Current: all, Ready: all, Available: all, UpToDate: count(l.active), State: l.state, ActiveReplicaSet: revisions[l.active].Name,
	}
	if l.tried != "" {
		e.Status.UpToDate = count(l.tried)
		e.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: revisions[l.tried].Name, Nodes: []string{d.nodes[slices.Index(l.versions, l.tried)]}}
	}
	if err := d.Status().Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// What ExtendedDaemonSet's controller has left is taken over as it is: no pod is replaced, none is restarted, and what went on
// goes on.
func TestDaemonsTakeover(t *testing.T) {
	// Not parallel: the operator is stopped meanwhile.
	var nodes []string
	for _, m := range takeMachines(t, machines) {
		nodes = append(nodes, m.Name())
	}
	d := newDaemons(t, "takeover", labelOf(t), nodes)
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

	key, value := edsv1.AnnotationResourcesPrefix+d.namespace+".rests.daemon", `{"requests":{"cpu":"6m"}}`
	patchNode(t, d.nodes[0], map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	t.Cleanup(func() {
		patchNode(t, d.nodes[0], map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: nil}}})
	})
	setting := `{apiVersion: datadoghq.com/v1alpha1, kind: ExtendedDaemonsetSetting, metadata: {name: more, namespace: ` + d.namespace + `},
spec: {reference: {kind: ExtendedDaemonset, name: rests}, nodeSelector: {matchLabels: {kubernetes.io/hostname: ` + d.nodes[1] + `}},
  containers: [{name: daemon, resources: {requests: {cpu: 7m}}}]}, status: {status: valid}}`
	more := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(setting), &more.Object); err != nil {
		t.Fatal(err)
	}
	saved := more.DeepCopy()
	d.create(t, more)
	saved.SetResourceVersion(more.GetResourceVersion())
	if err := d.Status().Update(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	none := func(string, *corev1.Pod) {}
	all := map[string]*edsv1.ExtendedDaemonSet{}
	for _, l := range []leftover{
		{name: "rests", versions: []string{"v1", "v1", "v1"}, active: "v1", state: edsv1.StateRunning},
		{name: "tries", versions: []string{"v1", "v2", "v1"}, active: "v1", tried: "v2", state: edsv1.StateCanary},
		{
			name: "rolls", versions: []string{"v2", "v1", "v1"}, active: "v2", state: edsv1.StateRollingUpdatePaused,
			annotations: map[string]string{edsv1.AnnotationRollingUpdatePaused: edsv1.True},
		},
	} {
		overrides := none
		if l.name == "rests" {
			overrides = func(node string, p *corev1.Pod) {
				switch node {
				case d.nodes[0]:
					p.Annotations[edsv1.AnnotationNodeHash] = md5Of(key + "=" + value)
					p.Spec.Containers[0].Resources = cpu("6m")
				case d.nodes[1]:
					p.Labels[edsv1.LabelSettingName], p.Labels[edsv1.LabelSettingNamespace] = "more", d.namespace
					p.Spec.Containers[0].Resources = cpu("7m")
				}
			}
		}
		all[l.name] = d.leave(t, l, overrides)
	}
	before, revisions := map[string]map[string]types.UID{}, map[string][]string{}
	for name := range all {
		before[name], revisions[name] = d.uids(t, name), d.revisions(t, name)
	}

	resume()
	for name, was := range all {
		e := d.until(t, name, "is taken over", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.State == was.Status.State })
		if e.Status.ActiveReplicaSet != was.Status.ActiveReplicaSet || e.Status.UpToDate != was.Status.UpToDate || e.Generation != was.Generation {
			t.Errorf("%s was %s and is %s", name, statusOf(was), statusOf(e))
		}
	}
	lasts(t, 8*time.Second, "nothing happens", func(context.Context) error {
		for name, was := range all {
			pods := d.pods(t, name)
			if len(pods) != len(d.nodes) || strings.Join(revisions[name], " ") != strings.Join(d.revisions(t, name), " ") {
				return fmt.Errorf("%s has %d pods and revisions %v", name, len(pods), d.revisions(t, name))
			}
			for _, p := range pods {
				if before[name][p.Spec.NodeName] != p.UID || p.DeletionTimestamp != nil || p.Status.ContainerStatuses[0].RestartCount != 0 {
					return fmt.Errorf("%s: %w on %s", name, errReplaced, p.Spec.NodeName)
				}
			}
			e := d.get(t, name)
			if e.Status.State != was.Status.State || e.Status.ActiveReplicaSet != was.Status.ActiveReplicaSet || e.Status.Desired != 3 || e.Status.Available != 3 {
				return fmt.Errorf("%s was %s and is %s", name, statusOf(was), statusOf(e))
			}
		}
		return nil
	})
	d.settled(t, "rests")

	tries := d.get(t, "tries")
	if c := tries.Status.Canary; c == nil || c.ReplicaSet != all["tries"].Status.Canary.ReplicaSet || !slices.Equal(c.Nodes, []string{d.nodes[1]}) {
		t.Errorf("the canary has become %s", statusOf(tries))
	}
	d.annotate(t, tries, map[string]any{edsv1.AnnotationCanaryValid: all["tries"].Status.Canary.ReplicaSet})
	d.annotate(t, all["rolls"], map[string]any{edsv1.AnnotationRollingUpdatePaused: nil})
	for name, kept := range map[string]string{"tries": d.nodes[1], "rolls": d.nodes[0]} {
		d.settled(t, name)
		if uid := d.uids(t, name)[kept]; uid != before[name][kept] {
			t.Errorf("%s: the pod on %s was up to date, and was replaced", name, kept)
		}
		if p := d.podOn(t, name, kept); p.Labels[edsv1.LabelReplicaSetCanary] != "" {
			t.Errorf("%s: pod %s still has the canary's label", name, p.Name)
		}
		d.onePerNode(t, name)
	}
}
