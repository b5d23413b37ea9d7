// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/hack/image"
)

const peerExamples = "../../../shared/peers/system-upgrade-controller/examples"

// The manifests that system-upgrade-controller publishes are accepted as they are, and make the Jobs that it would make.
func TestPeerExamples(t *testing.T) {
	if _, err := os.Stat(peerExamples); err != nil {
		t.Skipf("the published examples are not here: %v", err)
	}
	names := takeSimulated(t, 3)
	labels := []map[string]any{
		{"k3s-upgrade": "true", "node-role.kubernetes.io/control-plane": ""},
		{"k3s-upgrade": "true"},
		{"plan.upgrade.cattle.io/bionic": "wanted"},
	}
	for i, name := range names {
		patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": labels[i]}})
		t.Cleanup(func() {
			gone := map[string]any{}
			for key := range labels[i] {
				gone[key] = nil
			}
			patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": gone}})
		})
	}
	for _, file := range []string{"k3s-upgrade.yaml", "ubuntu-bionic.yaml"} {
		out, err := kubectl(t.Context(), "apply", "-f", filepath.Join(peerExamples, file))
		if err != nil {
			t.Fatalf("%s is refused: %v\n%s", file, err, out)
		}
		t.Cleanup(func() {
			_, _ = kubectl(context.WithoutCancel(t.Context()), "delete", "--ignore-not-found", "-f", filepath.Join(peerExamples, file))
		})
	}
	for _, plan := range []string{"k3s-server", "k3s-agent", "bionic"} {
		t.Cleanup(func() { remove(t, plan) })
	}
	const privilegedSelector = "!upgrade.cattle.io/controller"
	wants := map[string]struct {
		node, version string
		init          []corev1.Container
		upgrade       corev1.Container
		secrets       []string
	}{
		"k3s-server": {
			node: names[0], version: "v1.20.11-k3s1",
			init:    []corev1.Container{{Name: "cordon", Image: image.Operator, Args: []string{"cordon", names[0]}}},
			upgrade: corev1.Container{Name: "upgrade", Image: "rancher/k3s-upgrade:v1.20.11-k3s1"},
		},
		"k3s-agent": {
			node: names[1], version: "v1.20.11-k3s1",
			init: []corev1.Container{
				{Name: "prepare", Image: "rancher/k3s-upgrade:v1.20.11-k3s1", Args: []string{"prepare", "k3s-server"}},
				{Name: "drain", Image: image.Operator, Args: []string{
					"drain", names[1], "--pod-selector", privilegedSelector, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
					"--skip-wait-for-delete-timeout", "60",
				}},
			},
			upgrade: corev1.Container{Name: "upgrade", Image: "rancher/k3s-upgrade:v1.20.11-k3s1"},
		},
		"bionic": {
			node: names[2], version: "bionic",
			init: []corev1.Container{{Name: "drain", Image: image.Operator, Args: []string{
				"drain", names[2], "--pod-selector", privilegedSelector, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
			}}},
			upgrade: corev1.Container{
				Name: "upgrade", Image: "ubuntu:bionic", Command: []string{"chroot", "/host"},
				Args: []string{"sh", "/run/system-upgrade/secrets/bionic/upgrade.sh"},
			},
			secrets: []string{"bionic"},
		},
	}
	for plan, want := range wants {
		complete(t, plan)
		jobs := jobsOf(t, plan)
		if len(jobs) != 1 {
			t.Fatalf("%d jobs of %s, want 1", len(jobs), plan)
		}
		job := &jobs[0]
		hash := get(t, plan).Status.LatestHash
		t.Run(plan, func(t *testing.T) {
			compareJob(t, job, plan, want.node, want.version, hash, want.init, want.upgrade, want.secrets)
		})
	}
}

