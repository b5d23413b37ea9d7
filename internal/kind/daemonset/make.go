// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// PodOptions say how a pod is bound and labelled.
type PodOptions struct {
	// NodeName binds the pod by spec.nodeName. Otherwise a required node affinity makes the scheduler bind the pod.
	NodeName bool
	// Canary puts the canary's label on the pod.
	Canary bool
}

// NewPod returns the pod of a revision for a node. The name is a function of revision, node and overrides, so the same pod can't be
// created twice. o must be the overrides of that node.
func NewPod(rs *edsv1.ExtendedDaemonSetReplicaSet, eds string, n *corev1.Node, o Overrides, opts PodOptions) *corev1.Pod {
	t := rs.Spec.Template.DeepCopy()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rs.Namespace, GenerateName: namePrefix(rs.Name, podSuffix),
			Name:   namePrefix(rs.Name, podSuffix) + nameSuffix(podSuffix, string(rs.UID), n.Name, o.Hash),
			Labels: map[string]string{}, Annotations: map[string]string{}, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(rs, edsv1.GroupVersion.WithKind(kindReplicaSet)),
			},
		},
		Spec: t.Spec,
	}
	maps.Copy(p.Labels, t.Labels)
	put(p.Labels, edsv1.LabelName, eds)
	put(p.Labels, edsv1.LabelReplicaSetName, rs.Name)
	put(p.Labels, edsv1.LabelReplicaSetCanary, "")
	if opts.Canary {
		put(p.Labels, edsv1.LabelReplicaSetCanary, edsv1.True)
	}
	put(p.Labels, edsv1.LabelSettingName, o.SettingName)
	put(p.Labels, edsv1.LabelSettingNamespace, o.SettingNamespace)
	maps.Copy(p.Annotations, t.Annotations)
	put(p.Annotations, edsv1.AnnotationTemplateHash, rs.Spec.TemplateGeneration)
	put(p.Annotations, edsv1.AnnotationDaemonsetPod, edsv1.True)
	put(p.Annotations, edsv1.AnnotationNodeHash, o.NodeHash)
	put(p.Annotations, edsv1.AnnotationOverrides, cmp.Or(o.Hash, noOverrides))
	for i := range p.Spec.Containers {
		if r, ok := o.Resources[p.Spec.Containers[i].Name]; ok {
			p.Spec.Containers[i].Resources = *r.DeepCopy()
		}
	}
	p.Spec.Tolerations = tolerations(&p.Spec)
	if opts.NodeName {
		p.Spec.NodeName = n.Name
	} else {
		bind(&p.Spec, n.Name)
	}
	return p
}

// put sets a key that templates may not set. With an empty value it removes the template's value.
func put(m map[string]string, key, value string) {
	if value == "" {
		delete(m, key)
		return
	}
	m[key] = value
}

// noOverrides is the hash of the overrides of a pod without any.
const noOverrides = "none"

// A name is no longer than a host's may be, as with names that the API server generates. Its suffix has the characters that the API
// server uses, which spell no words.
const (
	nameLength     = 63
	podSuffix      = 10
	revisionSuffix = 5
	alphabet       = "bcdfghjklmnpqrstvwxz2456789"
)

func namePrefix(owner string, suffix int) string {
	base := owner + "-"
	return base[:min(len(base), nameLength-suffix)]
}

// nameSuffix is a hash of the parts.
func nameSuffix(length int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	text := make([]byte, length)
	for i := range text {
		text[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(text)
}

// newReplicaSet returns a new ReplicaSet for the template. Its name is a function of the ExtendedDaemonSet and the template's hash, so one
// template gets one ReplicaSet.
func newReplicaSet(eds *edsv1.ExtendedDaemonSet, spec *edsv1.ExtendedDaemonSetSpec, hash string) *ReplicaSet {
	rs := &ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: eds.Namespace, Name: namePrefix(eds.Name, revisionSuffix) + nameSuffix(revisionSuffix, string(eds.UID), hash),
			Labels: maps.Clone(eds.Labels), Annotations: maps.Clone(eds.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(eds, edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))},
		},
		Spec: edsv1.ExtendedDaemonSetReplicaSetSpec{Selector: spec.Selector, Template: *spec.Template.DeepCopy(), TemplateGeneration: hash},
	}
	metav1.SetMetaDataLabel(&rs.ObjectMeta, edsv1.LabelName, eds.Name)
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, edsv1.AnnotationTemplateHash, hash)
	return rs
}

