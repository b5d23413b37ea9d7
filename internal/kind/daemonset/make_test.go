// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

func revision(name string, t corev1.PodTemplateSpec) *edsv1.ExtendedDaemonSetReplicaSet {
	return &edsv1.ExtendedDaemonSetReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: foo.Namespace, Name: name, UID: types.UID("uid of " + name)},
		Spec:       edsv1.ExtendedDaemonSetReplicaSetSpec{Template: t, TemplateGeneration: "hash of " + name},
	}
}

func TestNewPod(t *testing.T) {
	rs := revision("foo-x2x9z", corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ignored", Namespace: "ignored", Finalizers: []string{"a/b"},
			Labels: map[string]string{
				"app": "agent", edsv1.LabelName: "no", edsv1.LabelReplicaSetCanary: "true", edsv1.LabelSettingName: "no", edsv1.LabelSettingNamespace: "no",
			},
			Annotations: map[string]string{
				"note": "x", edsv1.AnnotationTemplateHash: "no", edsv1.AnnotationNodeHash: "no", edsv1.AnnotationOverrides: "no",
			},
		},
		Spec: corev1.PodSpec{
			Containers: containers("a", "b"), InitContainers: containers("a"),
			Tolerations: []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}},
		},
	})
	before := rs.DeepCopy()
	got := NewPod(rs, "foo", annotated(), Overrides{}, PodOptions{})
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", GenerateName: "foo-x2x9z-", Name: got.Name, Finalizers: []string{"a/b"},
			Labels: map[string]string{
				"app": "agent", "extendeddaemonset.datadoghq.com/name": "foo", "extendeddaemonsetreplicaset.datadoghq.com/name": "foo-x2x9z",
			},
			Annotations: map[string]string{
				"note": "x", "extendeddaemonset.datadoghq.com/templatehash": "hash of foo-x2x9z",
				"cluster-autoscaler.kubernetes.io/daemonset-pod": "true", "moult.dev/overrides-hash": "none",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "datadoghq.com/v1alpha1", Kind: "ExtendedDaemonSetReplicaSet", Name: "foo-x2x9z", UID: "uid of foo-x2x9z",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			Containers: containers("a", "b"), InitContainers: containers("a"), Affinity: required(field("metadata.name", in, "n1")),
			Tolerations: []corev1.Toleration{
				{Key: "x", Operator: corev1.TolerationOpExists},
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "node.kubernetes.io/disk-pressure", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.kubernetes.io/memory-pressure", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.kubernetes.io/pid-pressure", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	o := Overrides{
		Resources: map[string]corev1.ResourceRequirements{"b": limits("cpu=2")}, SettingName: "s", SettingNamespace: "ns", NodeHash: "n", Hash: "h",
	}
	got = NewPod(rs, "foo", annotated(), o, PodOptions{NodeName: true, Canary: true})
	want.Name = got.Name
	want.Labels["extendeddaemonsetreplicaset.datadoghq.com/canary"] = "true"
	want.Labels["extendeddaemonsetsetting.datadoghq.com/name"] = "s"
	want.Labels["extendeddaemonsetsetting.datadoghq.com/namespace"] = "ns"
	want.Annotations["extendeddaemonset.datadoghq.com/nodehash"] = "n"
	want.Annotations["moult.dev/overrides-hash"] = "h"
	want.Spec.Containers[1].Resources = limits("cpu=2")
	want.Spec.NodeName, want.Spec.Affinity = "n1", nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with everything (-want +got):\n%s", diff)
	}

	got.Labels["x"], got.Annotations["x"], got.Spec.Containers[1].Resources.Limits["x"] = "y", "y", *want.Spec.Containers[0].Resources.Limits.Cpu()
	got.Spec.Tolerations[0].Key = "y"
	if diff := cmp.Diff(before, rs); diff != "" {
		t.Errorf("the pod shares with the revision:\n%s", diff)
	}
	if len(o.Resources["b"].Limits) != 1 {
		t.Errorf("the pod shares with the overrides: %v", o.Resources)
	}
}

