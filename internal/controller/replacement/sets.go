// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	machine "moult.dev/moult/internal/kind/replacement"
)

// How often a scale set is read while turns or operations are under way in it, when it may have changed, and when an operation may end.
const (
	lookBusy    = 10 * time.Second
	lookChanged = 2 * time.Second
	lookEnding  = 250 * time.Millisecond
	// lookJust is the maximum age of a look before an order.
	lookJust = time.Second
)

// Failed calls are repeated, with growing intervals.
const (
	firstBack = time.Second
	lastBack  = 2 * time.Minute
)

// trouble is why requests to a cloud are delayed.
type trouble struct {
	reason   v1alpha1.Reason
	message  string
	failures int
	until    time.Time
}

// record notes an error: the next attempt is later each time, and no earlier than the cloud says.
func (t *trouble) record(err error, now time.Time) {
	t.reason, t.message = reasonOf(cloud.KindOf(err)), err.Error()
	wait := min(firstBack<<min(t.failures, 7), lastBack) // A longer shift could overflow.
	t.failures++
	t.until = now.Add(max(wait, cloud.RetryAfter(err)))
}

func (t *trouble) isDelayed(now time.Time) bool { return now.Before(t.until) }

// reasons are the reasons for kinds of errors; that of any other kind is CloudError.
var reasons = map[cloud.Kind]v1alpha1.Reason{
	cloud.KindNotFound:  v1alpha1.ReasonScaleSetNotFound,
	cloud.KindConflict:  v1alpha1.ReasonScaleSetBusy,
	cloud.KindThrottled: v1alpha1.ReasonCloudThrottled,
	cloud.KindQuota:     v1alpha1.ReasonCloudQuota,
	cloud.KindFull:      v1alpha1.ReasonScaleSetFull,
	cloud.KindDenied:    v1alpha1.ReasonCloudDenied,
	cloud.KindInvalid:   v1alpha1.ReasonScaleSetUnfit,
}

func reasonOf(kind cloud.Kind) v1alpha1.Reason {
	return cmp.Or(reasons[kind], v1alpha1.ReasonCloudError)
}

// set is a scale set as it was read last, and what this process remembers of it.
type set struct {
	machine.Set
	// looking is why it can't be read, changing why it can't be changed, and adding why there is no room for more machines.
	looking, changing, adding trouble
	// api has what was read last. changed is true if something was sent since, and stale if it must be read as soon as possible.
	api            cloud.ScaleSet
	changed, stale bool
	// sent is when operations were sent, by token. took is how long the last one of each kind took since then.
	sent map[string]time.Time
	took map[v1alpha1.CloudOperationKind]time.Duration
	// unfound is since when the cloud says that the scale set does not exist.
	unfound time.Time
	// suspended is whether its zone balancing is suspended; nil until that is known. suspending is why that can't be changed.
	suspended  *bool
	suspending trouble
	// unprotected are machines of turns that are not protected from deletion, where the cloud needs a request for each. It is emptied at each read of
	// the set.
	unprotected map[string]bool
}

func newSet(name string) *set {
	return &set{
		Set:         machine.Set{Set: cloud.Set{Name: name}, Ended: map[string]machine.Ended{}, Added: map[string][]string{}},
		unprotected: map[string]bool{}, sent: map[string]time.Time{}, took: map[v1alpha1.CloudOperationKind]time.Duration{},
	}
}

// pollAt is when an operation is polled next: not before nine tenths of the time that the last one of its kind took, and then after each eighth of
// its time. An addition is polled sooner while its machines are not known: their Nodes may join at any time.
func (s *set) pollAt(o *v1alpha1.CloudOperation) time.Time {
	since, known := s.sent[o.Token]
	if !known {
		since = o.Since.Time // Another process has sent it. This has no fractions of a second.
	}
	last := slices.MaxFunc([]time.Time{s.LookedAt, since}, time.Time.Compare)
	next := last.Add(max(lookEnding, last.Sub(since)/8))
	if o.Kind == v1alpha1.CloudOperationAdd && len(s.Added[o.Token]) < int(o.Count) {
		return next
	}
	return slices.MaxFunc([]time.Time{next, since.Add(s.took[o.Kind] * 9 / 10)}, time.Time.Compare)
}