func compareJob(t *testing.T, job *batchv1.Job, plan, node, version, hash string, init []corev1.Container, upgrade corev1.Container, secrets []string) {
	t.Helper()
	check := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
	labels := map[string]string{
		"upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/exclusive": "false",
		"upgrade.cattle.io/node": node, "upgrade.cattle.io/plan": plan, "upgrade.cattle.io/version": version,
		"plan.upgrade.cattle.io/" + plan: hash,
	}
	if strings.HasPrefix(plan, "k3s") {
		labels["k3s-upgrade"] = strings.TrimPrefix(plan, "k3s-")
	}
	check("labels", labels, job.Labels)
	pod := job.Spec.Template
	for key, value := range labels {
		check("pod label "+key, value, pod.Labels[key])
	}
	check("ttl annotation", "900", job.Annotations["upgrade.cattle.io/ttl-seconds-after-finished"])
	check("owner", []string{"Plan", plan}, []string{job.OwnerReferences[0].Kind, job.OwnerReferences[0].Name})
	check("counts", []int32{1, 1, 0, 900}, []int32{*job.Spec.Completions, *job.Spec.Parallelism, *job.Spec.BackoffLimit, *job.Spec.TTLSecondsAfterFinished})
	check("deadline", ptr.To[int64](600), job.Spec.ActiveDeadlineSeconds)
	check("replacement", ptr.To(batchv1.TerminatingOrFailed), job.Spec.PodReplacementPolicy)

	s := pod.Spec
	check("host", []bool{true, true, true}, []bool{s.HostIPC, s.HostPID, s.HostNetwork})
	check("dns, restart, account", []string{"ClusterFirstWithHostNet", "Never", "system-upgrade"}, []string{string(s.DNSPolicy), string(s.RestartPolicy), s.ServiceAccountName})
	check("tolerations", []corev1.Toleration{{Key: "node.kubernetes.io/unschedulable", Operator: "Exists", Effect: "NoSchedule"}}, s.Tolerations)
	terms := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	check("node affinity", []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "kubernetes.io/hostname", Operator: "In", Values: []string{node}},
	}}}, terms)
	apart := s.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	check("anti-affinity", "kubernetes.io/hostname upgrade.cattle.io/plan In "+plan,
		fmt.Sprint(apart[0].TopologyKey, " ", apart[0].LabelSelector.MatchExpressions[0].Key, " ", apart[0].LabelSelector.MatchExpressions[0].Operator, " ", apart[0].LabelSelector.MatchExpressions[0].Values[0]))

	var volumes []string
	for _, v := range s.Volumes {
		volumes = append(volumes, v.Name)
	}
	wantVolumes := []string{"host-root", "pod-info"}
	mounts := []corev1.VolumeMount{{Name: "host-root", MountPath: "/host"}, {Name: "pod-info", MountPath: "/run/system-upgrade/pod", ReadOnly: true}}
	for _, name := range secrets {
		wantVolumes = append(wantVolumes, "secret-"+name)
		mounts = append(mounts, corev1.VolumeMount{Name: "secret-" + name, MountPath: "/host/run/system-upgrade/secrets/" + name, ReadOnly: true})
	}
	check("volumes", wantVolumes, volumes)

	upgrade.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_BOOT"}}}
	wants := append(slices.Clone(init), upgrade)
	got := append(slices.Clone(s.InitContainers), s.Containers...)
	if len(got) != len(wants) {
		t.Fatalf("%d containers, want %d", len(got), len(wants))
	}
	for i := range wants {
		want := wants[i]
		var env []string
		for _, e := range got[i].Env {
			text := e.Name + "=" + e.Value
			if e.ValueFrom != nil {
				text += e.ValueFrom.FieldRef.FieldPath
			}
			env = append(env, text)
		}
		check(want.Name+" environment", []string{
			"SYSTEM_UPGRADE_NODE_NAME=spec.nodeName", "SYSTEM_UPGRADE_POD_NAME=metadata.name", "SYSTEM_UPGRADE_POD_UID=metadata.uid",
			"SYSTEM_UPGRADE_PLAN_NAME=" + plan, "SYSTEM_UPGRADE_PLAN_LATEST_HASH=" + hash, "SYSTEM_UPGRADE_PLAN_LATEST_VERSION=" + version,
		}, env)
		want.Env, want.VolumeMounts = got[i].Env, mounts
		want.ImagePullPolicy, want.TerminationMessagePath, want.TerminationMessagePolicy = corev1.PullNever, "/dev/termination-log", corev1.TerminationMessageReadFile
		check(want.Name, want, got[i])
	}
}

