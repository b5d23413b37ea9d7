// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/metrics"
	turnof "moult.dev/moult/internal/turn"
)

// callTimeout bounds a call of a cloud.
const callTimeout = 30 * time.Second

// look reads from the cloud what is due: which sets there are, the progress of operations, and the state of the sets.
func (p *pass) look(ctx context.Context) {
	c, err := p.options.Clouds(ctx, &p.replacement.Provider)
	if p.api = c; err != nil {
		p.api = nil
		p.findFails(ctx, err)
	} else {
		p.findSets(ctx)
	}
	names := p.setNames()
	for _, name := range names {
		if p.memo.sets[name] == nil {
			p.memo.sets[name] = newSet(name)
		}
	}
	if p.api == nil {
		return // Operations under way are kept.
	}
	for name := range p.memo.sets {
		if !slices.Contains(names, name) {
			delete(p.memo.sets, name)
			metrics.ForgetScaleSet(p.rollout.Name, name)
		}
	}
	_ = turnof.Each(slices.Collect(maps.Values(p.memo.sets)), func(s *set) error {
		p.lookAt(ctx, s)
		return nil
	})
}

// readSet reads a scale set and its machines.
func (p *pass) readSet(ctx context.Context, s *set) error {
	var ours []string
	for i := range p.rollout.Status.Turns {
		if t := &p.rollout.Status.Turns[i]; t.ScaleSet == s.Name {
			ours = append(ours, t.Replacement, t.Machine)
		}
	}
	s.api = p.api.Look(s.Name)
	var machines []cloud.Machine
	d, err := call(ctx, p, "Describe", s.api.Describe)
	if err == nil {
		machines, err = call(ctx, p, "Machines", s.api.Machines)
	}
	if err == nil {
		s.update(d, machines, ours, p.Now)
		return nil
	}
	s.markUnread(err, ours, p.Now)
	log.FromContext(ctx).Info("a scale set can't be read", "scaleSet", s.Name, "reason", s.looking.reason, "message", s.looking.message, "gone", s.Deleted, "again", s.looking.until)
	p.at(s.looking.until)
	return err
}

// findFails records why the scale sets can't be found.
func (p *pass) findFails(ctx context.Context, err error) {
	t := &p.memo.trouble
	t.record(err, p.Now)
	log.FromContext(ctx).Info("the scale sets can't be found", "reason", t.reason, "message", t.message, "again", t.until)
	p.markUnreadable()
}

// markUnreadable records that the list of scale sets is not known.
func (p *pass) markUnreadable() {
	t := &p.memo.trouble
	p.unreadable, p.unreadableMessage = t.reason, t.message
	p.at(t.until)
}

// call calls a cloud, within a time limit, and measures the call. It returns an error if the cloud's answer is so malformed that its library panics.
func call[T any](ctx context.Context, p *pass, name string, do func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := p.Clock.Now()
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("reading the answer of the cloud, %v", what)
			log.FromContext(ctx).Error(err, "a call of a cloud panicked", "stack", string(debug.Stack()))
		}
		metrics.ObserveCloudCall(placeOf(&p.replacement.Provider)[0], name, cmp.Or(string(cloud.KindOf(err)), "ok"), p.Clock.Since(began))
	}()
	return do(ctx)
}

// findSets finds the scale sets of the selected nodes, if the spec does not name them.
func (p *pass) findSets(ctx context.Context) {
	if len(p.replacement.ScaleSets) > 0 {
		return
	}
	var ask []string
	there, isNew := map[string]bool{}, false
	for _, n := range p.Seen.Objects {
		id := n.Spec.ProviderID
		if id == "" || !p.selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		there[id] = true
		if name, asked := p.memo.places[id]; name == "" {
			ask, isNew = append(ask, id), isNew || !asked
		}
	}
	maps.DeleteFunc(p.memo.places, func(id, _ string) bool { return !there[id] })
	again := p.memo.found.Add(p.checkPeriod)
	switch {
	case len(ask) == 0:
		return
	case !isNew && p.Now.Before(again):
		p.at(again)
		return
	case p.memo.trouble.isDelayed(p.Now):
		p.markUnreadable()
		return
	}
	found, err := call(ctx, p, "Find", func(ctx context.Context) (map[string]string, error) { return p.api.Find(ctx, ask) })
	for _, id := range ask {
		if found[id] == "" && err != nil {
			continue // It is asked for again.
		}
		p.memo.places[id] = found[id]
		if p.replacement.Provider.Azure != nil {
			p.memo.places[id] = strings.ToLower(found[id]) // Nodes may spell it in upper or lower case.
		}
	}
	if err != nil {
		p.findFails(ctx, err)
		return
	}
	p.memo.trouble, p.memo.found = trouble{}, p.Now
}

