// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client is what a pass needs of a controller-runtime client: it lists pods, gets DaemonSets, deletes pods and creates
// pods/eviction; and to wait for volumes it lists VolumeAttachments and gets PersistentVolumeClaims. Make it from a config
// that NeverWait has passed.
type Client interface {
	client.Reader
	client.SubResourceClientConstructor
	Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error
}

// Drainer drains nodes, any number at the same time.
type Drainer struct {
	clock  clock.PassiveClock
	client Client

	// found holds the uids of DaemonSets that were read, so that a pass doesn't read them again and again.
	found sync.Map
}

// New makes a Drainer.
func New(clk clock.PassiveClock, c Client) *Drainer {
	return &Drainer{clock: clk, client: c}
}

// Pass brings the drain of a node forward as far as it goes now, and never waits for a pod. The drain began at since,
// from which its time counts; zero means that it begins now. The error says that the node's pods or volumes could not be
// read; what happened to each is in the result.
func (d *Drainer) Pass(ctx context.Context, node string, since time.Time, o Options) (Result, error) {
	now := d.clock.Now()
	verdicts, err := d.judge(ctx, node, now, since, &o)
	if err != nil {
		return Result{}, err
	}
	r := Result{Node: node, DryRun: o.DryRun, TimedOut: timedOut(&o, since, now)}
	candidates := sift(&r, verdicts)
	if len(r.In(Refused)) > 0 {
		leave(&r, candidates, Waiting, "other pods are refused")
	} else {
		d.evict(ctx, &r, candidates, &o)
	}
	slices.SortFunc(r.Pods, first)
	if o.WaitForVolumeDetach && r.TimedOut != ForceOnTimeout && !o.DryRun && r.Done() {
		if r.Attached, err = d.attached(ctx, node, staying(verdicts), o.ChunkSize); err != nil {
			return Result{}, err
		}
	}
	r.Next = next(&r, verdicts, &o, since, now)
	return r, nil
}

// Preview is a first pass that tells nobody anything, not even the API server: what would be evicted is Evicted in its
// result. It looks at no volumes.
func (d *Drainer) Preview(ctx context.Context, node string, o Options) (Result, error) {
	verdicts, err := d.judge(ctx, node, d.clock.Now(), time.Time{}, &o)
	if err != nil {
		return Result{}, err
	}
	r := Result{Node: node, DryRun: true}
	candidates := sift(&r, verdicts)
	if len(r.In(Refused)) > 0 {
		leave(&r, candidates, Waiting, "other pods are refused")
	} else {
		leave(&r, candidates, Evicted, "")
	}
	slices.SortFunc(r.Pods, first)
	return r, nil
}

// judge reads the node's pods and filters them.
func (d *Drainer) judge(ctx context.Context, node string, now, since time.Time, o *Options) ([]Verdict, error) {
	pods, err := d.list(ctx, node, o.ChunkSize)
	if err != nil {
		return nil, err
	}
	return Filter(pods, Facts{Now: now, Since: since, DaemonSets: d.daemonSets(ctx, pods)}, *o), nil
}

// timedOut is what governs when the time is over, and empty before.
func timedOut(o *Options, since, now time.Time) OnTimeout {
	deadline := o.deadline(since)
	switch {
	case deadline.IsZero() || now.Before(deadline):
		return ""
	case o.OnTimeout == "":
		return HaltOnTimeout
	default:
		return o.OnTimeout
	}
}

// sift notes the pods that Filter keeps from going, and gives the others.
func sift(r *Result, verdicts []Verdict) []Verdict {
	candidates := make([]Verdict, 0, len(verdicts))
	for i := range verdicts {
		switch v := &verdicts[i]; v.Action {
		case Skip:
			r.Pods = append(r.Pods, outcomeOf(v, Skipped, v.Message))
		case Block:
			r.Pods = append(r.Pods, outcomeOf(v, Refused, v.Message))
		default:
			candidates = append(candidates, *v)
		}
	}
	return candidates
}

// leave notes pods that are not told to go.
func leave(r *Result, verdicts []Verdict, s State, message string) {
	for i := range verdicts {
		r.Pods = append(r.Pods, outcomeOf(&verdicts[i], s, message))
	}
}

// evict tells the candidates to go, lowest priority first, those of one priority together.
func (d *Drainer) evict(ctx context.Context, r *Result, candidates []Verdict, o *Options) {
	ended := r.TimedOut.ended()
	how := request{
		grace:  o.GracePeriodSeconds,
		delete: o.DisableEviction || r.TimedOut == ForceOnTimeout,
		dryRun: o.DryRun || ended,
	}
	// Where nothing will end, or where there is no time left, nothing is kept for later.
	hold := !o.DryRun && r.TimedOut == ""
	for len(candidates) > 0 {
		group := candidates[:samePriority(candidates)]
		candidates = candidates[len(group):]
		if hold && priority(group[0].Pod) >= critical && !r.Done() {
			leave(r, group, Waiting, "its priority is critical, it goes after all others")
			continue
		}
		var ask []Verdict
		for i := range group {
			if asked(group[i].Pod, how) {
				r.Pods = append(r.Pods, outcomeOf(&group[i], Terminating, ""))
			} else {
				ask = append(ask, group[i])
			}
		}
		outcomes := d.all(ctx, ask, how)
		for i := range outcomes {
			if ended && outcomes[i].State == Evicted {
				outcomes[i].State, outcomes[i].Message = Waiting, "the time is over"
			}
		}
		r.Pods = append(r.Pods, outcomes...)
	}
}

// samePriority counts the pods at the beginning that have the same priority.
func samePriority(verdicts []Verdict) int {
	n := 1
	for n < len(verdicts) && priority(verdicts[n].Pod) == priority(verdicts[0].Pod) {
		n++
	}
	return n
}
