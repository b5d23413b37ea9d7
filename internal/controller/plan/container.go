// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"path"
	"slices"
	"strconv"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/kind/plan"
)

const (
	volumeHostRoot = "host-root"
	volumePodInfo  = "pod-info"
	secretsRoot    = "/run/system-upgrade/secrets" //nolint:gosec // It is a path.
)

// initContainers run before the change, in this order: prepare, then drain, or cordon if there is no drain.
func initContainers(p *upgradev1.Plan, n *corev1.Node, turnID string, o *plan.JobOptions) []corev1.Container {
	windows := plan.IsWindows(n)
	var all []corev1.Container
	if spec := p.Spec.Prepare; spec != nil {
		prepare := container("prepare", p, *spec, o)
		prepare.Image = withTag(spec.Image, p.Status.LatestVersion)
		if windows {
			prepare.SecurityContext = hostProcess()
		}
		all = append(all, prepare)
	}
	var name string
	var args []string
	switch {
	case p.Spec.Drain != nil:
		name, args = plan.DrainContainer, drainArgs(p.Spec.Drain, n.Name)
	case p.Spec.Cordon:
		name, args = plan.CordonContainer, []string{"cordon", n.Name}
	default:
		return all
	}
	if o.AwaitsOperator(n) {
		args = append(args, "--turn", turnID)
	}
	spec := upgradev1.ContainerSpec{Image: cmp.Or(o.KubectlImage, o.Image), Args: args, Volumes: p.Spec.Upgrade.Volumes}
	if windows {
		spec.Image = o.KubectlImageWindows
	}
	cordon := container(name, p, spec, o)
	if windows {
		cordon.SecurityContext = hostProcess()
	}
	return append(all, cordon)
}

// upgradeContainer does the change.
func upgradeContainer(p *upgradev1.Plan, windows bool, o *plan.JobOptions) corev1.Container {
	upgrade := container("upgrade", p, *p.Spec.Upgrade, o)
	upgrade.Image = withTag(upgrade.Image, p.Status.LatestVersion)
	switch {
	case upgrade.SecurityContext != nil:
	case windows:
		upgrade.SecurityContext = hostProcess()
	default:
		upgrade.SecurityContext = &corev1.SecurityContext{
			Privileged:   ptr.To(o.Privileged),
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_BOOT"}},
		}
	}
	return upgrade
}

// container returns what all containers share: the host's root, the pod's labels, the secrets, and the environment.
func container(name string, p *upgradev1.Plan, spec upgradev1.ContainerSpec, o *plan.JobOptions) corev1.Container {
	c := corev1.Container{
		Name:            name,
		Image:           spec.Image,
		Command:         spec.Command,
		Args:            spec.Args,
		EnvFrom:         spec.EnvFrom,
		SecurityContext: spec.SecurityContext,
		ImagePullPolicy: o.ImagePullPolicy,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeHostRoot, MountPath: "/host"},
			{Name: volumePodInfo, MountPath: "/run/system-upgrade/pod", ReadOnly: true},
		},
		Env: slices.Concat([]corev1.EnvVar{
			fromField("SYSTEM_UPGRADE_NODE_NAME", "spec.nodeName"),
			fromField("SYSTEM_UPGRADE_POD_NAME", "metadata.name"),
			fromField("SYSTEM_UPGRADE_POD_UID", "metadata.uid"),
		}, spec.Env, []corev1.EnvVar{
			{Name: "SYSTEM_UPGRADE_PLAN_NAME", Value: p.Name},
			{Name: "SYSTEM_UPGRADE_PLAN_LATEST_HASH", Value: p.Status.LatestHash},
			{Name: "SYSTEM_UPGRADE_PLAN_LATEST_VERSION", Value: p.Status.LatestVersion},
		}),
	}
	for _, s := range p.Spec.Secrets {
		at := cmp.Or(s.Path, s.Name)
		if !path.IsAbs(at) {
			at = path.Join(secretsRoot, at)
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: secretVolume(s.Name), MountPath: at, ReadOnly: true})
	}
	for _, v := range spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.Destination})
	}
	return c
}

func fromField(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}}
}

// volumes returns the volumes of the pod. It includes each volume of prepare, unless upgrade has a volume of the same name.
func volumes(p *upgradev1.Plan) []corev1.Volume {
	all := []corev1.Volume{
		{Name: volumeHostRoot, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: ptr.To(corev1.HostPathDirectory)},
		}},
		{Name: volumePodInfo, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			DefaultMode: ptr.To[int32](420),
			Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels"}},
				{Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations"}},
			},
		}}},
	}
	for _, s := range p.Spec.Secrets {
		all = append(all, corev1.Volume{Name: secretVolume(s.Name), VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: s.Name, DefaultMode: s.DefaultMode, Optional: ptr.To(s.IgnoreUpdates)},
		}})
	}
	hostPaths := slices.Clone(p.Spec.Upgrade.Volumes)
	if p.Spec.Prepare != nil {
		for _, v := range p.Spec.Prepare.Volumes {
			if !slices.ContainsFunc(hostPaths, func(o upgradev1.VolumeSpec) bool { return o.Name == v.Name }) {
				hostPaths = append(hostPaths, v)
			}
		}
	}
	for _, v := range hostPaths {
		all = append(all, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: v.Source},
		}})
	}
	return all
}

// secretVolume returns the name of a Secret's volume: "secret-" and the Secret's name, changed to a DNS label where needed.
func secretVolume(secret string) string {
	name := "secret-" + secret
	if len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return nameWithHash(name, name)
}

// drainArgs returns kubectl arguments, in the order of system-upgrade-controller.
func drainArgs(d *upgradev1.DrainSpec, nodeName string) []string {
	options, _ := drain.OptionsOfPlan(d) // Validation has refused what can't be read.
	args := []string{"drain", nodeName, "--pod-selector", options.PodSelector.String()}
	if ptr.Deref(d.IgnoreDaemonSets, true) {
		args = append(args, "--ignore-daemonsets")
	}
	if ptr.Deref(d.DeleteLocalData, true) && ptr.Deref(d.DeleteEmptydirData, true) {
		args = append(args, "--delete-emptydir-data")
	}
	if d.Force {
		args = append(args, "--force")
	}
	if t := d.Timeout; t != nil {
		args = append(args, "--timeout", drain.TimeoutOf(*t))
	}
	if d.GracePeriod != nil {
		args = append(args, "--grace-period", strconv.Itoa(int(*d.GracePeriod)))
	}
	if d.DisableEviction {
		args = append(args, "--disable-eviction=true")
	}
	if d.SkipWaitForDeleteTimeout > 0 {
		args = append(args, "--skip-wait-for-delete-timeout", strconv.Itoa(d.SkipWaitForDeleteTimeout))
	}
	return args
}

// withTag adds the tag to an image that has neither tag nor digest. It does not change an invalid image, which the kubelet reports.
func withTag(image, tag string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil || !reference.IsNameOnly(named) {
		return image
	}
	tagged, err := reference.WithTag(named, tag)
	if err != nil {
		return image
	}
	return reference.FamiliarString(tagged)
}

func hostProcess() *corev1.SecurityContext {
	return &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{
		HostProcess: ptr.To(true), RunAsUserName: ptr.To(`NT AUTHORITY\SYSTEM`),
	}}
}
