// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/events"
	machine "moult.dev/moult/internal/kind/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// order is something that a cloud is to be asked for.
type order struct {
	set      *machine.Set
	kind     v1alpha1.CloudOperationKind
	zone     string
	machines []string
	image    string
	turns    []*machine.Turn
}

// endOf is how an operation ended.
func endOf(progress cloud.Progress, err error, now time.Time) machine.Ended {
	end := machine.Ended{OK: err == nil, Added: progress.Added, Message: progress.Message, At: now}
	if err != nil {
		end.Message = err.Error()
		kind := cloud.KindOf(err)
		end.NoRoom = kind == cloud.KindQuota || kind == cloud.KindFull
	}
	return end
}

// order prepares what clouds are to be asked for, so that it is written down before it is sent.
func (p *pass) order(ctx context.Context) {
	for _, b := range p.view.Batches(p.turns) {
		p.orders = append(p.orders, order{set: b.Set, kind: b.Kind, zone: b.Zone, machines: b.Machines, turns: b.Turns})
	}
	if p.api == nil {
		return // It is told already.
	}
	for i := range p.orders {
		p.prepare(ctx, &p.orders[i])
	}
}

func (p *pass) prepare(ctx context.Context, o *order) {
	s := p.memo.sets[o.set.Name]
	late := p.now.Sub(s.at) > recent || o.kind != v1alpha1.CloudOperationAdd && s.stale
	if !late && o.kind == v1alpha1.CloudOperationDelete {
		there, err := p.there(ctx, s, o.machines)
		late = err != nil || !there
	}
	if late {
		// Much may have changed since: it is looked at first.
		s.stale = true
		p.at(s.due(true, p.checkPeriod))
		return
	}
	if o.kind == v1alpha1.CloudOperationAdd {
		if err := p.tellVersion(ctx, o.set); err != nil {
			s.preparing.reason, s.preparing.message = v1alpha1.ReasonCloudError, err.Error()
			s.preparing.until = p.now.Add(planeEvery)
			p.at(s.preparing.until)
			return
		}
	}
	c := cloud.Change{Delete: o.machines, Image: o.image, Zone: o.zone, Token: token()}
	if o.kind == v1alpha1.CloudOperationAdd {
		c.Add = len(o.turns)
	}
	var prepared cloud.Operation
	err := p.call(ctx, "Prepare"+string(o.kind), func(ctx context.Context) (err error) {
		prepared, err = p.api.ScaleSet(o.set.Name).Prepare(ctx, &s.described, c)
		return err
	})
	if err != nil {
		if o.kind == v1alpha1.CloudOperationAdd {
			s.answered(err)
		}
		p.refused(ctx, s, o.set, o.kind, "", o.turns, err)
		return
	}
	s.preparing = trouble{}
	s.unsent[prepared.Token] = true
	p.prepared[prepared.Token] = true
	b := machine.Batch{Set: o.set, Turns: o.turns}
	operation := v1alpha1.CloudOperation{
		Token: prepared.Token, Kind: o.kind, Count: int32(c.Add), Machines: o.machines, Image: o.image, State: prepared.State, Since: *turnof.Stamp(p.now),
	}
	if o.image != "" {
		operation.From = o.set.Image
	}
	b.Ordered(operation)
}

// putBack notes which images have been put back, now that the cloud says so. It is told once it is written down.
func (p *pass) putBack(ctx context.Context) {
	p.restored = nil
	for i := range p.rollout.Status.ScaleSets {
		status := &p.rollout.Status.ScaleSets[i]
		view := p.view.Sets[status.Name]
		for j := range status.Operations {
			o := &status.Operations[j]
			if o.Kind != v1alpha1.CloudOperationSetImage || o.From == "" || view == nil || view.Operation(o.Token) != nil || !view.Ended[o.Token].OK {
				continue
			}
			status.RolledBack = o.From
			p.restored = append(p.restored, events.RolledBack(p.rollout, status.Name, o.From, o.Image))
			log.FromContext(ctx).Info("image put back", "scaleSet", status.Name, "from", o.From, "to", o.Image)
		}
	}
}

