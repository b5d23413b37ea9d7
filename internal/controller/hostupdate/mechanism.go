// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// pass is one reconcile of a NodeRollout that exists. It is also the mechanism of the turns, in which agents change the hosts.
type pass struct {
	*turn.Pass[*hostupdate.Unit]
	w       *hostupdate.World
	problem error // why the spec can't be carried out
}

var _ turn.Mechanism[*hostupdate.Unit] = hosts{}

// hosts is the pass as the engine sees it.
type hosts struct{ *pass }

// Strategy of the rollout.
func (h hosts) Strategy(total int) rollout.Strategy {
	h.w.Now = h.Now // A claim begins when the rollout is admitted.
	return nodeturn.Strategy(h.w.Rollout, h.w.Revision, h.w.OwnNode, total)
}

// Start claims a node and orders its host to prepare the update. It orders nothing if the host has an order to reboot without a claim.
func (h hosts) Start(t *hostupdate.Unit) *turn.Write {
	if t.Step == nodeturn.StepAdopt {
		return &turn.Write{Claim: h.w.Adoption(t)}
	}
	if !t.Labelled {
		return nil
	}
	claim := h.w.NewClaim(t)
	also := removeHookLabels(t.Node, h.w.Hooks())
	if !claim.Back {
		also = append(also, order(&t.Report, &claim, v1alpha1.HostActionPrepare))
	}
	return &turn.Write{Claim: claim, Also: also, Then: func() { h.Mention(events.HostsStarted(h.w.Rollout), t.Node.Name) }}
}

// Take takes a step that only host updates have.
func (h hosts) Take(ctx context.Context, t *hostupdate.Unit) error {
	var also []node.Also
	switch t.Step { //nolint:exhaustive // The engine takes the other steps.
	case hostupdate.StepAsk:
		return h.ask(ctx, t)
	case hostupdate.StepReleaseUnclaimed:
		claim := v1alpha1.Claim{Rollout: h.Holder, UID: h.UID}
		return turn.Release(ctx, h.Client, t.Node, claim, h.Now, endOrders(t.Node, h.UID, h.w.Hooks()))
	case hostupdate.StepCordon:
		also = setHookLabel(v1alpha1.LabelBeforeReboot, false, h.w.Hooks().BeforeReboot)
		if h.w.Exclude {
			also = append(also, node.Excluding)
		}
		if err := h.Cordon(ctx, t, h.w.Drains, also...); err != nil || t.Claim.Failed != nil || !h.w.Drains || h.Now.Before(h.w.DrainSince(t)) {
			return err
		}
		// The drain begins with the Node as it is now. Only another pass orders the reboot, because a person may have uncordoned the Node.
		cordoned := &corev1.Node{}
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(t.Node), cordoned); err != nil {
			return client.IgnoreNotFound(err)
		}
		t.Node = cordoned
		_, err := h.DrainNode(ctx, t, h.w.DrainSince(t))
		return err
	case hostupdate.StepDrain:
		if h.w.Drains {
			if over, err := h.DrainNode(ctx, t, h.w.DrainSince(t)); err != nil || !over {
				return err
			}
		}
		if !t.Claim.Back || t.Report.Ready(v1alpha1.HostActionRollback) {
			return h.reboot(ctx, t)
		}
		also = []node.Also{resetProgress(&t.Report), order(&t.Report, t.Claim, v1alpha1.HostActionRollback)}
	case hostupdate.StepChanged:
		return h.recordChange(ctx, t)
	case hostupdate.StepPrepare:
		also = []node.Also{resetProgress(&t.Report), order(&t.Report, t.Claim, v1alpha1.HostActionPrepare)}
	case hostupdate.StepPerform:
		also = []node.Also{order(&t.Report, t.Claim, v1alpha1.HostActionPerform)}
	case hostupdate.StepCallHooks:
		also = setHookLabel(v1alpha1.LabelBeforeReboot, true, h.w.Hooks().BeforeReboot)
	}
	return h.Hold(ctx, t, *t.Claim, also...)
}

// Soak of a node that is healthy.
func (h hosts) Soak(t *hostupdate.Unit) turn.Write {
	claim := *t.Claim
	return turn.Write{Also: removeHookLabels(t.Node, h.w.Hooks()), Then: func() { h.observeReboot(&claim) }}
}

// observeReboot measures the reboot of a turn whose node was healthy at the first look, so that no change is in its claim.
func (h hosts) observeReboot(c *v1alpha1.Claim) {
	if c.Rebooting != nil && c.Changed == nil && c.Soaking == nil && c.Failed == nil {
		metrics.ObserveReboot(h.Key.Name, h.w.Now.Sub(c.Rebooting.Time))
	}
}

// Finish orders the host to look for updates again, unless it has done so after the reboot and found none.
func (h hosts) Finish(t *hostupdate.Unit) turn.Write {
	claim, also := *t.Claim, endOrders(t.Node, h.UID, h.w.Hooks())
	if t.Report.Ready(v1alpha1.HostActionReboot) && t.Report.Update == v1alpha1.HostUpdateFalse && !hostupdate.IsOthers(t.Claims, h.UID) {
		also = append(also, answerCheck(&t.Report)...)
	}
	version := hostupdate.VersionOf(&claim)
	proven := claim.Failed == nil || version == "" || hostupdate.CompareVersions(t.Report.Version, version) == 0
	return turn.Write{Also: also, Version: version, Unproven: !proven, Then: func() {
		h.observeReboot(&claim)
		if proven {
			h.Mention(events.HostsUpdated(h.w.Rollout, version), t.Node.Name)
		}
		t.Unit.Unoffered = h.w.RunsAnotherVersion(t)
	}}
}

