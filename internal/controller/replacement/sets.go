// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	machine "moult.dev/moult/internal/kind/replacement"
)

// How often a scale set is looked at while something is under way in it, and how soon after something has changed.
const (
	lookBusy    = 10 * time.Second
	lookChanged = 2 * time.Second
	// recent is how old a look may be that something is ordered on.
	recent = 15 * time.Second
)

// What fails is tried again, more and more seldom.
const (
	firstBack = time.Second
	lastBack  = 2 * time.Minute
)

// trouble is why a cloud is left alone for a while.
type trouble struct {
	reason   v1alpha1.Reason
	message  string
	failures int
	until    time.Time
}

// fails notes an error: the cloud is left alone for longer each time, and for as long as it says.
func (t *trouble) fails(err error, now time.Time) {
	t.reason, t.message = reasonOf(cloud.KindOf(err)), err.Error()
	wait := lastBack
	if t.failures < 7 {
		wait = min(firstBack<<t.failures, lastBack)
	}
	t.failures++
	t.until = now.Add(max(wait, cloud.RetryAfter(err)))
}

func (t *trouble) rests(now time.Time) bool { return now.Before(t.until) }

// reasonOf is the word for a kind of error.
func reasonOf(kind cloud.Kind) v1alpha1.Reason {
	switch kind {
	case cloud.KindNotFound:
		return v1alpha1.ReasonScaleSetNotFound
	case cloud.KindConflict:
		return v1alpha1.ReasonScaleSetBusy
	case cloud.KindThrottled:
		return v1alpha1.ReasonCloudThrottled
	case cloud.KindQuota:
		return v1alpha1.ReasonCloudQuota
	case cloud.KindFull:
		return v1alpha1.ReasonScaleSetFull
	case cloud.KindDenied:
		return v1alpha1.ReasonCloudDenied
	case cloud.KindInvalid:
		return v1alpha1.ReasonScaleSetUnfit
	case cloud.KindFailed, cloud.KindUnavailable:
	}
	return v1alpha1.ReasonCloudError
}

// set is what is remembered of a scale set.
type set struct {
	name  string
	known bool
	// described and machines are what it was at this time.
	described cloud.Set
	machines  []machine.Machine
	at        time.Time
	// looking is why it can't be looked at, preparing why nothing more can be asked for, changing why it can't be changed, and adding why there is no room
	// for more machines.
	looking, preparing, changing, adding trouble
	// declined is why the cloud adds no machine whatever time it is given, by its last answer.
	declined string
	// changed is when something of the rollout's was last done to it, and stale is true when it is to be looked at as soon as may be.
	changed time.Time
	stale   bool
	// polls are those of operations, and ended how these ended.
	polls map[string]poll
	ended map[string]machine.Ended
	// added are the machines that additions under way have made so far.
	added map[string][]string
	// unsent are operations that this process has prepared, and has not asked the cloud for yet.
	unsent map[string]bool
	// sure are those that the cloud has taken at the first time of asking, just after they were prepared.
	sure map[string]bool
	// absent is true where the cloud says that there is no such set, and that is believed. unfound is since when it says so.
	absent  bool
	unfound time.Time
	// suspended is whether the set was told not to move machines about by itself; nil until that is known. suspendAt is when it is told again, and unresumed why
	// it could not be told that it may.
	suspended *bool
	suspendAt time.Time
	unresumed string
	// missing is since when machines of turns are not listed.
	missing map[string]time.Time
}

type poll struct {
	at    time.Time
	count int
}

func newSet(name string) *set {
	return &set{name: name, polls: map[string]poll{}, ended: map[string]machine.Ended{}, added: map[string][]string{}, unsent: map[string]bool{}, sure: map[string]bool{}}
}

