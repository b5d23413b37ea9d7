// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

var foo = types.NamespacedName{Namespace: "ns", Name: "foo"}

// fooKey is the key of a node's annotation for a container of foo.
func fooKey(container string) string {
	return "resources.extendeddaemonset.datadoghq.com/ns.foo." + container
}

// amounts makes a list of name=quantity pairs.
func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, pair := range pairs {
		name, quantity, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

func limits(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: amounts(pairs...)}
}

func requests(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: amounts(pairs...)}
}

// containers have names, and a memory limit each.
func containers(names ...string) []corev1.Container {
	var all []corev1.Container
	for _, name := range names {
		all = append(all, corev1.Container{Name: name, Resources: limits("memory=1Gi")})
	}
	return all
}

// setting is for all nodes; it is so many seconds old.
func setting(name string, age int, change ...func(*edsv1.ExtendedDaemonsetSetting)) *edsv1.ExtendedDaemonsetSetting {
	s := &edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{
		Namespace: foo.Namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9-age), 0)),
	}}
	s.Spec.Reference = &autoscalingv1.CrossVersionObjectReference{Name: foo.Name}
	for _, c := range change {
		c(s)
	}
	return s
}

func verdicts(settings []*edsv1.ExtendedDaemonsetSetting) []SettingVerdict {
	all := make([]edsv1.ExtendedDaemonsetSetting, 0, len(settings))
	for _, s := range settings {
		all = append(all, *s)
	}
	return JudgeSettings(all, foo, nil)
}

func sets(container string, r corev1.ResourceRequirements) func(*edsv1.ExtendedDaemonsetSetting) {
	return func(s *edsv1.ExtendedDaemonsetSetting) {
		s.Spec.Containers = append(s.Spec.Containers, edsv1.ExtendedDaemonsetSettingContainerSpec{Name: container, Resources: r})
	}
}

func on(key, value string) func(*edsv1.ExtendedDaemonsetSetting) {
	return func(s *edsv1.ExtendedDaemonsetSetting) { metav1.AddLabelToSelector(&s.Spec.NodeSelector, key, value) }
}

