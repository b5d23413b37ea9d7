// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/notification"
)

// parse reads a Plan's spec, and says what is invalid in it. Some checks have system-upgrade-controller's words. The others
// find Plans that would fail for ever without a message. lookup returns an error if a Secret does not exist.
func parse(p *upgradev1.Plan, lookup func(name string) error) (*plan.World, error) {
	w, err := plan.NewWorld(p)
	var missing []string
	for _, s := range p.Spec.Secrets {
		if s.IgnoreUpdates {
			continue
		}
		if err := lookup(s.Name); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 {
		err = errors.New(strings.Join(missing, ", "))
	}
	return w, cmp.Or(checkDrain(p.Spec.Drain), err)
}

// checkDrain refuses drain options that contradict each other, or that can't be parsed.
func checkDrain(d *upgradev1.DrainSpec) error {
	if d == nil {
		return nil
	}
	if d.DeleteEmptydirData != nil && d.DeleteLocalData != nil {
		return errors.New("spec.drain cannot specify both deleteEmptydirData and deleteLocalData")
	}
	o, err := drain.OptionsOfPlan(d)
	if err == nil && d.OnTimeout != "" && d.Timeout != nil && o.Timeout <= 0 {
		err = fmt.Errorf("spec.drain.timeout is %s, and must be positive for onTimeout: %s to come", o.Timeout, d.OnTimeout)
	}
	return err
}

// checkDeadline refuses an onTimeout of a drain that never comes, because its Job ends first.
func checkDeadline(p *upgradev1.Plan, o *plan.JobOptions) error {
	seconds := deadline(p, o)
	if p.Spec.Drain == nil || seconds == nil || cmp.Or(o.KubectlImage, o.KubectlImageWindows) != "" {
		return nil
	}
	d, _ := drain.OptionsOfPlan(p.Spec.Drain) // checkDrain has refused what can't be read.
	most := time.Duration(*seconds) * time.Second
	if d.OnTimeout == "" || d.OnTimeout == drain.HaltOnTimeout || d.Timeout < most {
		return nil
	}
	return fmt.Errorf("spec.drain.timeout, %s, must be less than the deadline of the Job, %s, for onTimeout: %s to come: shorten it, or raise spec.jobActiveDeadlineSecs or its limit",
		d.Timeout, most, d.OnTimeout)
}

// checkVersion refuses a version that is not a valid label value for the Job.
func checkVersion(version string) error {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return fmt.Errorf("version %q can't serve as a label value and image tag: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", version)
	}
	return nil
}

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
