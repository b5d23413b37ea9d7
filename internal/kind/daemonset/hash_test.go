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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

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
