// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	machine "moult.dev/moult/internal/kind/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// adopt takes over the nodes that Ducklett was replacing. Ducklett's marks on a node are removed only after its turn is in status. While no turn may begin, the
// marks stay: Ducklett can continue with these nodes.
func (p *pass) adopt(ctx context.Context) error {
	if !p.mayBegin() {
		return nil
	}
	var errs []error
	for _, n := range p.Seen.Objects {
		known := p.view.Nodes[n.Name]
		if !known.Selected || !machine.LeftByDucklett(n) {
			continue
		}
		s, _ := p.view.MachineOf(known)
		at := slices.IndexFunc(p.turns, func(t *machine.Turn) bool { return t.Node == n.Name && t.NodeUID == n.UID })
		switch {
		case s == nil || !s.Known || known.Unreadable:
			continue // The node may be in no scale set of the rollout.
		case at >= 0:
			if slices.ContainsFunc(p.before.Turns, func(t v1alpha1.MachineTurn) bool { return t.Turn == p.turns[at].Turn }) {
				errs = append(errs, p.removeDucklett(ctx, n, true))
			}
			continue
		}
		if t := p.view.Adopt(known, p.id(string(n.UID)), p.turns); t != nil && len(p.turns) < v1alpha1.MaxMachineTurns {
			p.turns = append(p.turns, t)
			p.Happened(events.MachineAdopted(p.rollout, n.Name))
			p.soon()
			log.FromContext(ctx).Info("node taken over from Ducklett", "node", n.Name, "was", n.Annotations[v1alpha1.AnnotationDucklettStatus])
			continue
		}
		errs = append(errs, p.removeDucklett(ctx, n, false))
	}
	return turnof.First(errs)
}

// mayBegin reports whether any turn may begin.
func (p *pass) mayBegin() bool {
	s := p.rollout.Spec.Strategy
	stopped := s != nil && (s.Paused || s.MaxConcurrent != nil && *s.MaxConcurrent == intstr.FromInt32(0))
	return p.problem == nil && !p.rules.DetectOnly && !stopped
}

// removeDucklett removes what Ducklett has left on a node. If the turn continues, a node that Ducklett cordoned counts as cordoned by the rollout; otherwise it is
// uncordoned.
func (p *pass) removeDucklett(ctx context.Context, n *corev1.Node, goesOn bool) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	all := []operation{{"replace", "/metadata/resourceVersion", n.ResourceVersion}}
	path := func(key string) string {
		return "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	}
	for key := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.DucklettPrefix) {
			all = append(all, operation{"remove", path(key), nil})
		}
	}
	tainted := false
	for i := range slices.Backward(n.Spec.Taints) {
		if n.Spec.Taints[i].Key == v1alpha1.TaintDucklett {
			tainted = true
			all = append(all, operation{"remove", fmt.Sprintf("/spec/taints/%d", i), nil})
		}
	}
	switch {
	case !tainted || !n.Spec.Unschedulable:
	case goesOn:
		all = append(all, operation{"add", path(v1alpha1.AnnotationCordonedBy), p.holder})
	case !goesOn:
		all = append(all, operation{"replace", "/spec/unschedulable", false})
	}
	body, err := json.Marshal(all)
	if err == nil {
		err = p.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.JSONPatchType, body))
	}
	if err != nil {
		return fmt.Errorf("removing what Ducklett has left on node %s, %w", n.Name, err)
	}
	p.soon()
	return nil
}