// bind adds a required node affinity for one node, and keeps the other affinity terms.
func bind(s *corev1.PodSpec, node string) {
	s.Affinity = cmp.Or(s.Affinity, &corev1.Affinity{})
	s.Affinity.NodeAffinity = cmp.Or(s.Affinity.NodeAffinity, &corev1.NodeAffinity{})
	required := cmp.Or(requiredAffinity(s), &corev1.NodeSelector{})
	s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	if len(required.NodeSelectorTerms) == 0 {
		required.NodeSelectorTerms = make([]corev1.NodeSelectorTerm, 1)
	}
	for i := range required.NodeSelectorTerms {
		// The name is the only field that can be required.
		required.NodeSelectorTerms[i].MatchFields = []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}
	}
}

// standardTolerations are the tolerations of all daemon pods: no condition of a node and no cordon removes them. New ones come also
// to a node that is under pressure or cordoned, and not to one that is not ready.
var standardTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// tolerations returns the tolerations of a pod's spec and the standard ones. As in the built-in DaemonSet, a standard toleration
// replaces the same one with a time limit. Only hostNetwork pods tolerate network-unavailable.
func tolerations(s *corev1.PodSpec) []corev1.Toleration {
	added := standardTolerations
	if s.HostNetwork {
		added = append(slices.Clip(added), corev1.Toleration{
			Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	all := slices.DeleteFunc(slices.Clone(s.Tolerations), func(t corev1.Toleration) bool {
		return slices.ContainsFunc(added, func(a corev1.Toleration) bool { return t.MatchToleration(&a) })
	})
	return append(all, added...)
}

// NodeOf returns the node of a pod, or the node that its affinity requires, or "".
func NodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	required := requiredAffinity(&p.Spec)
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// TrimPod keeps the fields of a Pod that are read here. It is a transform of a cache, and changes the Pod that it is given.
func TrimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	p.ManagedFields = nil
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return !slices.Contains(keptAnnotations, key) })
	spec := corev1.PodSpec{
		NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
	}
	if node := NodeOf(p); node != "" && spec.NodeName == "" {
		bind(&spec, node)
	}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources})
	}
	for _, c := range p.Spec.InitContainers {
		spec.InitContainers = append(spec.InitContainers, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	s := &p.Status
	p.Spec, p.Status = spec, corev1.PodStatus{
		Phase: s.Phase, Conditions: s.Conditions, Message: s.Message, Reason: s.Reason, StartTime: s.StartTime,
		InitContainerStatuses: trimStatuses(s.InitContainerStatuses), ContainerStatuses: trimStatuses(s.ContainerStatuses),
	}
	return p, nil
}

var keptAnnotations = []string{
	edsv1.AnnotationTemplateHash, edsv1.AnnotationNodeHash, edsv1.AnnotationOverrides, edsv1.AnnotationDaemonsetPod,
}

func trimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	for i, s := range all {
		all[i] = corev1.ContainerStatus{
			Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, Ready: s.Ready, RestartCount: s.RestartCount,
			Started: s.Started,
		}
	}
	return all
}

// For an unset creationTimestamp k8s.io/api v0.31 wrote null, and later versions write nothing. To put the null back in its
// place, TemplateHash sets the last possible time as a mark, and then replaces the mark.
var (
	unset       = metav1.NewTime(time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC))
	unsetJSON   = []byte(`"creationTimestamp":"9999-12-31T23:59:59Z"`)
	unsetJSON31 = []byte(`"creationTimestamp":null`)
)

// TemplateHash returns the hash of a template: the hexadecimal MD5 of its JSON, without its name, as k8s.io/api v0.31.1
// writes it. ExtendedDaemonSet wrote the same hash on its objects. Newer fields are
// part of the hash when they are set. It panics if the template does not marshal, which no template of the API server does.
func TemplateHash(t *corev1.PodTemplateSpec) string {
	t = t.DeepCopy()
	t.Name = ""
	mark(&t.ObjectMeta)
	for i := range t.Spec.Volumes {
		if e := t.Spec.Volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			mark(&e.VolumeClaimTemplate.ObjectMeta)
		}
	}
	raw, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	sum := md5.Sum(bytes.ReplaceAll(raw, unsetJSON, unsetJSON31))
	return hex.EncodeToString(sum[:])
}

func mark(m *metav1.ObjectMeta) {
	if m.CreationTimestamp.IsZero() {
		m.CreationTimestamp = unset
	}
}