func TestNewPodName(t *testing.T) {
	name := func(rs *edsv1.ExtendedDaemonSetReplicaSet, node, hash string) string {
		return NewPod(rs, "foo", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, Overrides{Hash: hash}, PodOptions{}).Name
	}
	rs := revision("foo-x2x9z", corev1.PodTemplateSpec{})
	first := name(rs, "n1", "")
	if !regexp.MustCompile(`^foo-x2x9z-[bcdfghjklmnpqrstvwxz2456789]{10}$`).MatchString(first) {
		t.Errorf("the name is %s", first)
	}
	if again := name(rs, "n1", ""); again != first {
		t.Errorf("the name is %s, and then %s", first, again)
	}
	again := rs.DeepCopy()
	again.UID = "another"
	seen := map[string]bool{first: true}
	for _, other := range []string{name(rs, "n2", ""), name(rs, "n1", "h"), name(again, "n1", "")} {
		if seen[other] {
			t.Errorf("%s comes twice", other)
		}
		seen[other] = true
	}
	for _, long := range []string{
		strings.Repeat("a", 52), strings.Repeat("a", 53), strings.Repeat("a", 253), strings.Repeat("a.", 100) + "a", strings.Repeat("a-", 100) + "a", "a.b-c",
	} {
		p := NewPod(revision(long, corev1.PodTemplateSpec{}), "foo", annotated(), Overrides{}, PodOptions{})
		if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 || len(p.Name) > 63 || !strings.HasPrefix(p.Name, p.GenerateName) {
			t.Errorf("the pod of %s is %s, generated from %s: %v", long, p.Name, p.GenerateName, problems)
		}
	}
}

func TestNewPodBinding(t *testing.T) {
	name := field("metadata.name", in, "n1").MatchFields
	for what, tc := range map[string]struct{ affinity, want *corev1.Affinity }{
		"none":         {nil, required(corev1.NodeSelectorTerm{MatchFields: name})},
		"empty":        {&corev1.Affinity{}, required(corev1.NodeSelectorTerm{MatchFields: name})},
		"no required":  {&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}, required(corev1.NodeSelectorTerm{MatchFields: name})},
		"no terms":     {required(), required(corev1.NodeSelectorTerm{MatchFields: name})},
		"another name": {required(field("metadata.name", notIn, "n2")), required(corev1.NodeSelectorTerm{MatchFields: name})},
		"what is said besides": {
			required(expression("a", exists), expression("b", exists)),
			required(
				corev1.NodeSelectorTerm{MatchExpressions: expression("a", exists).MatchExpressions, MatchFields: name},
				corev1.NodeSelectorTerm{MatchExpressions: expression("b", exists).MatchExpressions, MatchFields: name},
			),
		},
	} {
		rs := revision("foo-1", corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: tc.affinity}})
		p := NewPod(rs, "foo", annotated(), Overrides{}, PodOptions{})
		if diff := cmp.Diff(tc.want, p.Spec.Affinity); diff != "" || NodeOf(p) != "n1" {
			t.Errorf("%s: the pod is bound for %q (-want +got):\n%s", what, NodeOf(p), diff)
		}
		p = NewPod(rs, "foo", annotated(), Overrides{}, PodOptions{NodeName: true})
		if diff := cmp.Diff(tc.affinity, p.Spec.Affinity); diff != "" || p.Spec.NodeName != "n1" {
			t.Errorf("%s: by name it is bound for %q (-want +got):\n%s", what, p.Spec.NodeName, diff)
		}
	}
}

func TestTolerations(t *testing.T) {
	limited := corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](30),
	}
	narrower := corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	spec := &corev1.PodSpec{HostNetwork: true, Tolerations: []corev1.Toleration{limited, narrower, standardTolerations[3], standardTolerations[3]}}
	got := tolerations(spec)
	want := append([]corev1.Toleration{narrower}, standardTolerations...)
	want = append(want, corev1.Toleration{
		Key: "node.kubernetes.io/network-unavailable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(spec.Tolerations) != 4 || len(standardTolerations) != 6 {
		t.Errorf("what was given has been changed: %v, %v", spec.Tolerations, standardTolerations)
	}
	spec.Tolerations = got
	if diff := cmp.Diff(len(got), len(tolerations(spec))); diff != "" {
		t.Errorf("a second time there are more (-want +got):\n%s", diff)
	}
}

func TestNodeOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"bound":              {corev1.PodSpec{NodeName: "n1", Affinity: required(field("metadata.name", in, "n2"))}, "n1"},
		"led":                {corev1.PodSpec{Affinity: required(field("metadata.name", in, "n2"))}, "n2"},
		"led by a later one": {corev1.PodSpec{Affinity: required(expression("a", exists), field("metadata.name", in, "n2"))}, "n2"},
		"kept away":          {corev1.PodSpec{Affinity: required(field("metadata.name", notIn, "n2"))}, ""},
		"one of two":         {corev1.PodSpec{Affinity: required(field("metadata.name", in, "n2", "n3"))}, ""},
		"by a label":         {corev1.PodSpec{Affinity: required(expression("metadata.name", in, "n2"))}, ""},
		"no required":        {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, ""},
		"no affinity":        {corev1.PodSpec{Affinity: &corev1.Affinity{}}, ""},
		"nothing":            {corev1.PodSpec{}, ""},
	} {
		if got := NodeOf(&corev1.Pod{Spec: tc.spec}); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestTrimPod(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	rs := revision("foo-1", corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"large": "text"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "a", Image: "i", Env: []corev1.EnvVar{{Name: "E"}}, Ports: []corev1.ContainerPort{{HostPort: 80}}, Resources: limits("cpu=1"),
			}},
			InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", Image: "x", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Volumes:        []corev1.Volume{{Name: "v"}}, HostNetwork: true, TerminationGracePeriodSeconds: ptr.To[int64](5),
			Affinity: required(expression("a", exists)),
		},
	})
	p := NewPod(rs, "foo", annotated(), Overrides{NodeHash: "n", Hash: "h", SettingName: "s"}, PodOptions{Canary: true})
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	p.UID, p.ResourceVersion, p.CreationTimestamp, p.DeletionTimestamp, p.DeletionGracePeriodSeconds = "u", "1", now, &now, ptr.To[int64](5)
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}, Reason: "r", Message: "m",
		StartTime: &now, PodIP: "1.2.3.4", QOSClass: corev1.PodQOSBurstable,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "a", State: state, LastTerminationState: state, Ready: true, RestartCount: 3, Started: ptr.To(true), ImageID: "sha256:", ContainerID: "c",
		}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "i", RestartCount: 1, Image: "x"}},
	}
	whole := p.DeepCopy()

	want := p.DeepCopy()
	want.ManagedFields = nil
	delete(want.Annotations, "large")
	want.Spec = corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{HostPort: 80}}, Resources: limits("cpu=1")}},
		InitContainers: []corev1.Container{{Name: "i"}, {Name: "s"}},
		HostNetwork:    true, TerminationGracePeriodSeconds: ptr.To[int64](5), Affinity: required(field("metadata.name", in, "n1")),
	}
	want.Status.PodIP, want.Status.QOSClass = "", ""
	want.Status.ContainerStatuses[0].ImageID, want.Status.ContainerStatuses[0].ContainerID = "", ""
	want.Status.InitContainerStatuses[0].Image = ""

	got, err := TrimPod(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if NodeOf(whole) != NodeOf(p) {
		t.Errorf("it is bound for %q, and was for %q", NodeOf(p), NodeOf(whole))
	}
	for _, o := range []Overrides{{Hash: "h"}, {Hash: "other"}} {
		if UpToDate(whole, "hash of foo-1", o) != UpToDate(p, "hash of foo-1", o) {
			t.Errorf("for %+v it is judged otherwise", o)
		}
	}
	if diff := cmp.Diff(StateOfPod(whole, time.Second, now.Time), StateOfPod(p, time.Second, now.Time)); diff != "" {
		t.Errorf("it looks otherwise (-whole +trimmed):\n%s", diff)
	}

	bound := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1", Affinity: required(field("metadata.name", in, "n1"))}}
	if _, err := TrimPod(bound); err != nil || bound.Spec.Affinity != nil || bound.Spec.NodeName != "n1" {
		t.Errorf("a bound pod is %+v, %v", bound.Spec, err)
	}
	if other, err := TrimPod("no pod"); other != "no pod" || err != nil {
		t.Errorf("got %v, %v", other, err)
	}
}

func TestRevisionName(t *testing.T) {
	of := func(name, uid, hash string) string {
		return newReplicaSet(&edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}, &edsv1.ExtendedDaemonSetSpec{}, hash).Name
	}
	one := of("foo", "u", "h")
	if !regexp.MustCompile(`^foo-[bcdfghjklmnpqrstvwxz2456789]{5}$`).MatchString(one) {
		t.Errorf("got %s", one)
	}
	if again := of("foo", "u", "h"); again != one {
		t.Errorf("got %s, and then %s", one, again)
	}
	for _, other := range []string{of("foo", "u", "i"), of("foo", "v", "h"), of("bar", "u", "h")} {
		if other == one {
			t.Errorf("two are called %s", one)
		}
	}
	if long := of(strings.Repeat("x", 63), "u", "h"); len(long) != 63 {
		t.Errorf("%s has %d characters", long, len(long))
	}
}

// hashes.json holds templates as an API server stores them, and their hashes, computed with k8s.io/api v0.31.1 as
// ExtendedDaemonSet does it.
func TestTemplateHash(t *testing.T) {
	raw, err := os.ReadFile("testdata/hashes.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name, Hash string
		Template   json.RawMessage
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Errorf("there are %d hashes only", len(all))
	}
	for _, tc := range all {
		t.Run(tc.Name, func(t *testing.T) {
			template := &corev1.PodTemplateSpec{}
			if err := json.Unmarshal(tc.Template, template); err != nil {
				t.Fatal(err)
			}
			before := template.DeepCopy()
			if got := TemplateHash(template); got != tc.Hash {
				t.Errorf("the hash of %s is %s, want %s", tc.Template, got, tc.Hash)
			}
			if diff := cmp.Diff(before, template); diff != "" {
				t.Errorf("the template has been changed:\n%s", diff)
			}
		})
	}
}