func annotated(pairs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "big"}}}
	for i := 0; i < len(pairs); i += 2 {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, pairs[i], pairs[i+1])
	}
	return n
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestOverridesOf(t *testing.T) {
	type all = map[string]corev1.ResourceRequirements
	for name, tc := range map[string]struct {
		node     *corev1.Node
		settings []*edsv1.ExtendedDaemonsetSetting
		want     Overrides
		err      string
	}{
		"nothing": {node: annotated("other", "x")},
		"an annotation": {
			node: annotated(fooKey("a"), `{"limits":{"cpu":"1"}}`),
			want: Overrides{Resources: all{"a": limits("cpu=1")}, NodeHash: md5Of(fooKey("a") + `={"limits":{"cpu":"1"}}`)},
		},
		"annotations of several containers": {
			node: annotated(fooKey("b"), `{"requests":{"cpu":"2"}}`, fooKey("a"), `{}`),
			want: Overrides{
				Resources: all{"a": {}, "b": requests("cpu=2")},
				NodeHash:  md5Of(fooKey("a") + `={}` + fooKey("b") + `={"requests":{"cpu":"2"}}`),
			},
		},
		"of another container": {
			node: annotated(fooKey("x"), `{"limits":{"cpu":"1"}}`), want: Overrides{NodeHash: md5Of(fooKey("x") + `={"limits":{"cpu":"1"}}`)},
		},
		"of other daemons": {
			node: annotated(
				"resources.extendeddaemonset.datadoghq.com/ns.bar.a", `{}`, "resources.extendeddaemonset.datadoghq.com/sn.foo.a", `{}`,
				"resources.extendeddaemonset.datadoghq.com/ns.foobar.a", `{}`, "datadoghq.com/ns.foo.a", `{}`,
			),
		},
		"unreadable ones, and one that is not": {
			node: annotated(fooKey("a"), `{"limits"`, fooKey("b"), `{}`, fooKey("c"), `{"limits":{"cpu":"many"}}`),
			want: Overrides{
				Resources: all{"b": {}},
				NodeHash:  md5Of(fooKey("a") + `={"limits"` + fooKey("b") + `={}` + fooKey("c") + `={"limits":{"cpu":"many"}}`),
			},
			err: "reading annotation " + fooKey("a") + " of node n1, unexpected end of JSON input\n" +
				"reading annotation " + fooKey("c") + " of node n1, ",
		},
		"a Setting": {
			node: annotated(), settings: []*edsv1.ExtendedDaemonsetSetting{setting("s", 1, sets("a", limits("cpu=1")), on("pool", "big"))},
			want: Overrides{Resources: all{"a": limits("cpu=1")}, SettingName: "s", SettingNamespace: "ns"},
		},
		"a Setting for other nodes": {
			node: annotated(), settings: []*edsv1.ExtendedDaemonsetSetting{setting("s", 1, sets("a", limits("cpu=1")), on("pool", "small"))},
		},
		"a Setting for other containers": {
			node: annotated(), settings: []*edsv1.ExtendedDaemonsetSetting{setting("s", 1, sets("x", limits("cpu=1")))},
			want: Overrides{SettingName: "s", SettingNamespace: "ns"},
		},
		"the newest Setting": {
			node: annotated(), settings: []*edsv1.ExtendedDaemonsetSetting{
				setting("a", 1, sets("a", limits("cpu=1"))), setting("z", 9, sets("b", limits("cpu=9"))), setting("b", 5, sets("a", limits("cpu=5"))),
			},
			want: Overrides{Resources: all{"a": limits("cpu=1")}, SettingName: "a", SettingNamespace: "ns"},
		},
		"the last Setting of one age": {
			node: annotated(), settings: []*edsv1.ExtendedDaemonsetSetting{setting("z", 1), setting("a", 1), setting("b", 1)},
			want: Overrides{SettingName: "z", SettingNamespace: "ns"},
		},
		"an annotation replaces all that a Setting says of a container": {
			node: annotated(fooKey("a"), `{"limits":{"cpu":"2"}}`),
			settings: []*edsv1.ExtendedDaemonsetSetting{
				setting("s", 1, sets("a", limits("cpu=1", "memory=1Gi")), sets("b", limits("cpu=1"))),
			},
			want: Overrides{
				Resources: all{"a": limits("cpu=2"), "b": limits("cpu=1")}, SettingName: "s", SettingNamespace: "ns",
				NodeHash: md5Of(fooKey("a") + `={"limits":{"cpu":"2"}}`),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seedOf(t), 0))
			for range 3 { // Whatever the order of maps and lists.
				r.Shuffle(len(tc.settings), func(i, j int) { tc.settings[i], tc.settings[j] = tc.settings[j], tc.settings[i] })
				got, err := OverridesOf(foo, containers("a", "b", "c"), tc.node, verdicts(tc.settings))
				if text := fmt.Sprint(err); (err != nil || tc.err != "") && !strings.HasPrefix(text, tc.err) || tc.err == "" && err != nil {
					t.Errorf("the error is %v, want %s", err, tc.err)
				}
				if (got.Hash != "") != (len(tc.want.Resources) > 0) {
					t.Errorf("the hash of %v is %q", got.Resources, got.Hash)
				}
				got.Hash = ""
				if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A quantity that would take minutes and gigabytes to read is refused, also where a later key of the same name hides it.
func TestHostileOverrides(t *testing.T) {
	for _, value := range []string{
		`{"limits":{"cpu":"1e999999999"}}`, `{"requests":{"cpu":1e999999999}}`, `{"limits":{"cpu":"1e999999999"},"limits":{"cpu":"1"}}`,
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fooKey("main"): value}}}
		if o, err := OverridesOf(foo, containers("main"), n, nil); err == nil || len(o.Resources) > 0 {
			t.Errorf("%s: %v, %v", value, o.Resources, err)
		}
	}
}

