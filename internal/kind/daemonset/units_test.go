// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/tier"
)

// A pod is up to date for what it was made with, and stays so until its resources would be others: nothing is replaced twice, or
// for nothing, and nothing is forgotten. The same holds after an API server has filled in what it fills in.
func TestUpToDateIsFixedPoint(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	changes, replaced := 0, 0
	pools := 20
	if tier.All {
		pools = 100
	}
	for range pools {
		p := newPool(r)
		rs := revision("foo-1", corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: p.containers}})
		made := p.overrides()
		pod := stored(NewPod(rs, foo.Name, p.node, made, PodOptions{}))
		for range 60 {
			p.step()
			now := p.overrides()
			next := NewPod(rs, foo.Name, p.node, now, PodOptions{})
			same := equality.Semantic.DeepEqual(stored(next).Spec.Containers, pod.Spec.Containers)
			upToDate := UpToDate(pod, rs.Spec.TemplateGeneration, now)
			if upToDate && !same {
				t.Fatalf("after\n%+v\n%+v changes nothing", made, now)
			}
			if !same {
				changes++
			}
			if !upToDate {
				replaced++
				made, pod = now, stored(next)
			}
			for _, as := range []*corev1.Pod{next, stored(next)} {
				if !UpToDate(as, rs.Spec.TemplateGeneration, now) {
					t.Fatalf("a pod made with\n%+v\nis not up to date:\n%+v\n%+v", now, as.ObjectMeta, as.Spec.Containers)
				}
			}
			if UpToDate(pod, "another", now) {
				t.Fatal("it is up to date for another template")
			}
		}
	}
	t.Logf("%d changes of resources, %d pods replaced", changes, replaced)
	if changes == 0 {
		t.Error("nothing ever changed")
	}
}

// stored is a pod as the API server has it: a limit without a request is one, and quantities are in their canonical form.
func stored(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	for i := range p.Spec.Containers {
		r := &p.Spec.Containers[i].Resources
		for name, q := range r.Limits {
			if _, ok := r.Requests[name]; !ok {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = q
			}
		}
	}
	return p
}

// Of what ExtendedDaemonSet has made nothing is replaced that is right.
func TestUpToDateTakesOver(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	for range 3000 {
		p := newPool(r)
		for range 8 {
			p.step()
		}
		rs := revision("foo-1", corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: p.containers}})
		o := p.overrides()
		if pod := theirs(NewPod(rs, foo.Name, p.node, o, PodOptions{})); !UpToDate(pod, rs.Spec.TemplateGeneration, o) {
			t.Fatalf("a pod made with\n%+v\nis not up to date:\n%+v\n%+v", o, pod.ObjectMeta, pod.Spec.Containers)
		}
	}
}

// theirs is a pod as ExtendedDaemonSet leaves it.
func theirs(p *corev1.Pod) *corev1.Pod {
	p = stored(p)
	delete(p.Annotations, edsv1.AnnotationOverrides)
	return p
}