// due is when the set is read next, with these operations under way.
func (s *set) due(operations []v1alpha1.CloudOperation, busy bool, period time.Duration) time.Time {
	if s.looking.failures > 0 {
		return s.looking.until
	}
	times := []time.Time{s.LookedAt.Add(period)}
	if busy {
		times = append(times, s.LookedAt.Add(lookBusy))
	}
	if s.stale || busy && s.Busy != "" {
		times = append(times, s.LookedAt.Add(lookChanged))
	}
	for i := range operations {
		if _, ended := s.Ended[operations[i].Token]; operations[i].Sent && !ended {
			times = append(times, s.pollAt(&operations[i]))
		}
	}
	return slices.MinFunc(times, time.Time.Compare)
}

// update stores the result of a look. ours are the machines of turns.
func (s *set) update(d cloud.Set, machines []cloud.Machine, ours []string, now time.Time) {
	if s.Known && s.Model != d.Model {
		s.Declined = "" // Another model is wanted now.
	}
	d.Name = s.Name // The cloud may spell it in another way.
	s.Set.Set, s.Machines, s.Known, s.Deleted, s.LookedAt = d, machines, true, false, now
	s.looking, s.changed, s.stale, s.unfound = trouble{}, false, false, time.Time{}
	clear(s.unprotected)
	s.Missing = machine.StillMissing(s.Missing, s.Machines, ours, now)
}

// goneAfter is how long a cloud must report a set as not found before it counts as deleted. A single wrong answer would end its turns.
const goneAfter = 5 * time.Minute

// markUnread records why a set can't be read. After goneAfter of KindNotFound, the set is Deleted and has no machines.
func (s *set) markUnread(err error, ours []string, now time.Time) {
	s.looking.record(err, now)
	if cloud.KindOf(err) == cloud.KindNotFound {
		if s.unfound.IsZero() {
			s.unfound = now
		}
		if since, looking := s.unfound, s.looking; now.Sub(since) >= goneAfter {
			s.update(cloud.Set{}, nil, ours, now)
			s.Deleted, s.unfound, s.looking = true, since, looking
		}
	}
	clear(s.Ended)
}

// recordAnswer records how the cloud answers an addition.
func (s *set) recordAnswer(err error) {
	switch cloud.KindOf(err) {
	case cloud.KindInvalid, cloud.KindNotFound, cloud.KindFailed:
		s.Declined = err.Error()
	case cloud.KindConflict, cloud.KindThrottled, cloud.KindUnavailable:
		// These do not say if a machine can be added.
	default:
		s.Declined = ""
	}
}

// recordFailure records that an operation has failed or was refused: in adding if the cloud has no room for an addition, else in changing.
func (s *set) recordFailure(kind v1alpha1.CloudOperationKind, err error, now time.Time) *trouble {
	t := &s.changing
	if kind == v1alpha1.CloudOperationAdd {
		s.recordAnswer(err)
		if why := cloud.KindOf(err); why == cloud.KindQuota || why == cloud.KindFull {
			t = &s.adding
		}
	}
	t.record(err, now)
	return t
}

// view is the set as Judge gets it.
func (s *set) view(operations []v1alpha1.CloudOperation, now time.Time) *machine.Set {
	v := s.Set
	v.Operations, v.Refused, v.Careful = operations, s.adding.failures, s.adding.failures > 0 || s.Declined != ""
	if !s.Known || s.Overprovisions {
		v.Added = nil // The cloud may still delete them.
	}
	for _, t := range []*trouble{&s.looking, &s.changing, &s.adding} {
		if t.reason != "" && v.Trouble == "" {
			v.Trouble, v.TroubleMessage = t.reason, t.message
		}
		switch {
		case t == &s.adding && t.isDelayed(now):
			v.NoRoom, v.NoRoomMessage = t.reason, t.message
		case v.Reason == "" && (t.isDelayed(now) || t == &s.looking && t.failures > 0):
			v.Reason, v.Message = t.reason, t.message
		}
	}
	return &v
}