// there reports whether machines that are to be deleted are there at this moment, and may be deleted: somebody may have protected one since the last look,
// which keeps not every cloud from it. What has died by itself must not be deleted again: the cloud may have made another in its place, which would be one too
// many then.
func (p *pass) there(ctx context.Context, s *set, ids []string) (bool, error) {
	var all []cloud.Machine
	err := p.call(ctx, "Machines", func(ctx context.Context) (err error) {
		all, err = p.api.ScaleSet(s.name).Machines(ctx, ids...)
		return err
	})
	if err != nil {
		s.looking.fails(err, p.now)
		return false, err
	}
	return !slices.ContainsFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(all, func(m cloud.Machine) bool { return m.ID == id && m.State != cloud.Deleting && !m.Protected })
	}), nil
}

// withdrawn reports whether a deletion that was written down and had to wait is not sent at all, because what it deletes has gone meanwhile, or is
// protected. One that may have been sent is sent again, whatever has become of it.
func (p *pass) withdrawn(ctx context.Context, s *set, view *machine.Set, o *v1alpha1.CloudOperation) (bool, error) {
	if o.Kind != v1alpha1.CloudOperationDelete || !s.unsent[o.Token] || p.prepared[o.Token] {
		return false, nil
	}
	there, err := p.there(ctx, s, o.Machines)
	if there || err != nil {
		return false, err
	}
	log.FromContext(ctx).Info("a deletion is not asked for any more", "scaleSet", s.name, "machines", o.Machines, "token", o.Token)
	delete(s.unsent, o.Token)
	s.stale = true
	p.at(s.due(true, p.checkPeriod))
	p.view.Refused(view, o.Token, p.turns, false, "what was to be deleted has gone by itself, or is protected now")
	return true, nil
}

// tellVersion writes the Kubernetes version of what machines are made of where machines that join look for it.
func (p *pass) tellVersion(ctx context.Context, s *machine.Set) error {
	version, ok := p.versionOf(s)
	if !ok {
		return nil
	}
	// Where machines of the control plane join, it is what they are to be; others may be older than the control plane, and never make it older.
	return p.options.Plane.SetVersion(ctx, version, p.rules.ControlPlane)
}

// versionOf is the Kubernetes version of what machines of a set are made of, where that is to be told.
func (p *pass) versionOf(s *machine.Set) (string, bool) {
	if !p.replacement.KubernetesVersionFromImage || p.options.Plane == nil {
		return "", false
	}
	return controlplane.VersionOf(s.ImageName)
}

// refused notes that a cloud does not do something, which has had no effect.
func (p *pass) refused(ctx context.Context, s *set, view *machine.Set, kind v1alpha1.CloudOperationKind, token string, turns []*machine.Turn, err error) {
	why := cloud.KindOf(err)
	noRoom := kind == v1alpha1.CloudOperationAdd && (why == cloud.KindQuota || why == cloud.KindFull)
	log.FromContext(ctx).Info("the cloud refuses", "scaleSet", s.name, "kind", kind, "reason", reasonOf(why), "message", err.Error())
	switch {
	case noRoom:
		s.adding.fails(err, p.now)
		p.at(s.adding.until)
	case token == "":
		s.preparing.fails(err, p.now) // What is written down already is asked for all the same.
		p.at(s.preparing.until)
	default:
		s.changing.fails(err, p.now)
		p.at(s.changing.until)
	}
	s.stale = true
	p.view.Refused(view, token, turns, noRoom, err.Error())
}

// suspend keeps scale sets from moving machines about by themselves while turns go on in them, and lets them do it again afterwards. What fails there
// keeps no turn back. A rollout that only detects suspends nothing, and lets what an operator before this one has suspended go on.
func (p *pass) suspend(ctx context.Context) {
	if p.api == nil {
		return
	}
	for name, s := range p.memo.sets {
		api, can := p.api.ScaleSet(name).(cloud.Suspender)
		wanted := slices.ContainsFunc(p.turns, func(t *machine.Turn) bool { return t.ScaleSet == name && !t.Over })
		if wanted || s.absent {
			s.unresumed = "" // It is not to be let go on.
		}
		if wanted && p.rules.DetectOnly && !p.rules.Ending && s.suspended == nil {
			continue
		}
		if !can || !s.known || s.absent || s.suspended != nil && *s.suspended == wanted {
			continue
		}
		if p.now.Before(s.suspendAt) {
			p.at(s.suspendAt)
			continue
		}
		err := p.call(ctx, "Suspend", func(ctx context.Context) error { return api.Suspend(ctx, wanted) })
		if err != nil {
			s.suspendAt = p.now.Add(lookBusy)
			p.at(s.suspendAt)
			if !wanted {
				s.unresumed = turnof.Short(err.Error())
			}
			log.FromContext(ctx).Info("a scale set can't be told not to move machines about, or to do it again", "scaleSet", name, "error", err.Error())
			continue
		}
		s.suspended, s.unresumed = &wanted, ""
	}
}