func TestUpToDateOfTheirPods(t *testing.T) {
	type resources = map[string]corev1.ResourceRequirements
	const hash = "hash of foo-1"
	by := func(setting string, r resources) Overrides {
		return Overrides{Resources: r, SettingName: setting, SettingNamespace: "ns", Hash: overridesHash(r)}
	}
	node := func(hash string, r resources) Overrides {
		return Overrides{Resources: r, NodeHash: hash, Hash: overridesHash(r)}
	}
	for name, tc := range map[string]struct {
		// made is what ExtendedDaemonSet made the pod with, and want what is to be.
		made, want Overrides
		change     func(*corev1.Pod)
		stale      bool
	}{
		"nothing": {},
		"another template": {
			change: func(p *corev1.Pod) { p.Annotations[edsv1.AnnotationTemplateHash] = "x" }, stale: true,
		},
		"no template's hash":          {change: func(p *corev1.Pod) { delete(p.Annotations, edsv1.AnnotationTemplateHash) }, stale: true},
		"no annotations":              {change: func(p *corev1.Pod) { p.Annotations = nil }, stale: true},
		"the same annotation":         {made: node("x", resources{"a": limits("cpu=1")}), want: node("x", resources{"a": limits("cpu=1")})},
		"another annotation":          {made: node("x", resources{"a": limits("cpu=1")}), want: node("y", resources{"a": limits("cpu=2")}), stale: true},
		"an annotation comes":         {want: node("y", resources{"a": limits("cpu=2")}), stale: true},
		"an annotation goes":          {made: node("x", resources{"a": limits("cpu=1")}), stale: true},
		"one comes that says nothing": {want: node("y", nil)},
		"one goes that said nothing":  {made: node("y", nil), stale: true},
		"the same Setting":            {made: by("s", resources{"a": limits("cpu=1")}), want: by("s", resources{"a": limits("cpu=1000m")})},
		"a Setting with another amount": {
			made: by("s", resources{"a": limits("cpu=1")}), want: by("s", resources{"a": limits("cpu=2")}), stale: true,
		},
		"a Setting with another request": {
			made: by("s", resources{"a": requests("cpu=1")}), want: by("s", resources{"a": requests("cpu=2")}), stale: true,
		},
		"a key is added to a Setting": {
			made: by("s", resources{"a": limits("cpu=1")}), want: by("s", resources{"a": limits("cpu=1", "memory=1Gi")}), stale: true,
		},
		"a request that the API server has filled in": {
			made: by("s", resources{"a": {Limits: amounts("cpu=1", "memory=1Gi"), Requests: amounts("cpu=1")}}),
			want: by("s", resources{"a": {Limits: amounts("cpu=1", "memory=1Gi"), Requests: amounts("cpu=1")}}),
		},
		"what a LimitRange has filled in": {
			made: by("s", resources{"a": limits("cpu=1", "memory=1Gi")}), want: by("s", resources{"a": limits("cpu=1")}),
		},
		"another container": {
			made: by("s", resources{"a": limits("cpu=1")}), want: by("s", resources{"b": limits("cpu=1")}), stale: true,
		},
		"a Setting comes": {want: by("s", resources{"a": limits("cpu=2")}), stale: true},
		"a Setting goes":  {made: by("s", resources{"a": limits("cpu=1")}), stale: true},
		"a Setting goes for another": {
			made: by("s", resources{"a": limits("cpu=1")}), want: by("t", resources{"a": limits("cpu=1")}), stale: true,
		},
		"a Setting and an annotation of one container": {
			made: Overrides{Resources: resources{"a": limits("cpu=2")}, SettingName: "s", NodeHash: "x"},
			want: Overrides{Resources: resources{"a": limits("cpu=2")}, SettingName: "s", NodeHash: "x", Hash: "h"},
		},
		"a container that the pod has not": {
			made: by("s", resources{"a": limits("cpu=1")}), want: by("s", resources{"a": limits("cpu=1")}),
			change: func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[1:] }, stale: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rs := revision("foo-1", corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers("a", "b")}})
			p := theirs(NewPod(rs, "foo", annotated(), tc.made, PodOptions{}))
			if tc.change != nil {
				tc.change(p)
			}
			if UpToDate(p, hash, tc.want) == tc.stale {
				t.Errorf("%+v is up to date for\n%+v: %v", p.Spec.Containers, tc.want, !tc.stale)
			}
		})
	}
}

func TestUpToDateOfOwnPods(t *testing.T) {
	rs := revision("foo-1", corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers("a")}})
	r := map[string]corev1.ResourceRequirements{"a": limits("cpu=1")}
	o := Overrides{Resources: r, SettingName: "s", NodeHash: "n", Hash: overridesHash(r)}
	p := NewPod(rs, "foo", annotated(), o, PodOptions{})
	p.Spec.Containers[0].Resources = limits("cpu=3") // Resized in place.
	for name, tc := range map[string]struct {
		want Overrides
		ok   bool
	}{
		"the same":                         {o, true},
		"the same, from an annotation":     {Overrides{Resources: r, NodeHash: "other", Hash: o.Hash}, true},
		"nothing":                          {Overrides{}, false},
		"an annotation that can't be read": {Overrides{NodeHash: "other"}, false},
		"other resources":                  {Overrides{Resources: r, SettingName: "s", NodeHash: "n", Hash: "other"}, false},
	} {
		if got := UpToDate(p, "hash of foo-1", tc.want); got != tc.ok {
			t.Errorf("%s: it is up to date: %v", name, got)
		}
	}
}
