// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/nodeturn"
	machine "moult.dev/moult/internal/kind/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// order prepares operations for the clouds, so that they are recorded before they are sent.
func (p *pass) order(ctx context.Context) {
	if p.api == nil {
		return
	}
	for _, b := range append(p.orders, p.world.Batches(p.machineTurns)...) {
		p.prepare(ctx, &b)
	}
}

func (p *pass) prepare(ctx context.Context, o *machine.Batch) {
	s := p.memo.sets[o.Set.Name]
	if !p.areThere(ctx, s, o) {
		s.stale = true
		p.at(s.due(nil, true, p.checkPeriod))
		return
	}
	c := cloud.Change{Add: int(o.Count), Delete: o.Machines, Image: o.Image, Zone: o.Zone, Token: strings.ToLower(rand.Text())}
	var prepared cloud.Operation
	err := p.setVersion(ctx, o)
	if err == nil {
		prepared, err = call(ctx, p, "Prepare"+string(o.Kind), func(ctx context.Context) (cloud.Operation, error) {
			return s.api.Prepare(ctx, &s.Set.Set, c)
		})
	}
	if err != nil {
		p.recordRefusal(ctx, s, o.Set, o.Kind, "", o.Turns, err)
		return
	}
	p.prepared[prepared.Token] = true
	o.Token, o.State, o.Since = prepared.Token, prepared.State, *nodeturn.Stamp(p.Now)
	o.RecordOrder()
}

// recordRollbacks records the images that the cloud has restored.
func (p *pass) recordRollbacks(ctx context.Context) {
	for i := range p.rollout.Status.ScaleSets {
		status := &p.rollout.Status.ScaleSets[i]
		view := p.world.Sets[status.Name]
		for _, o := range status.Operations {
			if o.Kind != v1alpha1.CloudOperationSetImage || o.From == "" || view == nil || view.Operation(o.Token) != nil || !view.Ended[o.Token].OK {
				continue
			}
			status.RolledBack = o.From
			p.Happened(events.RolledBack(p.rollout, status.Name, o.From, o.Image))
			log.FromContext(ctx).Info("image restored", "scaleSet", status.Name, "from", o.From, "to", o.Image)
		}
	}
}

// areThere reads a set, unless that was just done, and reports whether the machines to delete exist, and are not protected or set aside. People may
// have protected or deleted a machine since the last look, and not every cloud respects protection. A machine that has died must not be deleted
// again: the cloud may have replaced it, and its deletion would lower the capacity. For an addition or an image the set is read after each change.
func (p *pass) areThere(ctx context.Context, s *set, o *machine.Batch) bool {
	isOld := s.changed && o.Kind != v1alpha1.CloudOperationDelete || p.Clock.Since(s.LookedAt) >= lookJust
	if isOld && (s.looking.isDelayed(p.Now) || p.readSet(ctx, s) != nil) {
		return false
	}
	return !slices.ContainsFunc(o.Machines, func(id string) bool {
		return !slices.ContainsFunc(s.Machines, func(m cloud.Machine) bool {
			return m.ID == id && m.State != cloud.Deleting && !m.Protected && m.Aside == ""
		})
	})
}

// setVersion writes the Kubernetes version of the image of added machines, if the rollout wants that, to where these read it when they join.
func (p *pass) setVersion(ctx context.Context, o *machine.Batch) error {
	version, ok := controlplane.VersionOf(o.Set.ImageName)
	if !ok || o.Kind != v1alpha1.CloudOperationAdd || !p.replacement.KubernetesVersionFromImage {
		return nil
	}
	// Only a rollout of the control plane may make the version older: other machines may lag behind.
	return p.options.Plane.SetVersion(ctx, version, p.rules.ControlPlane)
}

// recordRefusal records that an operation has had no effect.
func (p *pass) recordRefusal(ctx context.Context, s *set, view *machine.Set, kind v1alpha1.CloudOperationKind, token string, turns []*machine.Turn, err error) {
	log.FromContext(ctx).Info("an operation is not ordered, or withdrawn", "scaleSet", s.Name, "kind", kind, "error", err.Error())
	t := s.recordFailure(kind, err, p.Now)
	p.at(t.until)
	s.stale = true
	p.world.RemoveRefused(view, token, turns, t == &s.adding, err.Error())
}