// These come from a running ExtendedDaemonSet, and from the same code with current libraries.
func TestTemplateHashOfExtendedDaemonSet(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "daemon", Image: "registry.k8s.io/pause:3.0"}}}}
	if got, want := TemplateHash(template), "4c39499a2fcd7faf13ffb5de242a44d9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	raw, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum(raw)
	if got, want := hex.EncodeToString(sum[:]), "7ec940e9b14719a071b32343d2202edc"; got != want {
		t.Errorf("the plain hash is %s, want %s", got, want)
	}
}

// What v0.31.1 did not know makes another revision all the same.
func TestTemplateHashKnowsYoungerFields(t *testing.T) {
	base := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a", Image: "b"}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
	}}
	seen := map[string]string{TemplateHash(&base): "the base"}
	for name, change := range map[string]func(*corev1.PodTemplateSpec){
		"resources of the pod": func(s *corev1.PodTemplateSpec) {
			s.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		},
		"hostname override": func(s *corev1.PodTemplateSpec) { s.Spec.HostnameOverride = ptr.To("h") },
		"SELinux": func(s *corev1.PodTemplateSpec) {
			s.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxChangePolicy: ptr.To(corev1.SELinuxChangePolicyRecursive)}
		},
		"stop signal": func(s *corev1.PodTemplateSpec) {
			s.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGTERM)}
		},
		"restart rules": func(s *corev1.PodTemplateSpec) {
			s.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
		},
		"certificate": func(s *corev1.PodTemplateSpec) {
			s.Spec.Volumes[0].Projected.Sources = []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: "a/b"}}}
		},
	} {
		changed := base.DeepCopy()
		change(changed)
		hash := TemplateHash(changed)
		if other, ok := seen[hash]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[hash] = name
	}
}

// fields.txt lists the fields of a template in v0.31.1, in their order. As long as those have the same names and order, and what
// has been added is left out when it is not set, only creationTimestamp has to be put right.
func TestFieldsAreThoseOfV031(t *testing.T) {
	raw, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	then, now := map[string][]string{}, map[string][]string{}
	for lines, name := bufio.NewScanner(bytes.NewReader(raw)), ""; lines.Scan(); {
		if field, ok := strings.CutPrefix(lines.Text(), "\t"); ok {
			then[name] = append(then[name], strings.TrimPrefix(field, ",inline"))
		} else {
			name = lines.Text()
		}
	}
	fields(reflect.TypeFor[corev1.PodTemplateSpec](), now)
	if len(then) < 100 {
		t.Errorf("there are %d types only", len(then))
	}
	for name, old := range then {
		known := map[string]bool{}
		for _, field := range old {
			known[tag(field)] = true
		}
		var left []string
		for _, field := range now[name] {
			if known[tag(field)] {
				left = append(left, strings.Replace(field, "creationTimestamp,omitempty,omitzero", "creationTimestamp,omitempty", 1))
				continue
			}
			if kind := field[strings.Index(field, " ")+1:]; !strings.Contains(field, ",omitempty") || !omitted(kind) {
				t.Errorf("%s: %s is new, and written when it is not set", name, field)
			}
		}
		if diff := cmp.Diff(old, left); diff != "" {
			t.Errorf("%s (-v0.31.1 +now):\n%s", name, diff)
		}
	}
}

func tag(field string) string {
	name, _, _ := strings.Cut(field, ",")
	name, _, _ = strings.Cut(name, " ")
	return name
}

// omitted reports whether encoding/json leaves out an empty value of a type that has the option omitempty.
func omitted(kind string) bool {
	return strings.HasPrefix(kind, "*") || strings.HasPrefix(kind, "[]") || strings.HasPrefix(kind, "map[") ||
		kind == "string" || kind == "bool" || strings.HasPrefix(kind, "int")
}

// fields lists by type the JSON names of the fields, with their options and types. Types that write themselves are left out, and
// the option inline, which encoding/json does not know.
func fields(of reflect.Type, into map[string][]string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	marshaler := reflect.TypeFor[json.Marshaler]()
	if of.Kind() != reflect.Struct || into[of.String()] != nil || of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler) {
		return
	}
	into[of.String()] = []string{}
	for f := range of.Fields() {
		into[of.String()] = append(into[of.String()], strings.TrimSuffix(f.Tag.Get("json"), ",inline")+" "+f.Type.String())
	}
	for f := range of.Fields() {
		fields(f.Type, into)
	}
}
