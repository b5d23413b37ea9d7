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

// Pass advances the drain of a node as far as possible now, and never waits for a pod. The drain began at since, and its
// timeout counts from then; zero means that it begins now. An error means that the node's pods or volumes could not be
// read. The result has the outcome of each pod.
func (d *Drainer) Pass(ctx context.Context, node string, since time.Time, o Options) (Result, error) {
	now := d.clock.Now()
	verdicts, err := d.judge(ctx, node, now, since, &o)
	if err != nil {
		return Result{}, err
	}
	r := Result{Node: node, DryRun: o.DryRun, TimedOut: timedOut(&o, since, now)}
	candidates := evictable(&r, verdicts)
	if len(r.In(Refused)) > 0 {
		record(&r, candidates, Waiting, "other pods are refused")
	} else {
		d.evict(ctx, &r, candidates, &o)
	}
	slices.SortFunc(r.Pods, first)
	if o.WaitForVolumeDetach && r.TimedOut != ForceOnTimeout && !o.DryRun && r.Done() {
		if r.Attached, err = d.attached(ctx, node, staying(verdicts)); err != nil {
			return Result{}, err
		}
	}
	r.Next = next(&r, verdicts, &o, since, now)
	return r, nil
}

// Preview is a first pass without any write or dry run. Pods that a pass would evict are Evicted in its result. It ignores
// volumes.
func (d *Drainer) Preview(ctx context.Context, node string, o Options) (Result, error) {
	verdicts, err := d.judge(ctx, node, d.clock.Now(), time.Time{}, &o)
	if err != nil {
		return Result{}, err
	}
	r := Result{Node: node, DryRun: true}
	candidates := evictable(&r, verdicts)
	if len(r.In(Refused)) > 0 {
		record(&r, candidates, Waiting, "other pods are refused")
	} else {
		record(&r, candidates, Evicted, "")
	}
	slices.SortFunc(r.Pods, first)
	return r, nil
}

// judge reads the node's pods and filters them.
func (d *Drainer) judge(ctx context.Context, node string, now, since time.Time, o *Options) ([]Verdict, error) {
	pods, err := d.list(ctx, node)
	if err != nil {
		return nil, err
	}
	return Filter(pods, Facts{Now: now, Since: since, DaemonSets: d.daemonSets(ctx, pods)}, *o), nil
}

// timedOut returns the action after the timeout, and empty before.
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

// evictable records the pods that Filter skips or blocks, and returns the others.
func evictable(r *Result, verdicts []Verdict) []Verdict {
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

// record adds pods that are not evicted in this pass.
func record(r *Result, verdicts []Verdict, s State, message string) {
	for i := range verdicts {
		r.Pods = append(r.Pods, outcomeOf(&verdicts[i], s, message))
	}
}

// evict evicts the candidates, lowest priority first, those of one priority together.
func (d *Drainer) evict(ctx context.Context, r *Result, candidates []Verdict, o *Options) {
	ended := r.TimedOut.ended()
	how := request{
		grace:  o.GracePeriodSeconds,
		delete: o.DisableEviction || r.TimedOut == ForceOnTimeout,
		dryRun: o.DryRun || ended,
	}
	// In a dry run, and after the timeout, critical pods are not postponed.
	hold := !o.DryRun && r.TimedOut == ""
	for len(candidates) > 0 {
		group := candidates[:samePriority(candidates)]
		candidates = candidates[len(group):]
		if hold && priority(group[0].Pod) >= critical && !r.Done() {
			record(r, group, Waiting, "its priority is critical, so it is evicted last")
			continue
		}
		var requested []Verdict
		for i := range group {
			if isRequested(group[i].Pod, how) {
				r.Pods = append(r.Pods, outcomeOf(&group[i], Terminating, ""))
			} else {
				requested = append(requested, group[i])
			}
		}
		outcomes := d.evictAll(ctx, requested, how)
		for i := range outcomes {
			if ended && outcomes[i].State == Evicted {
				outcomes[i].State, outcomes[i].Message = Waiting, "the drain timed out"
			}
		}
		r.Pods = append(r.Pods, outcomes...)
	}
}

// samePriority counts the first pods with the same priority.
func samePriority(verdicts []Verdict) int {
	n := 1
	for n < len(verdicts) && priority(verdicts[n].Pod) == priority(verdicts[0].Pod) {
		n++
	}
	return n
}