// due is when the set is looked at next.
func (s *set) due(busy bool, period time.Duration) time.Time {
	if s.looking.failures > 0 {
		return s.looking.until
	}
	at := s.at.Add(period)
	if busy {
		at = earlier(at, s.at.Add(lookBusy))
	}
	if s.stale {
		return earlier(at, s.at.Add(lookChanged))
	}
	if !s.changed.IsZero() && s.changed.After(s.at) {
		at = earlier(at, s.changed.Add(lookChanged))
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// looked takes in what a look has shown. ours are the machines of turns.
func (s *set) looked(d cloud.Set, machines []cloud.Machine, ours []string, now time.Time) {
	if s.known && s.described.Model != d.Model {
		s.declined = "" // Something else is asked for from now on.
	}
	s.known, s.described, s.at, s.looking, s.stale, s.absent, s.unfound = true, d, now, trouble{}, false, false, time.Time{}
	s.machines = make([]machine.Machine, len(machines))
	for i := range machines {
		m := &machines[i]
		s.machines[i] = machine.Machine{
			ID: m.ID, ProviderID: m.ProviderID, NodeName: m.NodeName, Zone: m.Zone, UpToDate: m.UpToDate, State: machine.State(m.State), Created: m.Created,
			Protected: m.Protected || m.Aside != "", Aside: m.Aside, Message: m.Message,
		}
	}
	s.missing = machine.StillMissing(s.missing, s.machines, ours, now)
}

// goneAfter is how long a cloud must have said that there is no such set until that is believed, and goneEnding how long where the NodeRollout is being
// deleted. One answer alone is never believed: a machine that is still to be made up for would be forgotten with the set.
const (
	goneAfter  = 5 * time.Minute
	goneEnding = machine.MissingFor
)

// isGone takes in why a set can't be looked at, and reports whether it is not there any more.
func (s *set) isGone(err error, ending bool, now time.Time) bool {
	if cloud.KindOf(err) != cloud.KindNotFound {
		return false
	}
	if s.unfound.IsZero() {
		s.unfound = now
	}
	after := goneAfter
	if ending {
		after = goneEnding
	}
	return now.Sub(s.unfound) >= after
}

// vanishes takes in that there is no such set any more, and so no machine in it.
func (s *set) vanishes(err error, ours []string, now time.Time) {
	since := s.unfound
	s.looked(cloud.Set{Name: s.name}, nil, ours, now)
	s.absent, s.unfound = true, since
	s.looking = trouble{reason: reasonOf(cloud.KindOf(err)), message: err.Error(), failures: 1, until: now.Add(lookBusy)}
}

// answered takes in what the cloud says of an addition.
func (s *set) answered(err error) {
	switch cloud.KindOf(err) {
	case cloud.KindInvalid, cloud.KindNotFound, cloud.KindFailed:
		s.declined = err.Error()
	case cloud.KindConflict, cloud.KindThrottled, cloud.KindUnavailable:
		// That says nothing of what was asked for.
	case "", cloud.KindQuota, cloud.KindFull, cloud.KindDenied:
		s.declined = ""
	}
}

// impossible reports whether an error of Send says that an operation has had no effect: the cloud does not do it, and it has not been asked before.
func (s *set) impossible(token string, kind cloud.Kind) bool {
	switch kind {
	case cloud.KindDenied, cloud.KindInvalid:
		return s.unsent[token]
	case cloud.KindNotFound:
		return s.unsent[token] || s.absent
	default:
		return false
	}
}

// view is the set as it is judged by.
func (s *set) view(operations []v1alpha1.CloudOperation, now time.Time) *machine.Set {
	v := &machine.Set{Name: s.name, Known: s.known, Absent: s.absent, LookedAt: s.at, Missing: s.missing, Operations: operations, Ended: s.ended}
	if s.known {
		d := &s.described
		v.Image, v.ImageName, v.Model, v.Capacity, v.Min, v.Max = d.Image, d.ImageName, d.Model, d.Capacity, d.Min, d.Max
		v.Zones, v.Busy, v.Unfit, v.Heals = d.Zones, d.Busy, d.Unfit, d.Heals
		v.Machines = s.machines
		if !d.Overprovisions {
			v.Added = s.added // Else it may still take them away again.
		}
	}
	for _, t := range []*trouble{&s.looking, &s.preparing, &s.changing} {
		if t.rests(now) || t == &s.looking && t.failures > 0 {
			v.Reason, v.Message = t.reason, t.message
			break
		}
	}
	for _, t := range []*trouble{&s.looking, &s.preparing, &s.changing, &s.adding} {
		if t.reason != "" && v.Trouble == "" {
			v.Trouble, v.TroubleMessage = t.reason, t.message
		}
	}
	v.Declined = s.declined
	v.Careful = s.adding.failures > 0 || s.declined != ""
	if s.adding.rests(now) {
		v.NoRoom, v.NoRoomMessage = s.adding.reason, s.adding.message
	}
	return v
}