// send sends the operations that are written down. To send one again that was sent before is no harm.
func (p *pass) send(ctx context.Context) error {
	if p.api == nil {
		return nil // It is told already.
	}
	var group errgroup.Group
	group.SetLimit(lookers)
	for name, view := range p.view.Sets {
		s := p.memo.sets[name]
		group.Go(func() error {
			for _, o := range s.inTurn(view.Operations) {
				if _, over := s.ended[o.Token]; o.Sent || over || p.view.Held[o.Token] {
					continue
				}
				if s.changing.rests(p.now) {
					p.at(s.changing.until)
					continue
				}
				switch withdrawn, err := p.withdrawn(ctx, s, view, &o); {
				case err != nil:
					p.at(s.looking.until)
				case !withdrawn:
					p.sendOne(ctx, s, view, o, p.api.ScaleSet(name))
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// inTurn are operations in the order in which they are sent. Additions that may have been asked for before come last: one that the cloud declines can't be
// forgotten, and must keep nothing else waiting, least of all the image that would mend it.
func (s *set) inTurn(operations []v1alpha1.CloudOperation) []v1alpha1.CloudOperation {
	doubtful := func(o v1alpha1.CloudOperation) int {
		if o.Kind == v1alpha1.CloudOperationAdd && !s.unsent[o.Token] {
			return 1
		}
		return 0
	}
	all := slices.Clone(operations)
	slices.SortStableFunc(all, func(a, b v1alpha1.CloudOperation) int { return doubtful(a) - doubtful(b) })
	return all
}

func (p *pass) sendOne(ctx context.Context, s *set, view *machine.Set, o v1alpha1.CloudOperation, api cloud.ScaleSet) {
	var sent cloud.Operation
	err := p.call(ctx, string(o.Kind), func(ctx context.Context) (err error) {
		sent, err = api.Send(ctx, cloud.Operation{Token: o.Token, State: o.State})
		return err
	})
	s.changed = p.now
	if o.Kind == v1alpha1.CloudOperationAdd && err != nil { // Else the end of it tells.
		s.answered(err)
	}
	kind := cloud.KindOf(err)
	if s.impossible(o.Token, kind) {
		p.refused(ctx, s, view, o.Kind, o.Token, p.turns, err)
		return
	}
	first := s.unsent[o.Token] && p.prepared[o.Token]
	if kind != cloud.KindThrottled || o.Kind != v1alpha1.CloudOperationDelete {
		delete(s.unsent, o.Token) // A deletion that the cloud had no time for is as if it had not been asked for.
	}
	switch kind {
	case "":
		s.sure[o.Token] = s.sure[o.Token] || first
		for i := range view.Operations {
			if mine := &view.Operations[i]; mine.Token == o.Token {
				mine.Sent = true
				if sent.State != "" {
					mine.State = sent.State
				}
			}
		}
		s.changing = trouble{}
		s.polls[o.Token] = poll{at: p.now.Add(firstPoll)}
		p.at(p.now.Add(firstPoll))
		log.FromContext(ctx).Info("the cloud was asked", "scaleSet", s.name, "kind", o.Kind, "count", o.Count, "machines", o.Machines, "token", o.Token)
	case cloud.KindConflict, cloud.KindQuota, cloud.KindFull:
		p.refused(ctx, s, view, o.Kind, o.Token, p.turns, err)
	default:
		// Whether it was done is not known: it is sent again.
		s.changing.fails(err, p.now)
		p.at(s.changing.until)
		log.FromContext(ctx).Info("the cloud was asked, and it is not known whether it does it", "scaleSet", s.name, "kind", o.Kind, "token", o.Token,
			"reason", s.changing.reason, "message", s.changing.message, "again", s.changing.until)
	}
}
