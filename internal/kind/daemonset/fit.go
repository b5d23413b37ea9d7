// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Placement is whether a daemon belongs on a node.
type Placement struct {
	// Create says that a pod should be made there.
	Create bool
	// Keep says that one that is there may stay.
	Keep bool
	// Why says why none should be made; "" when one should.
	Why string
}

// Placer tells on which nodes a daemon belongs.
type Placer struct {
	selector, nodeSelector labels.Selector
	nodeName               string
	affinity               *nodeaffinity.NodeSelector // nil: any node
	tolerations            []corev1.Toleration
}

// NewPlacer returns a Placer for the nodes that the selector selects, all when it is nil, with the nodeSelector, the required
// node affinity and the tolerations of the template. The error says which of these can't be read.
func NewPlacer(selector *metav1.LabelSelector, t *corev1.PodTemplateSpec) (*Placer, error) {
	p := &Placer{
		selector: labels.Everything(), nodeSelector: labels.SelectorFromSet(t.Spec.NodeSelector), nodeName: t.Spec.NodeName,
		tolerations: tolerations(&t.Spec),
	}
	if selector != nil {
		var err error
		if p.selector, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, fmt.Errorf("reading spec.selector, %w", err)
		}
	}
	a := t.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p, nil
	}
	var err error
	if p.affinity, err = nodeaffinity.NewNodeSelector(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
		return nil, fmt.Errorf("reading the template's node affinity, %w", err)
	}
	return p, nil
}

// Place says whether the daemon belongs on a node. A taint NoSchedule that the pod does not tolerate keeps new ones away and
// lets be what runs, as with the built-in DaemonSet; so does it that the node is being deleted.
func (p *Placer) Place(n *corev1.Node) Placement {
	set := labels.Set(n.Labels)
	switch {
	case !p.selector.Matches(set):
		return Placement{Why: "spec.selector does not select it"}
	case p.nodeName != "" && p.nodeName != n.Name:
		return Placement{Why: "the template's nodeName is " + p.nodeName}
	case !p.nodeSelector.Matches(set):
		return Placement{Why: "the template's nodeSelector does not select it"}
	case p.affinity != nil && !p.affinity.Match(n):
		return Placement{Why: "the template's node affinity does not select it"}
	}
	why := ""
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute || p.tolerates(t) {
			continue
		}
		if why == "" || t.Effect == corev1.TaintEffectNoExecute {
			why = "the template does not tolerate its taint " + t.ToString()
		}
		if t.Effect == corev1.TaintEffectNoExecute {
			return Placement{Why: why}
		}
	}
	if n.DeletionTimestamp != nil {
		why = "it is being deleted"
	}
	return Placement{Create: why == "", Keep: true, Why: why}
}

func (p *Placer) tolerates(t *corev1.Taint) bool {
	for i := range p.tolerations {
		if tolerates(&p.tolerations[i], t) {
			return true
		}
	}
	return false
}

func tolerates(by *corev1.Toleration, t *corev1.Taint) bool {
	if by.Effect != "" && by.Effect != t.Effect || by.Key != "" && by.Key != t.Key {
		return false
	}
	switch by.Operator {
	case "", corev1.TolerationOpEqual:
		return by.Value == t.Value
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		limit, err1 := strconv.ParseInt(by.Value, 10, 64)
		value, err2 := strconv.ParseInt(t.Value, 10, 64)
		return err1 == nil && err2 == nil && (value < limit) == (by.Operator == corev1.TolerationOpLt) && value != limit
	default:
		return false
	}
}