func TestOverridesHash(t *testing.T) {
	hash := func(a, b corev1.ResourceRequirements) string {
		return overridesHash(map[string]corev1.ResourceRequirements{"a": a, "b": b})
	}
	of := hash(limits("cpu=0.5", "memory=1Gi"), requests("storage=1000"))
	for _, same := range []string{
		hash(limits("memory=1024Mi", "cpu=500m"), requests("storage=1k")),
		hash(corev1.ResourceRequirements{Limits: amounts("cpu=500000u", "memory=1048576Ki"), Requests: amounts()}, requests("storage=1000000m")),
	} {
		if same != of {
			t.Errorf("equal amounts have the hashes %s and %s", of, same)
		}
	}
	seen := map[string]int{}
	for i, other := range []string{
		of,
		hash(requests("storage=1e3"), limits("cpu=0.5", "memory=1Gi")),
		hash(limits("cpu=0.5"), requests("storage=1e3")),
		hash(limits("cpu=0.5", "memory=1Gi"), limits("storage=1e3")),
		hash(limits("cpu=0.5", "memory=1G"), requests("storage=1e3")),
		hash(corev1.ResourceRequirements{}, requests("storage=1e3")),
		hash(corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "x"}}}, requests("storage=1e3")),
		hash(corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "x", Request: "y"}}}, requests("storage=1e3")),
		overridesHash(map[string]corev1.ResourceRequirements{"a": limits("cpu=0.5", "memory=1Gi")}),
		overridesHash(map[string]corev1.ResourceRequirements{"a": {}}),
		overridesHash(nil),
	} {
		if j, ok := seen[other]; ok {
			t.Errorf("%d and %d have the hash %s", i, j, other)
		}
		seen[other] = i
	}
}

// pool is a world of one node, one daemon and its Settings, in which overrides come and go.
type pool struct {
	*rand.Rand
	node       *corev1.Node
	settings   []*edsv1.ExtendedDaemonsetSetting
	containers []corev1.Container
}

func newPool(r *rand.Rand) *pool {
	return &pool{Rand: r, node: annotated(), containers: containers("a", "b")}
}

func (p *pool) resources() corev1.ResourceRequirements {
	var r corev1.ResourceRequirements
	for _, list := range []*corev1.ResourceList{&r.Limits, &r.Requests} {
		for _, pair := range []string{"cpu=1", "cpu=1000m", "cpu=2", "memory=1Gi", "memory=1024Mi", "memory=2Gi"} {
			if p.IntN(6) == 0 {
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				name, quantity, _ := strings.Cut(pair, "=")
				(*list)[corev1.ResourceName(name)] = resource.MustParse(quantity)
			}
		}
	}
	return r
}

// step changes one thing.
func (p *pool) step() {
	container := []string{"a", "b", "x"}[p.IntN(3)]
	switch p.IntN(6) {
	case 0:
		delete(p.node.Annotations, fooKey(container))
	case 1:
		values := []string{
			`{}`, `{"limits":{"cpu":"1"}}`, `{"limits": {"cpu": "1000m"}}`, `{"limits":{"cpu":"2","memory":"1Gi"}}`, `{"requests":{"memory":"1Gi"}}`, `{`,
		}
		metav1.SetMetaDataAnnotation(&p.node.ObjectMeta, fooKey(container), values[p.IntN(len(values))])
	case 2:
		var change []func(*edsv1.ExtendedDaemonsetSetting)
		for _, name := range []string{"a", "b", "x"} {
			if p.IntN(2) == 0 {
				change = append(change, sets(name, p.resources()))
			}
		}
		if p.IntN(3) == 0 {
			change = append(change, on("pool", []string{"big", "small"}[p.IntN(2)]))
		}
		p.settings = append(p.settings, setting(fmt.Sprintf("s%d", p.IntN(3)), p.IntN(3), change...))
	case 3:
		if len(p.settings) > 0 {
			i := p.IntN(len(p.settings))
			p.settings = slices.Delete(p.settings, i, i+1)
		}
	case 4:
		if len(p.settings) > 0 {
			s := p.settings[p.IntN(len(p.settings))]
			if len(s.Spec.Containers) > 0 {
				s.Spec.Containers[p.IntN(len(s.Spec.Containers))].Resources = p.resources()
			}
		}
	case 5:
		p.Shuffle(len(p.settings), func(i, j int) { p.settings[i], p.settings[j] = p.settings[j], p.settings[i] })
	}
}

func (p *pool) overrides() Overrides {
	o, _ := OverridesOf(foo, p.containers, p.node, verdicts(p.settings)) // What can't be read is left out.
	return o
}
