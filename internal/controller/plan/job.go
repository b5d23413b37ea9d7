// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
)

// newJob returns the Job that carries out the Plan on one node. Except for its name and Moult's two annotations it is the
// same as system-upgrade-controller's.
func newJob(p *upgradev1.Plan, n *corev1.Node, turnID string, o *Options) *batchv1.Job {
	ttl := o.Job.TTL(p)

	labels := plan.Copied(p.Labels)
	maps.Copy(labels, map[string]string{
		upgradev1.LabelController:       o.Name,
		upgradev1.LabelExclusive:        strconv.FormatBool(p.Spec.Exclusive),
		upgradev1.LabelNode:             n.Name,
		upgradev1.LabelPlan:             p.Name,
		upgradev1.LabelVersion:          p.Status.LatestVersion,
		upgradev1.LabelPlanHash(p.Name): p.Status.LatestHash,
	})
	podAnnotations := plan.Copied(p.Annotations)
	jobAnnotations := maps.Clone(podAnnotations)
	jobAnnotations[upgradev1.AnnotationTTL] = strconv.Itoa(int(ttl))
	jobAnnotations[v1alpha1.AnnotationTemplate] = plan.TemplateDigest(p)
	jobAnnotations[v1alpha1.AnnotationTurn] = turnID

	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:        jobName(p, n.Name, turnID),
			Namespace:   p.Namespace,
			Labels:      labels,
			Annotations: jobAnnotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan", Name: p.Name, UID: p.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: batchv1.JobSpec{
			PodReplacementPolicy:    ptr.To(o.Job.PodReplacementPolicy),
			BackoffLimit:            ptr.To(o.Job.BackoffLimit),
			TTLSecondsAfterFinished: ptr.To(ttl),
			ActiveDeadlineSeconds:   deadline(p, &o.Job),
			Completions:             ptr.To[int32](1),
			Parallelism:             ptr.To[int32](1),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: podAnnotations},
				Spec: corev1.PodSpec{
					HostIPC:            true,
					HostPID:            true,
					HostNetwork:        true,
					DNSPolicy:          corev1.DNSClusterFirstWithHostNet,
					RestartPolicy:      corev1.RestartPolicyNever,
					ServiceAccountName: p.Spec.ServiceAccountName,
					PriorityClassName:  p.Spec.PriorityClassName,
					ImagePullSecrets:   p.Spec.ImagePullSecrets,
					Affinity:           affinity(p, n.Labels[corev1.LabelHostname]),
					Tolerations: append([]corev1.Toleration{{
						Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
					}}, p.Spec.Tolerations...),
					Volumes:        volumes(p),
					InitContainers: initContainers(p, n, turnID, &o.Job),
					Containers:     []corev1.Container{upgradeContainer(p, plan.IsWindows(n), &o.Job)},
				},
			},
		},
	}
}

// jobName is unique for Plan, node, hash and turn. Two nodes whose names begin alike never share a Job. A new turn need not wait
// until the Job of the last turn is gone.
func jobName(p *upgradev1.Plan, nodeName, turnID string) string {
	readable := strings.Join([]string{"apply", p.Name, "on", nodeName, "with", p.Status.LatestHash}, "-")
	return nameWithHash(readable, readable+"-"+turnID)
}

// nameWithHash returns a DNS label: the beginning of a name, and a hash of what the label identifies.
func nameWithHash(name, identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return strings.TrimRight(strings.ReplaceAll(name[:min(52, len(name))], ".", "-"), "-") + "-" + hex.EncodeToString(sum[:])[:10]
}

// deadline returns the Plan's own deadline or else the default, limited to the maximum; nil means no deadline.
func deadline(p *upgradev1.Plan, o *plan.JobOptions) *int64 {
	seconds := o.ActiveDeadlineSeconds
	if d := p.Spec.JobActiveDeadlineSecs; d != nil && *d >= 0 {
		seconds = *d
	}
	if limit := o.ActiveDeadlineSecondsMax; limit > 0 && (seconds <= 0 || seconds > limit) {
		seconds = limit
	}
	if seconds <= 0 {
		return nil
	}
	return &seconds
}

// affinity places the pod on its node, apart from pods of the same Plan or of exclusive Plans.
func affinity(p *upgradev1.Plan, hostname string) *corev1.Affinity {
	apart := metav1.LabelSelectorRequirement{Key: upgradev1.LabelPlan, Operator: metav1.LabelSelectorOpIn, Values: []string{p.Name}}
	if p.Spec.Exclusive {
		apart.Key, apart.Values = upgradev1.LabelExclusive, []string{"true"}
	}
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname},
			}}}},
		}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{apart}},
			TopologyKey:   corev1.LabelHostname,
		}}},
	}
}
