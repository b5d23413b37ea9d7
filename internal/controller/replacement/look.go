// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/metrics"
	turnof "moult.dev/moult/internal/turn"
)

const (
	// callTimeout bounds a call of a cloud.
	callTimeout = 30 * time.Second
	// lookers bounds how many scale sets are looked at together.
	lookers = 4
	// pollEvery is how often at most an operation is asked after, where the cloud does not say when. It is asked sooner at first.
	pollEvery = 5 * time.Second
	firstPoll = 500 * time.Millisecond
)

// look asks the cloud what is due: which sets there are, how operations stand, and how the sets are.
func (p *pass) look(ctx context.Context) error {
	if provider := turnof.Digest(p.replacement.Provider); p.memo.provider != provider {
		p.memo.reset(provider)
	}
	c, err := p.options.Clouds(ctx, &p.replacement.Provider)
	if err != nil {
		p.memo.trouble.fails(err, p.now)
		p.sees(ctx, p.memo.trouble)
		p.know(p.names()) // What is under way in them is not forgotten.
		return nil
	}
	p.api = c
	p.find(ctx, c)
	names := p.names()
	p.know(names)
	for name := range p.memo.sets {
		if !slices.Contains(names, name) {
			delete(p.memo.sets, name)
			metrics.ForgetScaleSet(p.rollout.Name, name)
		}
	}
	var group errgroup.Group
	group.SetLimit(lookers)
	for _, name := range names {
		s := p.memo.sets[name]
		api := c.ScaleSet(name)
		group.Go(func() error {
			p.poll(ctx, s, api)
			p.lookAt(ctx, s, api)
			return nil
		})
	}
	return group.Wait()
}

// know makes room in memory for sets.
func (p *pass) know(names []string) {
	for _, name := range names {
		if p.memo.sets[name] != nil {
			continue
		}
		p.memo.sets[name] = newSet(name)
	}
}

// sees notes why not all is known.
func (p *pass) sees(ctx context.Context, t trouble) {
	log.FromContext(ctx).Info("the cloud can't be asked", "reason", t.reason, "message", t.message, "again", t.until)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blind, p.blindMessage = t.reason, t.message
	if p.wake.IsZero() || t.until.Before(p.wake) {
		p.wake = t.until
	}
}

// provider is the name of the cloud, in metrics.
func (w *world) provider() string {
	switch r := &w.replacement.Provider; {
	case r.Azure != nil:
		return "azure"
	case r.AWS != nil:
		return "aws"
	case r.GCP != nil:
		return "gcp"
	}
	return "unknown"
}

// call calls a cloud, in its time, and measures that.
func (p *pass) call(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := p.clock.Now()
	err := do(ctx)
	outcome := "ok"
	if err != nil {
		outcome = string(cloud.KindOf(err))
	}
	metrics.ObserveCloudCall(p.provider(), name, outcome, p.clock.Since(began))
	return err
}

// find finds out which sets the selected nodes are of, where the spec does not name them.
func (p *pass) find(ctx context.Context, c cloud.Cloud) {
	if len(p.replacement.ScaleSets) > 0 {
		return
	}
	var ask []string
	there := map[string]bool{}
	next := time.Time{}
	for _, n := range p.snapshot.Objects {
		id := n.Spec.ProviderID
		if id == "" || !p.selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		there[id] = true
		known, asked := p.memo.places[id]
		again := known.asked.Add(p.checkPeriod)
		switch {
		case known.known:
		case !asked || !p.now.Before(again):
			ask = append(ask, id)
		case next.IsZero() || again.Before(next):
			next = again
		}
	}
	maps.DeleteFunc(p.memo.places, func(id string, _ place) bool { return !there[id] })
	p.at(next)
	if len(ask) == 0 {
		return
	}
	if t := &p.memo.trouble; t.rests(p.now) {
		p.sees(ctx, *t)
		return
	}
	var found map[string]cloud.Location
	err := p.call(ctx, "Find", func(ctx context.Context) (err error) {
		found, err = c.Find(ctx, ask)
		return err
	})
	if err != nil {
		p.memo.trouble.fails(err, p.now)
		p.sees(ctx, p.memo.trouble)
		return
	}
	p.memo.trouble = trouble{}
	for _, id := range ask {
		where, known := found[id]
		where.ScaleSet = p.canonical(where.ScaleSet)
		p.memo.places[id] = place{Location: where, known: known, asked: p.now}
	}
}