// setNames are the sets of the rollout.
func (p *pass) setNames() []string {
	all := sets.New(p.replacement.ScaleSets...).Insert(slices.Collect(maps.Values(p.memo.places))...)
	all.Delete("") // Machines that are in no scale set.
	status := &p.rollout.Status
	for i := range status.Turns {
		all.Insert(status.Turns[i].ScaleSet)
	}
	for i := range status.ScaleSets {
		if s := &status.ScaleSets[i]; len(s.Operations) > 0 || p.rules.Ending {
			all.Insert(s.Name)
		}
	}
	for name, s := range p.memo.sets {
		if s.suspended != nil && *s.suspended && !s.Deleted {
			all.Insert(name) // It must still be resumed.
		}
	}
	return sets.List(all)
}

// operationsOf are the operations under way in a set.
func (p *pass) operationsOf(name string) []v1alpha1.CloudOperation {
	for i := range p.rollout.Status.ScaleSets {
		if s := &p.rollout.Status.ScaleSets[i]; s.Name == name {
			return s.Operations
		}
	}
	return nil
}

// poll judges the progress of an operation that was sent.
func (p *pass) poll(ctx context.Context, s *set, o *v1alpha1.CloudOperation) {
	progress, err := call(ctx, p, "Poll"+string(o.Kind), func(ctx context.Context) (cloud.Progress, error) {
		after, progress, err := s.api.Poll(ctx, cloud.Operation{Token: o.Token, State: o.State})
		o.State = cmp.Or(after.State, o.State)
		return progress, err
	})
	switch cloud.KindOf(err) {
	case "":
		if !progress.Done {
			s.Added[o.Token] = progress.Added
			break
		}
		s.Ended[o.Token] = machine.Ended{OK: true, Added: progress.Added}
		s.changing = trouble{}
		if o.Kind == v1alpha1.CloudOperationAdd {
			s.adding, s.Declined = trouble{}, ""
		}
	case cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed:
		noRoom := s.recordFailure(o.Kind, err, p.Now) == &s.adding
		s.Ended[o.Token] = machine.Ended{NoRoom: noRoom, Added: progress.Added, Message: err.Error()}
		log.FromContext(ctx).Info("an operation has failed", "scaleSet", s.Name, "kind", o.Kind, "token", o.Token, "error", err.Error())
	case cloud.KindNotFound, cloud.KindConflict, cloud.KindThrottled, cloud.KindUnavailable: // It is polled again.
	}
	if _, ended := s.Ended[o.Token]; ended {
		if since, known := s.sent[o.Token]; known {
			s.took[o.Kind] = p.Now.Sub(since)
		}
		delete(s.sent, o.Token)
		delete(s.Added, o.Token)
	}
}

// lookAt reads a set when that is due, and judges its operations by what was read.
func (p *pass) lookAt(ctx context.Context, s *set) {
	operations := p.operationsOf(s.Name)
	busy := len(operations) > 0 || slices.ContainsFunc(p.rollout.Status.Turns, func(t v1alpha1.MachineTurn) bool {
		return t.ScaleSet == s.Name && t.Phase != v1alpha1.MachineSoaking
	})
	clear(s.Ended)
	if due := s.due(operations, busy, p.checkPeriod); p.Now.Before(due) && (s.Known || s.looking.failures > 0) {
		p.at(due)
		return
	}
	if p.readSet(ctx, s) != nil {
		return
	}
	for i := range operations {
		if o := &operations[i]; o.Sent && !s.Deleted {
			p.poll(ctx, s, o)
		}
	}
	if !busy { // No turn needs the refused request any more.
		s.Declined = ""
		for _, t := range []*trouble{&s.changing, &s.adding} {
			if !t.isDelayed(p.Now) {
				*t = trouble{}
			}
		}
	}
	p.at(s.due(operations, busy, p.checkPeriod))
}
