// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"moult.dev/moult/internal/rollout"
)

// Placement is whether a daemon belongs on a node.
type Placement struct {
	// Create says that a pod should be created there.
	Create bool
	// Keep says that an existing pod may stay.
	Keep bool
	// Why says why no pod should be created, or is "".
	Why string
}

// Placer says on which nodes a daemon belongs.
type Placer struct {
	selector    labels.Selector
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity // with the nodeSelector
	tolerations []corev1.Toleration
}

// NewPlacer returns a Placer for the selector and the template's nodeSelector, required node affinity and tolerations. A nil
// selector selects all nodes. The error says which of these is invalid.
func NewPlacer(selector *metav1.LabelSelector, t *corev1.PodTemplateSpec) (*Placer, error) {
	p := &Placer{
		selector: labels.Everything(), nodeName: t.Spec.NodeName, tolerations: tolerations(&t.Spec),
		affinity: nodeaffinity.NewRequiredNodeAffinity(t.Spec.NodeSelector, t.Spec.Affinity),
	}
	var err error
	if selector != nil {
		if p.selector, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, fmt.Errorf("reading spec.selector, %w", err)
		}
	}
	if required := requiredAffinity(&t.Spec); required != nil {
		if _, err = nodeaffinity.NewNodeSelector(required); err != nil {
			return nil, fmt.Errorf("reading spec.template.spec.affinity, %w", err)
		}
	}
	return p, nil
}

// requiredAffinity is the required node affinity of a pod, or nil.
func requiredAffinity(s *corev1.PodSpec) *corev1.NodeSelector {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// Place says whether the daemon belongs on a node. If the node has an untolerated NoSchedule taint, or is being deleted, running pods
// stay and no pod is created, as with the built-in DaemonSet.
func (p *Placer) Place(n *corev1.Node) Placement {
	switch fits, err := p.affinity.Match(n); {
	case !p.selector.Matches(labels.Set(n.Labels)):
		return Placement{Why: "spec.selector does not select it"}
	case p.nodeName != "" && p.nodeName != n.Name:
		return Placement{Why: "the template's nodeName is " + p.nodeName}
	case err != nil || !fits:
		return Placement{Why: "the template's nodeSelector or node affinity does not select it"}
	}
	if t := p.untolerated(n, corev1.TaintEffectNoExecute); t != nil {
		return Placement{Why: "the template does not tolerate its taint " + t.ToString()}
	}
	why := ""
	if t := p.untolerated(n, corev1.TaintEffectNoSchedule); t != nil {
		why = "the template does not tolerate its taint " + t.ToString()
	}
	if n.DeletionTimestamp != nil {
		why = "it is being deleted"
	}
	return Placement{Create: why == "", Keep: true, Why: why}
}

// untolerated is the first taint with this effect that the template does not tolerate, or nil.
func (p *Placer) untolerated(n *corev1.Node, effect corev1.TaintEffect) *corev1.Taint {
	return rollout.Find(n.Spec.Taints, func(t *corev1.Taint) bool {
		return t.Effect == effect && !slices.ContainsFunc(p.tolerations, func(by corev1.Toleration) bool { return tolerates(&by, t) })
	})
}

// tolerates reports whether a toleration matches a taint, as in the scheduler. The function of package corev1 needs a logger.
func tolerates(by *corev1.Toleration, t *corev1.Taint) bool {
	if by.Effect != "" && by.Effect != t.Effect || by.Key != "" && by.Key != t.Key {
		return false
	}
	switch by.Operator {
	case "", corev1.TolerationOpEqual:
		return by.Value == t.Value
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		limit, err1 := strconv.ParseInt(by.Value, 10, 64)
		value, err2 := strconv.ParseInt(t.Value, 10, 64)
		return err1 == nil && err2 == nil && value != limit && (value < limit) == (by.Operator == corev1.TolerationOpLt)
	}
	return by.Operator == corev1.TolerationOpExists
}

// portsConflict reports whether the outdated pod and the new pod need the same port of the host. Then they can't run side by side.
// It ignores hostIP.
func (s *NodeState) portsConflict() bool {
	taken := hostPorts(&s.Outdated.Spec)
	return slices.ContainsFunc(hostPorts(&s.Want.Spec.Template.Spec), func(port string) bool { return slices.Contains(taken, port) })
}

// hostPorts returns the ports of the host that a pod uses, such as TCP/80. With hostNetwork these are all its container ports.
func hostPorts(s *corev1.PodSpec) (ports []string) {
	for _, container := range slices.Concat(s.InitContainers, s.Containers) {
		for _, c := range container.Ports {
			number := c.HostPort
			if s.HostNetwork {
				number = cmp.Or(number, c.ContainerPort)
			}
			if number != 0 {
				ports = append(ports, fmt.Sprintf("%s/%d", cmp.Or(c.Protocol, corev1.ProtocolTCP), number))
			}
		}
	}
	return ports
}
