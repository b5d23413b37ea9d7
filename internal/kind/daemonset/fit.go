// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
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
	affinity               []affinityTerm
	anywhere               bool
	tolerations            []corev1.Toleration
}

// affinityTerm is one of several of which a node has to match any.
type affinityTerm struct {
	labels labels.Selector
	names  []nameRule
}

// nameRule says that a node must have a name, or must not.
type nameRule struct {
	name string
	not  bool
}

// NewPlacer returns a Placer for the nodes that the selector selects, all when it is nil, with the nodeSelector, the required
// node affinity and the tolerations of the template. The error says which of these can't be read.
func NewPlacer(selector *metav1.LabelSelector, t *corev1.PodTemplateSpec) (*Placer, error) {
	p := &Placer{
		selector: labels.Everything(), nodeSelector: labels.SelectorFromSet(t.Spec.NodeSelector), nodeName: t.Spec.NodeName,
		anywhere: true, tolerations: tolerations(&t.Spec),
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
	p.anywhere = false
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue // It selects nothing.
		}
		read, err := readTerm(&term)
		if err != nil {
			return nil, fmt.Errorf("reading the template's node affinity, %w", err)
		}
		p.affinity = append(p.affinity, read)
	}
	return p, nil
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// readTerm reads a term. As everywhere, the only field is the node's name, and a requirement of it has one value.
func readTerm(from *corev1.NodeSelectorTerm) (affinityTerm, error) {
	t := affinityTerm{labels: labels.NewSelector()}
	for _, e := range from.MatchExpressions {
		operator, ok := operators[e.Operator]
		if !ok {
			return t, fmt.Errorf("matchExpressions of %s: there is no operator %q", e.Key, e.Operator)
		}
		r, err := labels.NewRequirement(e.Key, operator, e.Values)
		if err != nil {
			return t, fmt.Errorf("matchExpressions of %s: %w", e.Key, err)
		}
		t.labels = t.labels.Add(*r)
	}
	for _, f := range from.MatchFields {
		switch {
		case f.Key != metav1.ObjectNameField:
			return t, fmt.Errorf("matchFields: there is no field %q, only %s", f.Key, metav1.ObjectNameField)
		case f.Operator != corev1.NodeSelectorOpIn && f.Operator != corev1.NodeSelectorOpNotIn:
			return t, fmt.Errorf("matchFields of %s: the operator must be In or NotIn, not %q", f.Key, f.Operator)
		case len(f.Values) != 1:
			return t, fmt.Errorf("matchFields of %s: there must be one value, not %d", f.Key, len(f.Values))
		}
		t.names = append(t.names, nameRule{name: f.Values[0], not: f.Operator == corev1.NodeSelectorOpNotIn})
	}
	return t, nil
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
	case !p.anywhere && !p.attracted(n.Name, set):
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

func (p *Placer) attracted(name string, set labels.Set) bool {
	return slices.ContainsFunc(p.affinity, func(t affinityTerm) bool {
		for _, r := range t.names {
			if (r.name == name) == r.not {
				return false
			}
		}
		return t.labels.Matches(set)
	})
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