// canonical is the name that a set is known by: nodes of Azure may tell it in other cases, and elsewhere these are names of others. What is written down of
// it goes before what this process remembers.
func (p *pass) canonical(name string) string {
	if p.replacement.Provider.Azure == nil {
		return name
	}
	status := &p.rollout.Status
	for i := range status.Turns {
		if known := status.Turns[i].ScaleSet; strings.EqualFold(known, name) {
			return known
		}
	}
	for i := range status.ScaleSets {
		if known := status.ScaleSets[i].Name; strings.EqualFold(known, name) {
			return known
		}
	}
	for known := range p.memo.sets {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	for _, where := range p.memo.places {
		if where.known && strings.EqualFold(where.ScaleSet, name) {
			return where.ScaleSet
		}
	}
	return name
}

// names are the sets that the rollout has to do with.
func (p *pass) names() []string {
	all := map[string]bool{}
	for _, name := range p.replacement.ScaleSets {
		all[name] = true
	}
	for _, where := range p.memo.places {
		if where.known {
			all[where.ScaleSet] = true
		}
	}
	status := &p.rollout.Status
	for i := range status.Turns {
		all[status.Turns[i].ScaleSet] = true
	}
	for i := range status.ScaleSets {
		if s := &status.ScaleSets[i]; len(s.Operations) > 0 || p.rules.Ending {
			all[s.Name] = true
		}
	}
	for name, s := range p.memo.sets {
		if s.suspended != nil && *s.suspended {
			all[name] = true // It is still to be let go on.
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// operationsOf are those under way in a set.
func (p *pass) operationsOf(name string) []v1alpha1.CloudOperation {
	for i := range p.rollout.Status.ScaleSets {
		if s := &p.rollout.Status.ScaleSets[i]; s.Name == name {
			return s.Operations
		}
	}
	return nil
}

// poll asks how operations stand that were sent.
func (p *pass) poll(ctx context.Context, s *set, api cloud.ScaleSet) {
	operations := p.operationsOf(s.name)
	for token := range s.polls {
		if !slices.ContainsFunc(operations, func(o v1alpha1.CloudOperation) bool { return o.Token == token }) {
			delete(s.polls, token)
			delete(s.ended, token)
		}
	}
	over := func(token string, _ bool) bool {
		return !slices.ContainsFunc(operations, func(o v1alpha1.CloudOperation) bool { return o.Token == token })
	}
	maps.DeleteFunc(s.unsent, over)
	maps.DeleteFunc(s.sure, over)
	maps.DeleteFunc(s.added, func(token string, _ []string) bool { return over(token, false) })
	for i := range operations {
		o := &operations[i]
		if _, over := s.ended[o.Token]; over || !o.Sent {
			continue
		}
		k := s.polls[o.Token]
		if p.now.Before(k.at) {
			p.at(k.at)
			continue
		}
		var after cloud.Operation
		var progress cloud.Progress
		err := p.call(ctx, "Poll"+string(o.Kind), func(ctx context.Context) (err error) {
			after, progress, err = api.Poll(ctx, cloud.Operation{Token: o.Token, State: o.State})
			return err
		})
		if after.State != "" {
			o.State = after.State
		}
		k.count++
		wait := min(firstPoll<<min(k.count, 8), pollEvery)
		if progress.After > 0 {
			wait = progress.After
		}
		kind := cloud.KindOf(err)
		if kind == cloud.KindNotFound && s.absent {
			kind = cloud.KindFailed // With its set it is over.
		}
		switch kind {
		case "":
			if progress.Done {
				p.ends(s, o, progress, nil)
				continue
			}
			s.added[o.Token] = progress.Added
		case cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed:
			p.ends(s, o, progress, err)
			log.FromContext(ctx).Info("an operation has failed", "scaleSet", s.name, "kind", o.Kind, "token", o.Token, "error", err.Error())
			continue
		default:
			s.looking.fails(err, p.now)
			wait = max(wait, s.looking.until.Sub(p.now))
		}
		k.at = p.now.Add(wait)
		s.polls[o.Token] = k
		p.at(k.at)
	}
}

// ends notes how an operation ended. The set is looked at before anything is made of it.
func (p *pass) ends(s *set, o *v1alpha1.CloudOperation, progress cloud.Progress, err error) {
	kind := cloud.KindOf(err)
	end := endOf(progress, err, p.now)
	end.Sure = s.sure[o.Token]
	s.ended[o.Token] = end
	s.polls[o.Token] = poll{}
	s.stale, s.changed = true, p.now
	if o.Kind == v1alpha1.CloudOperationAdd {
		s.answered(err)
	}
	switch {
	case err == nil && o.Kind == v1alpha1.CloudOperationAdd:
		s.adding = trouble{}
	case err == nil && o.Kind == v1alpha1.CloudOperationDelete:
		s.changing = trouble{}
	case err == nil:
	case kind == cloud.KindQuota || kind == cloud.KindFull:
		s.adding.fails(err, p.now)
	default:
		s.changing.fails(err, p.now)
	}
}

// lookAt looks at a set, if that is due.
func (p *pass) lookAt(ctx context.Context, s *set, api cloud.ScaleSet) {
	operations := p.operationsOf(s.name)
	var ours []string
	busy := len(operations) > 0
	for i := range p.rollout.Status.Turns {
		t := &p.rollout.Status.Turns[i]
		if t.ScaleSet != s.name {
			continue
		}
		ours = append(ours, t.Replacement)
		if t.Phase != v1alpha1.MachineSoaking {
			ours = append(ours, t.Machine)
			busy = true
		}
	}
	// What has ended shows without delay.
	endedNow := slices.ContainsFunc(operations, func(o v1alpha1.CloudOperation) bool {
		end, over := s.ended[o.Token]
		return over && end.At.Equal(p.now)
	})
	due := s.due(busy, p.checkPeriod)
	if s.known && p.now.Before(due) && (!endedNow || s.looking.failures > 0) {
		p.at(due)
		return
	}
	if s.looking.rests(p.now) {
		p.at(s.looking.until)
		return
	}
	var d cloud.Set
	var all []cloud.Machine
	err := p.call(ctx, "Describe", func(ctx context.Context) (err error) {
		d, err = api.Describe(ctx)
		return err
	})
	if err == nil {
		err = p.call(ctx, "Machines", func(ctx context.Context) (err error) {
			all, err = api.Machines(ctx, ours...)
			return err
		})
	}
	if s.isGone(err, p.rules.Ending, p.now) {
		log.FromContext(ctx).Info("a scale set is gone", "scaleSet", s.name, "message", err.Error())
		s.vanishes(err, ours, p.now)
		p.at(s.looking.until)
		return
	}
	if err != nil {
		s.looking.fails(err, p.now)
		log.FromContext(ctx).Info("a scale set can't be looked at", "scaleSet", s.name, "reason", s.looking.reason, "message", s.looking.message, "again", s.looking.until)
		p.at(s.looking.until)
		return
	}
	s.looked(d, all, ours, p.now)
	for _, t := range []*trouble{&s.preparing, &s.changing, &s.adding} {
		if !busy && !t.rests(p.now) {
			*t = trouble{} // Nothing is wanted of it any more that it has refused.
		}
	}
	if !busy {
		s.declined = ""
	}
	p.at(s.due(busy, p.checkPeriod))
}
