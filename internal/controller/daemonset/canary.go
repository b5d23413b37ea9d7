// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
)

// runCanary writes the nodes of the canary, its failure, and its promotion. Each is written before the controller acts on it, and ends
// the pass.
func (p *pass) runCanary(ctx context.Context) (again bool, err error) {
	if !p.CanaryWanted() {
		return p.endCanary(ctx)
	}
	nodes, before := p.StartCanary(), p.EDS.Status.Canary
	if before == nil || before.ReplicaSet != p.Target.Name || !slices.Equal(before.Nodes, nodes) {
		return true, p.writeCanaryNodes(ctx, nodes)
	}
	if p.EDS.Annotations[edsv1.AnnotationCanaryValid] == p.Target.Name {
		p.events.Emit(events.CanaryValidated(p.EDS, p.Target.Name))
		return true, p.activate(ctx, p.Target)
	}
	p.JudgeCanaryPods()
	if v := p.Canary.Verdict; v.Failed {
		status := *p.Target.Status.DeepCopy()
		daemonset.SetCondition(&status.Conditions, edsv1.ConditionCanaryFailed, true, string(v.Reason), v.Message, p.now)
		status.Status = edsv1.ReplicaSetCanaryFailed
		log.FromContext(ctx).Info("canary failed", "revision", p.Target.Name, "reason", v.Reason, "message", v.Message)
		return true, p.writeRevision(ctx, p.Target, status)
	}
	p.DecideCanary()
	if p.Canary.Over {
		return true, p.activate(ctx, p.Target)
	}
	return false, nil
}

// endCanary removes the canary from the status, and then the annotations that were set for it.
func (p *pass) endCanary(ctx context.Context) (again bool, err error) {
	if p.EDS.Status.Canary == nil {
		if p.Target == p.Active || p.CanaryFailed() {
			return false, p.unannotate(ctx, p.SpentAnnotations(p.Target.Name, false))
		}
		return false, nil
	}
	p.EndCanary()
	if p.CanaryFailed() {
		c := edsv1.FindCondition(p.Target.Status.Conditions, edsv1.ConditionCanaryFailed)
		p.EDS.Status.State, p.EDS.Status.Reason = edsv1.StateCanaryFailed, edsv1.StatusReason(c.Reason)
	}
	return true, p.writeStatus(ctx)
}

// writeCanaryNodes writes that the canary begins, or on which nodes it runs from now on.
func (p *pass) writeCanaryNodes(ctx context.Context, nodes []string) error {
	before := p.EDS.Status.Canary
	begins := before == nil || before.ReplicaSet != p.Target.Name
	if begins && before != nil {
		// Before the new canary is written: if the process ends in between, this is done again.
		if err := p.unannotate(ctx, p.SpentAnnotations(before.ReplicaSet, true)); err != nil {
			return err
		}
	}
	p.EDS.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: p.Target.Name, Nodes: nodes}
	var changes []events.Event
	if begins {
		p.EDS.Status.Wave, p.EDS.Status.Approval = nil, nil
		p.EDS.Status.State, p.EDS.Status.Reason = edsv1.StateCanary, ""
		failed := edsv1.FindCondition(p.Target.Status.Conditions, edsv1.ConditionCanaryFailed)
		if failed != nil && edsv1.IsConditionTrue(p.EDS.Status.Conditions, edsv1.ConditionCanaryFailed) {
			changes = append(changes, events.CanaryReset(p.EDS, p.Target.Name)) // A person has set the condition of the revision to False.
		}
		// An earlier failure is not shown beside the canary.
		for _, kind := range []string{edsv1.ConditionCanaryFailed, edsv1.ConditionStalled} {
			daemonset.SetCondition(&p.EDS.Status.Conditions, kind, false, "", "", p.now)
		}
		changes = append(changes, events.CanaryStarted(p.EDS, p.Target.Name, nodes))
	}
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	log.FromContext(ctx).Info("canary nodes chosen", "revision", p.Target.Name, "nodes", nodes)
	p.events.Emit(changes...)
	return nil
}
