// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

type spec = upgradev1.PlanSpec

// No Plan may use the operator's account and its Secrets.
func TestReserved(t *testing.T) {
	fromSecret := func(name string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
	}
	key := func(name string) []corev1.EnvVar {
		ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		return []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}}
	}
	volume := corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "etcd"}}}
	projected := corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "projected"}}},
	}}}}
	own := NewReserved(&corev1.PodSpec{
		ServiceAccountName: "moult", Volumes: []corev1.Volume{volume, projected},
		Containers: []corev1.Container{{EnvFrom: fromSecret("cloud"), Env: key("ducklett")}},
	})
	for name, test := range map[string]struct {
		r    Reserved
		plan func(*upgradev1.PlanSpec)
		want string
	}{
		"the account":          {own, func(p *spec) { p.ServiceAccountName = "moult" }, "spec.serviceAccountName: \"moult\" is"},
		"no account":           {Reserved{ServiceAccount: "default"}, func(p *spec) { p.ServiceAccountName = "" }, "spec.serviceAccountName: \"default\""},
		"another account":      {own, func(p *spec) { p.ServiceAccountName = "system-upgrade" }, ""},
		"no account, of moult": {own, func(p *spec) { p.ServiceAccountName = "" }, ""},
		"elsewhere":            {Reserved{}, func(p *spec) { p.ServiceAccountName = "moult" }, ""},
		"a cloud":              {Reserved{}, func(p *spec) { p.Upgrade.EnvFrom = fromSecret("moult-cloud") }, "spec.upgrade.envFrom: Secret \"moult-cloud\""},
		"prometheus":           {Reserved{}, func(p *spec) { p.Upgrade.Env = key("moult-prometheus") }, "spec.upgrade.envs: Secret \"moult-prometheus\""},
		"webhooks":             {Reserved{}, func(p *spec) { p.Upgrade.Env = key("moult-notifications") }, "spec.upgrade.envs: Secret \"moult-notifications\""},
		"envFrom":              {own, func(p *spec) { p.Upgrade.EnvFrom = fromSecret("cloud") }, "spec.upgrade.envFrom: Secret \"cloud\""},
		"env":                  {own, func(p *spec) { p.Upgrade.Env = key("ducklett") }, "spec.upgrade.envs: Secret \"ducklett\""},
		"prepare":              {own, func(p *spec) { p.Prepare = &upgradev1.ContainerSpec{Env: key("etcd")} }, "spec.prepare.envs: Secret \"etcd\""},
		"a volume": {own, func(p *spec) {
			p.Secrets = []upgradev1.SecretSpec{{Name: "projected", IgnoreUpdates: true}}
		}, "spec.secrets: Secret \"projected\""},
		"another Secret": {own, func(p *spec) { p.Upgrade.EnvFrom = fromSecret("mine") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.r.check(newPlan(func(p *upgradev1.Plan) { test.plan(&p.Spec) }))
			if text := fmt.Sprint(got); (got == nil) != (test.want == "") || len(text) < len(test.want) || got != nil && text[:len(test.want)] != test.want {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}