// A Job that system-upgrade-controller left running is taken over: it is not run again, and its result counts.
func TestPlanAdoptsARunningJob(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	p := newPlan(t, "adopts", "true")
	p.Spec.Concurrency = 0
	p.Spec.Cordon = true
	create(t, p)
	hash := status(t, p.Name, "resolved", func(s *upgradev1.PlanStatus) bool { return s.LatestHash != "" }).Status.LatestHash
	patchNode(t, name, map[string]any{"spec": map[string]any{"unschedulable": true}})
	labels := map[string]string{
		"upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/node": name, "upgrade.cattle.io/plan": p.Name,
		"upgrade.cattle.io/version": "v1", "plan.upgrade.cattle.io/" + p.Name: hash,
	}
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{corev1.LabelHostname: name},
		Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:    []corev1.Container{{Name: "upgrade", Image: "x"}},
	}}}}
	job.Namespace, job.Name, job.Labels = namespace, "apply-adopts-by-another", labels
	job.Spec.Template.Labels = labels
	job.Spec.Template.Annotations = map[string]string{"test.moult.dev/seconds": "3"}
	p = get(t, p.Name)
	job.OwnerReferences = append(job.OwnerReferences, ownerReference(p))
	if err := world.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "applying the adopted job", func(s *upgradev1.PlanStatus) bool { return len(s.Applying) == 1 })
	complete(t, p.Name)
	released(t, name, false)
	jobs := jobsOf(t, p.Name)
	if len(jobs) != 1 || client.ObjectKeyFromObject(&jobs[0]) != client.ObjectKeyFromObject(job) {
		t.Errorf("%d jobs, want the adopted one alone", len(jobs))
	}
}

// A Job that was left running on a node which the Plan does not select any more is not left there: it is stopped, and the
// node is given back.
func TestPlanAdoptsAJobOnANodeThatLeft(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	p := newPlan(t, "left", "true")
	p.Spec.Concurrency = 0
	p.Spec.Cordon = true
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{target: "nowhere"}}
	create(t, p)
	hash := status(t, p.Name, "resolved", func(s *upgradev1.PlanStatus) bool { return s.LatestHash != "" }).Status.LatestHash
	patchNode(t, name, map[string]any{"spec": map[string]any{"unschedulable": true}})
	labels := map[string]string{
		"upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/node": name, "upgrade.cattle.io/plan": p.Name,
		"upgrade.cattle.io/version": "v1", "plan.upgrade.cattle.io/" + p.Name: hash,
	}
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{corev1.LabelHostname: name},
		Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:    []corev1.Container{{Name: "upgrade", Image: "x"}},
	}}}}
	job.Namespace, job.Name, job.Labels = namespace, "apply-left-by-another", labels
	job.Spec.Template.Labels = labels
	job.Spec.Template.Annotations = map[string]string{"test.moult.dev/hang": "true"}
	job.OwnerReferences = append(job.OwnerReferences, ownerReference(get(t, p.Name)))
	if err := world.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is given back", func(context.Context) (string, bool) {
		n := node(t, name)
		return fmt.Sprint(n.Annotations, n.Spec.Unschedulable), len(jobsOf(t, p.Name)) == 0 && !n.Spec.Unschedulable
	})
	released(t, name, false)
}

// The examples are what the API server takes, to the last field.
func TestOwnExamplesAreValid(t *testing.T) {
	t.Parallel()
	out, err := kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", "../../examples")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
