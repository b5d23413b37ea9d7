// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	turnof "moult.dev/moult/internal/turn"
)

// adopt takes over the nodes that Ducklett was replacing. Ducklett's marks on a node are removed only after its turn is in status. While no turn may
// begin, the marks stay: Ducklett can continue with these nodes.
func (p *pass) adopt(ctx context.Context) error {
	s := p.rollout.Spec.Strategy
	stopped := s != nil && (s.Paused || s.MaxConcurrent != nil && *s.MaxConcurrent == intstr.FromInt32(0))
	if p.problem != nil || p.rules.DetectOnly || stopped {
		return nil //nolint:nilerr // The status says what the problem is.
	}
	var errs []error
	for _, n := range p.Seen.Objects {
		known := p.world.Nodes[n.Name]
		s, _ := p.world.MachineOf(known)
		if s == nil || !s.Known || !known.Selected || known.Unreadable || !machine.LeftByDucklett(n) {
			continue // The node may be in no scale set of the rollout.
		}
		isInTurn := slices.ContainsFunc(p.before.Turns, func(t v1alpha1.MachineTurn) bool { return t.Node == n.Name && t.NodeUID == n.UID })
		t := p.world.Adopt(known, p.id(string(n.UID)), p.machineTurns)
		switch {
		case isInTurn, t == nil && !p.rules.Ending:
			errs = append(errs, p.removeDucklett(ctx, n, isInTurn))
		case t != nil && len(p.machineTurns) < v1alpha1.MaxMachineTurns:
			p.machineTurns = append(p.machineTurns, t)
			p.Happened(events.MachineAdopted(p.rollout, n.Name))
			p.soon()
			log.FromContext(ctx).Info("node taken over from Ducklett", "node", n.Name, "was", n.Annotations[v1alpha1.AnnotationDucklettStatus])
		}
	}
	return turnof.First(errs)
}

// removeDucklett removes what Ducklett has left on a node. If the turn continues, a node that Ducklett cordoned counts as cordoned by the rollout;
// otherwise it is uncordoned.
func (p *pass) removeDucklett(ctx context.Context, n *corev1.Node, goesOn bool) error {
	remove := func(n *corev1.Node, holder string) {
		maps.DeleteFunc(n.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.DucklettPrefix) })
		others := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintDucklett })
		if len(others) < len(n.Spec.Taints) && n.Spec.Unschedulable {
			if n.Spec.Unschedulable = goesOn; goesOn {
				node.Annotating(map[string]*string{v1alpha1.AnnotationCordonedBy: &holder})(n, holder)
			}
		}
		n.Spec.Taints = others
	}
	if err := node.Write(ctx, p.Client, n, node.Edit{Claim: v1alpha1.Claim{Rollout: p.Holder}, KeepClaims: true, Also: []node.Also{remove}}); err != nil {
		return fmt.Errorf("removing what Ducklett has left, %w", err)
	}
	p.soon()
	return nil
}