// Fail uncordons the node. A node that is changed and not healthy stays cordoned, and keeps its hook labels.
func (h hosts) Fail(t *hostupdate.Unit) turn.Write {
	write := turn.Write{Then: func() { h.Happened(events.NodeFailed(h.w.Rollout, t.Failure.Message)) }}
	if t.Claim.Changed != nil {
		write.Also = orderCheck(&t.Report, v1alpha1.HostActionStabilize)
	} else {
		write.Restore, write.Also = true, endOrders(t.Node, h.UID, h.w.Hooks())
	}
	return write
}

// Release ends the orders of the turn.
func (h hosts) Release(t *hostupdate.Unit) turn.Write {
	return turn.Write{Also: endOrders(t.Node, h.UID, h.w.Hooks()), Then: func() {
		t.Unit.Reason, t.Unit.Message = v1alpha1.ReasonHostSilent, "the host is being asked whether there is an update"
	}}
}

// ask orders the agent to look for updates, and before that to revert one that an earlier turn has performed.
func (p *pass) ask(ctx context.Context, t *hostupdate.Unit) error {
	edit := node.Edit{Claim: v1alpha1.Claim{Rollout: p.Holder}, KeepClaims: true, Also: orderCheck(&t.Report, checkAfter(&t.Report))}
	if t.Claim == nil || t.Claim.Changed == nil {
		edit.Also = append(edit.Also, removeHookLabels(t.Node, p.w.Hooks())...)
	}
	if err := node.Write(ctx, p.Client, t.Node, edit); err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("host asked for updates", "node", t.Node.Name)
	return nil
}

// recordChange records in the claim that the host runs the version, and labels the node for the hooks after the reboot.
func (p *pass) recordChange(ctx context.Context, t *hostupdate.Unit) error {
	claim := *t.Claim
	isNew := claim.Changed == nil
	if isNew {
		claim.Changed = &metav1.Time{Time: p.w.Now}
	}
	var also []node.Also
	if hooks := p.w.Hooks().AfterReboot; len(hooks) > 0 {
		also = setHookLabel(v1alpha1.LabelAfterReboot, true, hooks)
	}
	err := p.Hold(ctx, t, claim, also...)
	if err == nil && isNew && claim.Rebooting != nil {
		metrics.ObserveReboot(p.Key.Name, p.w.Now.Sub(claim.Rebooting.Time))
	}
	return err
}

// reboot orders the reboot, and records the present boot id. A later boot id shows that the host has rebooted. No agent reboots it twice.
func (p *pass) reboot(ctx context.Context, t *hostupdate.Unit) error {
	claim := *t.Claim
	claim.Rebooting = &metav1.Time{Time: p.w.Now}
	claim.BootID = t.Node.Status.NodeInfo.BootID
	if err := p.Hold(ctx, t, claim, order(&t.Report, &claim, v1alpha1.HostActionReboot)); err != nil {
		return err
	}
	t.Message = ""
	log.FromContext(ctx).Info("host ordered to reboot", "node", t.Node.Name, "revision", claim.Revision)
	p.Mention(events.HostsRebooting(p.w.Rollout, hostupdate.VersionOf(&claim)), t.Node.Name)
	return nil
}

// labelNodes adds the label that names the interface of the host to selected Nodes that have none, where spec.hostUpdate.labelNodes asks for it.
// The write fails with a conflict if the Node has changed since it was read, so a label that a person adds meanwhile stays.
func (p *pass) labelNodes(ctx context.Context, nodes []*corev1.Node) error {
	if !p.w.Host.LabelNodes {
		return nil
	}
	return turn.Each(nodes, func(n *corev1.Node) error {
		key, value, ok := hostupdate.InterfaceLabel(n)
		optedOut := n.Labels[v1alpha1.LabelNodeRollout(p.Key.Name)] == v1alpha1.LabelNodeRolloutDisabled
		if !ok || optedOut || !p.w.Selector.Matches(labels.Set(n.Labels)) {
			return nil
		}
		label := node.Labelling(map[string]*string{key: &value})
		return node.Write(ctx, p.Client, n, node.Edit{KeepClaims: true, Claim: v1alpha1.Claim{Rollout: p.Holder}, Also: []node.Also{label}})
	})
}

// rollBack brings hosts back to the last complete version, after the failure limit has halted the rollout. The next pass begins with it.
func (p *pass) rollBack() {
	if !p.MayRollBack() || p.w.Host.DetectOnly {
		return
	}
	allowed, wave := 0, p.Decision.Wave // The first wave allows no failure.
	if _, total := nodeturn.Units(p.Turns); wave == nil || wave.Number > 1 || wave.State != v1alpha1.WaveHalted {
		allowed = ptr.Deref(p.Mechanism.Strategy(total).MaxFailures, 0)
	}
	if why := p.w.Irreversible(p.Turns, allowed+1); why != "" {
		p.CannotRollBack(why)
		return
	}
	p.w.RolledBack = p.w.Revision
	p.RollBackSoon()
}