// suspend suspends zone balancing in scale sets with turns, and resumes it afterwards. Turns do not wait for it. A rollout that only detects suspends
// nothing, but resumes what an earlier process has suspended.
func (p *pass) suspend(ctx context.Context) {
	if p.api == nil {
		return
	}
	for name, s := range p.memo.sets {
		api, can := p.api.ScaleSet(name).(cloud.Suspender)
		isIn := func(t v1alpha1.MachineTurn) bool { return maySame(t.ScaleSet, name) }
		wanted := !p.rules.DetectOnly && slices.ContainsFunc(p.machineTurns, func(t *machine.Turn) bool { return t.ScaleSet == name && !t.Over })
		switch {
		case !can:
			s.suspended = new(bool)
		case !s.Known, s.Deleted, s.suspended != nil && *s.suspended == wanted:
			s.suspending = trouble{}
		case !wanted && slices.ContainsFunc(p.others, func(r *v1alpha1.NodeRollout) bool { return slices.ContainsFunc(r.Status.Turns, isIn) }):
			// The other rollout resumes it. If both end at once each sees the other's turns: so this one looks again.
			s.suspended, s.suspending = nil, trouble{}
			if p.rollout.DeletionTimestamp != nil {
				s.suspended = new(bool)
			}
		case !s.suspending.isDelayed(p.Now):
			if _, err := call(ctx, p, "Suspend", func(ctx context.Context) (any, error) { return nil, api.Suspend(ctx, wanted) }); err != nil {
				s.suspending.record(err, p.Now)
				log.FromContext(ctx).Info("the balancing of zones can't be suspended or resumed", "scaleSet", name, "error", err.Error())
			} else {
				s.suspended, s.suspending = &wanted, trouble{}
			}
		}
		p.at(s.suspending.until)
	}
}

// send sends the recorded operations. Sending one twice has no second effect. An operation of this pass that can't be sent now is withdrawn: its
// machines may change before the next attempt.
func (p *pass) send(ctx context.Context) {
	if p.api == nil {
		return
	}
	_ = turnof.Each(slices.Collect(maps.Values(p.memo.sets)), func(s *set) error {
		view, delayed := p.world.Sets[s.Name], s.changing.isDelayed(p.Now)
		for _, o := range slices.Clone(view.Operations) {
			switch {
			case o.Sent || slices.ContainsFunc(p.machineTurns, func(t *machine.Turn) bool { return t.HoldsOperation && t.Operation == o.Token }):
			case !delayed:
				p.sendOne(ctx, s, view, o)
			case p.prepared[o.Token]:
				p.world.RemoveRefused(view, o.Token, p.machineTurns, false, s.changing.message)
			}
		}
		return nil
	})
}

func (p *pass) sendOne(ctx context.Context, s *set, view *machine.Set, o v1alpha1.CloudOperation) {
	answer, err := call(ctx, p, string(o.Kind), func(ctx context.Context) (cloud.Operation, error) {
		return p.api.ScaleSet(s.Name).Send(ctx, cloud.Operation{Token: o.Token, State: o.State})
	})
	first := p.prepared[o.Token]
	s.changed = true
	switch kind := cloud.KindOf(err); {
	case err == nil:
		mine := view.Operation(o.Token)
		mine.Sent, mine.State = true, cmp.Or(answer.State, mine.State)
		s.changing, s.sent[o.Token] = trouble{}, p.Clock.Now()
		p.at(s.pollAt(mine))
		log.FromContext(ctx).Info("operation sent", "scaleSet", s.Name, "kind", o.Kind, "count", o.Count, "machines", o.Machines, "token", o.Token)
	case kind == cloud.KindConflict, kind == cloud.KindQuota, kind == cloud.KindFull,
		first && (kind == cloud.KindDenied || kind == cloud.KindInvalid || kind == cloud.KindNotFound || kind == cloud.KindThrottled && o.Kind == v1alpha1.CloudOperationDelete):
		p.recordRefusal(ctx, s, view, o.Kind, o.Token, p.machineTurns, err)
	default:
		if o.Kind == v1alpha1.CloudOperationAdd {
			s.recordAnswer(err)
		}
		s.changing.record(err, p.Now)
		s.stale = true
		p.at(s.changing.until)
		log.FromContext(ctx).Info("it is not known whether the cloud accepted the operation: it is sent again", "scaleSet", s.Name, "kind", o.Kind, "token", o.Token,
			"reason", s.changing.reason, "message", s.changing.message, "again", s.changing.until)
	}
}
