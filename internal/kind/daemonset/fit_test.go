// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func place(t *testing.T, selector *metav1.LabelSelector, spec corev1.PodSpec, n *corev1.Node) Placement {
	t.Helper()
	p, err := NewPlacer(selector, &corev1.PodTemplateSpec{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return p.Place(n)
}

func nodeWith(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
}

func taint(effect corev1.TaintEffect, key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func expression(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func field(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// The operators of affinities.
const (
	in, notIn      = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn
	exists, absent = corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist
	gt, lt         = corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt
)

var yes = Placement{Create: true, Keep: true}

func no(why string) Placement { return Placement{Why: why} }

func stay(why string) Placement { return Placement{Keep: true, Why: why} }

func TestPlaceBySelection(t *testing.T) {
	const byAffinity = "the template's nodeSelector or node affinity does not select it"
	type (
		spec     = corev1.PodSpec
		selector = metav1.LabelSelector
		set      = map[string]string
	)
	gpu := set{"gpu": "true", "n": "5", "empty": ""}
	for name, tc := range map[string]struct {
		selector *selector
		spec     spec
		labels   set
		want     Placement
	}{
		"nothing said":              {want: yes},
		"an empty selector":         {selector: &selector{}, want: yes},
		"selected":                  {selector: &selector{MatchLabels: set{"gpu": "true"}}, labels: gpu, want: yes},
		"not selected":              {selector: &selector{MatchLabels: set{"gpu": "true"}}, want: no("spec.selector does not select it")},
		"the node's name":           {spec: spec{NodeName: "n1"}, want: yes},
		"another node's name":       {spec: spec{NodeName: "n2"}, want: no("the template's nodeName is n2")},
		"nodeSelector":              {spec: spec{NodeSelector: set{"gpu": "true", "empty": ""}}, labels: gpu, want: yes},
		"nodeSelector, other value": {spec: spec{NodeSelector: set{"gpu": "false"}}, labels: gpu, want: no("the template's nodeSelector or node affinity does not select it")},
		"nodeSelector, no label":    {spec: spec{NodeSelector: set{"empty": ""}}, want: no("the template's nodeSelector or node affinity does not select it")},
		"no required affinity":      {spec: spec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, want: yes},
		"affinity without terms":    {spec: spec{Affinity: required()}, want: no(byAffinity)},
		"an empty term":             {spec: spec{Affinity: required(corev1.NodeSelectorTerm{})}, want: no(byAffinity)},
		"In":                        {spec: spec{Affinity: required(expression("gpu", in, "a", "true"))}, labels: gpu, want: yes},
		"not In":                    {spec: spec{Affinity: required(expression("gpu", in, "a"))}, labels: gpu, want: no(byAffinity)},
		"NotIn":                     {spec: spec{Affinity: required(expression("gpu", notIn, "a"))}, labels: gpu, want: yes},
		"NotIn without the label":   {spec: spec{Affinity: required(expression("gpu", notIn, "a"))}, want: yes},
		"Exists":                    {spec: spec{Affinity: required(expression("gpu", exists))}, labels: gpu, want: yes},
		"Exists without the label":  {spec: spec{Affinity: required(expression("gpu", exists))}, want: no(byAffinity)},
		"DoesNotExist":              {spec: spec{Affinity: required(expression("gpu", absent))}, labels: gpu, want: no(byAffinity)},
		"Gt":                        {spec: spec{Affinity: required(expression("n", gt, "4"))}, labels: gpu, want: yes},
		"not Gt":                    {spec: spec{Affinity: required(expression("n", gt, "5"))}, labels: gpu, want: no(byAffinity)},
		"Lt":                        {spec: spec{Affinity: required(expression("n", lt, "6"))}, labels: gpu, want: yes},
		"any of two terms":          {spec: spec{Affinity: required(expression("x", exists), expression("gpu", exists))}, labels: gpu, want: yes},
		"all of one term": {spec: spec{Affinity: required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "gpu", Operator: exists}, {Key: "x", Operator: exists},
		}})}, labels: gpu, want: no(byAffinity)},
		"its name":     {spec: spec{Affinity: required(field("metadata.name", in, "n1"))}, want: yes},
		"another name": {spec: spec{Affinity: required(field("metadata.name", in, "n2"))}, want: no(byAffinity)},
		"not its name": {spec: spec{Affinity: required(field("metadata.name", notIn, "n1"))}, want: no(byAffinity)},
		"anything but": {spec: spec{Affinity: required(field("metadata.name", notIn, "n2"))}, want: yes},
		"name and labels": {spec: spec{Affinity: required(corev1.NodeSelectorTerm{
			MatchExpressions: expression("gpu", exists).MatchExpressions,
			MatchFields:      field("metadata.name", in, "n1").MatchFields,
		})}, want: no(byAffinity)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, place(t, tc.selector, tc.spec, nodeWith(tc.labels))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlaceByTaints(t *testing.T) {
	const schedule, execute, prefer = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule
	const opExists, opEqual, opGt, opLt = corev1.TolerationOpExists, corev1.TolerationOpEqual, corev1.TolerationOpGt, corev1.TolerationOpLt
	type (
		tolerations = []corev1.Toleration
		taints      = []corev1.Taint
	)
	not := func(what string) string { return "the template does not tolerate its taint " + what }
	for name, tc := range map[string]struct {
		tolerations tolerations
		hostNetwork bool
		taints      taints
		want        Placement
	}{
		"NoSchedule keeps new ones away": {taints: taints{taint(schedule, "a", "b")}, want: stay(not("a=b:NoSchedule"))},
		"NoExecute drives out":           {taints: taints{taint(execute, "a", "")}, want: no(not("a:NoExecute"))},
		"both": {
			taints: taints{taint(schedule, "a", ""), taint(execute, "b", "")},
			want:   no(not("b:NoExecute")),
		},
		"PreferNoSchedule only asks": {taints: taints{taint(prefer, "a", "")}, want: yes},
		"the first is named": {
			taints: taints{taint(schedule, "a", ""), taint(schedule, "b", "")},
			want:   stay(not("a:NoSchedule")),
		},
		"everything is tolerated": {
			tolerations: tolerations{{Operator: opExists}},
			taints:      taints{taint(schedule, "a", ""), taint(execute, "b", "")}, want: yes,
		},
		"tolerated by value": {
			tolerations: tolerations{{Key: "a", Value: "b"}},
			taints:      taints{taint(execute, "a", "b")}, want: yes,
		},
		"tolerated by value, Equal": {
			tolerations: tolerations{{Key: "a", Operator: opEqual, Value: "b"}},
			taints:      taints{taint(execute, "a", "b")}, want: yes,
		},
		"another value": {
			tolerations: tolerations{{Key: "a", Value: "b"}},
			taints:      taints{taint(execute, "a", "c")}, want: no(not("a=c:NoExecute")),
		},
		"another effect": {
			tolerations: tolerations{{Key: "a", Operator: opExists, Effect: schedule}},
			taints:      taints{taint(execute, "a", "")}, want: no(not("a:NoExecute")),
		},
		"another key": {
			tolerations: tolerations{{Key: "b", Operator: opExists}},
			taints:      taints{taint(schedule, "a", "")}, want: stay(not("a:NoSchedule")),
		},
		"an operator that there is not": {
			tolerations: tolerations{{Key: "a", Operator: "In", Value: "b"}},
			taints:      taints{taint(schedule, "a", "b")}, want: stay(not("a=b:NoSchedule")),
		},
		"Gt": {
			tolerations: tolerations{{Key: "a", Operator: opGt, Value: "5"}},
			taints:      taints{taint(schedule, "a", "6")}, want: yes,
		},
		"not Gt": {
			tolerations: tolerations{{Key: "a", Operator: opGt, Value: "5"}},
			taints:      taints{taint(schedule, "a", "5")}, want: stay(not("a=5:NoSchedule")),
		},
		"Lt": {
			tolerations: tolerations{{Key: "a", Operator: opLt, Value: "5"}},
			taints:      taints{taint(schedule, "a", "4")}, want: yes,
		},
		"not Lt": {
			tolerations: tolerations{{Key: "a", Operator: opLt, Value: "5"}},
			taints:      taints{taint(schedule, "a", "5")}, want: stay(not("a=5:NoSchedule")),
		},
		"no number": {
			tolerations: tolerations{{Key: "a", Operator: opLt, Value: "5"}},
			taints:      taints{taint(schedule, "a", "x")}, want: stay(not("a=x:NoSchedule")),
		},
		"not ready": {
			taints: taints{taint(execute, corev1.TaintNodeNotReady, ""), taint(execute, corev1.TaintNodeUnreachable, "")},
			want:   yes,
		},
		"cordoned": {taints: taints{taint(schedule, corev1.TaintNodeUnschedulable, "")}, want: yes},
		"under pressure": {
			taints: taints{
				taint(schedule, corev1.TaintNodeDiskPressure, ""), taint(schedule, corev1.TaintNodeMemoryPressure, ""),
				taint(schedule, corev1.TaintNodePIDPressure, ""),
			},
			want: yes,
		},
		"not ready for new ones": {
			taints: taints{taint(schedule, corev1.TaintNodeNotReady, "")},
			want:   stay(not("node.kubernetes.io/not-ready:NoSchedule")),
		},
		"no network": {
			taints: taints{taint(schedule, corev1.TaintNodeNetworkUnavailable, "")},
			want:   stay(not("node.kubernetes.io/network-unavailable:NoSchedule")),
		},
		"no network, but that of the node": {
			hostNetwork: true, taints: taints{taint(schedule, corev1.TaintNodeNetworkUnavailable, "")},
			want: yes,
		},
		"a time limit does not keep it away": {
			tolerations: tolerations{{Key: "a", Operator: opExists, TolerationSeconds: new(int64)}},
			taints:      taints{taint(execute, "a", "")}, want: yes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := place(t, nil, corev1.PodSpec{Tolerations: tc.tolerations, HostNetwork: tc.hostNetwork}, nodeWith(nil, tc.taints...))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlaceOnNodeBeingDeleted(t *testing.T) {
	n := nodeWith(map[string]string{"a": "b"})
	n.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	if diff := cmp.Diff(stay("it is being deleted"), place(t, nil, corev1.PodSpec{}, n)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := place(t, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "c"}}, corev1.PodSpec{}, n); got.Keep {
		t.Errorf("it is kept where it is not selected: %v", got)
	}
	n.Spec.Taints = []corev1.Taint{taint(corev1.TaintEffectNoExecute, "a", "")}
	if got := place(t, nil, corev1.PodSpec{}, n); got.Keep {
		t.Errorf("it is kept where it is driven out: %v", got)
	}
}

func TestNewPlacerErrors(t *testing.T) {
	const name, affinity = "metadata.name", "reading spec.template.spec.affinity, "
	for want, tc := range map[string]struct {
		selector *metav1.LabelSelector
		affinity *corev1.Affinity
	}{
		"reading spec.selector, ": {
			selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Gt"}}},
		},
		affinity + `nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near"`: {affinity: required(expression("a", "Near"))},
		affinity + "nodeSelectorTerms[0].matchExpressions[0].values":                              {affinity: required(expression("a", in))},
		affinity + `nodeSelectorTerms[0].matchFields[0].operator`:                                 {affinity: required(field(name, exists))},
		affinity + "nodeSelectorTerms[0].matchFields[0].values":                                   {affinity: required(field(name, in, "a", "b"))},
	} {
		_, err := NewPlacer(tc.selector, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: tc.affinity}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func BenchmarkPlace(b *testing.B) {
	p, err := NewPlacer(&metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
		Affinity:     required(expression("extendeddaemonset.datadoghq.com/exclude", notIn, "foo")),
		Tolerations:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	nodes := make([]*corev1.Node, 10_000)
	for i := range nodes {
		nodes[i] = nodeWith(map[string]string{"pool": "a", "kubernetes.io/os": "linux", "i": fmt.Sprint(i)}, taint(corev1.TaintEffectNoSchedule, "dedicated", "x"))
	}
	for b.Loop() {
		for _, n := range nodes {
			if !p.Place(n).Create {
				b.Fatal("it does not belong there")
			}
		}
	}
}
