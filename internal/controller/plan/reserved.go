// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/notification"
)

// operatorSecrets are the Secrets with what the operator knows of a cloud, of Prometheus, and of webhooks. No Plan may use them, wherever the operator runs.
var operatorSecrets = []string{"moult-cloud", fleet.PrometheusSecret, notification.Name}

// Reserved is what no Plan may use: what the operator's own Pod has, where it runs in the namespace of the Plans.
type Reserved struct {
	ServiceAccount string
	Secrets        []string
}

// NewReserved returns the service account and the Secrets of a Pod. Pull secrets are not among them: Jobs run the operator's image.
func NewReserved(pod *corev1.PodSpec) Reserved {
	r := Reserved{ServiceAccount: pod.ServiceAccountName}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			r.Secrets = append(r.Secrets, v.Secret.SecretName)
		}
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					r.Secrets = append(r.Secrets, s.Secret.Name)
				}
			}
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		r.Secrets = append(r.Secrets, secretsOf(c.Env, c.EnvFrom)...)
	}
	return r
}

// secretsOf returns the Secrets of an environment.
func secretsOf(env []corev1.EnvVar, from []corev1.EnvFromSource) (names []string) {
	for _, e := range env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			names = append(names, e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, e := range from {
		if e.SecretRef != nil {
			names = append(names, e.SecretRef.Name)
		}
	}
	return names
}

// check says what a Plan uses that is reserved. A Job without an account runs under the account default.
func (r *Reserved) check(p *upgradev1.Plan) error {
	if r.ServiceAccount != "" && cmp.Or(p.Spec.ServiceAccountName, "default") == r.ServiceAccount {
		return fmt.Errorf("spec.serviceAccountName: %q is the operator's own account: name one with the rights that the Jobs need, such as system-upgrade",
			r.ServiceAccount)
	}
	used := map[string][]string{}
	for _, s := range p.Spec.Secrets {
		used["secrets"] = append(used["secrets"], s.Name)
	}
	for field, c := range map[string]*upgradev1.ContainerSpec{"prepare": p.Spec.Prepare, "upgrade": p.Spec.Upgrade} {
		if c != nil {
			used[field+".envs"], used[field+".envFrom"] = secretsOf(c.Env, nil), secretsOf(nil, c.EnvFrom)
		}
	}
	for _, field := range []string{"secrets", "prepare.envs", "prepare.envFrom", "upgrade.envs", "upgrade.envFrom"} {
		for _, name := range used[field] {
			if slices.Contains(operatorSecrets, name) || slices.Contains(r.Secrets, name) {
				return fmt.Errorf("spec.%s: Secret %q is the operator's own: keep what the Jobs need in another Secret", field, name)
			}
		}
	}
	return nil
}
