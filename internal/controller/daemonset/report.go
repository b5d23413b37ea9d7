// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
)

const mergePatch = types.MergePatchType

// statusInterval is how often at most a status is written that only reports.
const statusInterval = time.Second

// reports remembers this process's last write of each status, and the last batches of pods. To forget it costs one write too
// early.
type reports struct {
	mu      sync.Mutex
	last    map[types.UID]time.Time
	batches map[types.UID]batches
	uids    map[types.NamespacedName]types.UID
}

// batches are when pods of an ExtendedDaemonSet were last created, replaced, and cleaned up.
type batches struct{ created, replaced, cleaned time.Time }

func newReports() *reports {
	return &reports{last: map[types.UID]time.Time{}, batches: map[types.UID]batches{}, uids: map[types.NamespacedName]types.UID{}}
}

// due is when the status of an object may be written next.
func (r *reports) due(uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.last[uid]; ok {
		return last.Add(statusInterval)
	}
	return time.Time{}
}

func (r *reports) written(uid types.UID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[uid] = at
	for other, old := range r.last {
		if at.Sub(old) > time.Hour {
			delete(r.last, other)
		}
	}
}

// did notes what a pass did to pods.
func (r *reports) did(key types.NamespacedName, uid types.UID, d *deeds, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uids[key] = uid
	b := r.batches[uid]
	if d.created.Load() > 0 {
		b.created = now
	}
	if d.replaced.Load() > 0 {
		b.replaced = now
	}
	if d.cleaned.Load() > 0 {
		b.cleaned = now
	}
	r.batches[uid] = b
}

func (r *reports) batchesOf(uid types.UID) batches {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.batches[uid]
}

func (r *reports) lastBatch(uid types.UID) time.Time { return r.batchesOf(uid).replaced }

func (r *reports) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.batches, r.uids[key])
	delete(r.last, r.uids[key])
	delete(r.uids, key)
}

// report writes the statuses that changed, and then the Events.
func (p *pass) report(ctx context.Context) error {
	var errs []error
	if p.problem == nil {
		p.reports.did(p.key, p.eds.UID, &p.deeds, p.now)
		for _, r := range p.revisions {
			errs = append(errs, p.reportRevision(ctx, r))
		}
	}
	before := p.stored
	p.summarize()
	p.measure()
	if equality.Semantic.DeepEqual(p.stored.Status, p.eds.Status) {
		return errors.Join(errs...)
	}
	if due := p.reports.due(p.eds.UID); p.now.Before(due) {
		p.at(due)
		return errors.Join(errs...)
	}
	if err := p.writeStatus(ctx); err != nil {
		return errors.Join(append(errs, fmt.Errorf("writing the status, %w", err))...)
	}
	p.events.Emit(p.transitions(before)...)
	return errors.Join(errs...)
}

func (p *pass) reportRevision(ctx context.Context, r *revision) error {
	status := p.statusOf(r)
	if equality.Semantic.DeepEqual(r.set.Status, status) {
		return nil
	}
	if due := p.reports.due(r.set.UID); p.now.Before(due) {
		p.at(due)
		return nil
	}
	changed := r.set.DeepCopy()
	changed.Status = status
	return p.writeRevision(ctx, r.set, changed)
}

// writeRevision writes the status of a revision, if nobody else has in the meantime. It is written whole: some of its fields
// must be there also when they are 0.
func (p *pass) writeRevision(ctx context.Context, before, changed *edsv1.ExtendedDaemonSetReplicaSet) error {
	if err := p.client.Status().Update(ctx, changed); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of revision %s, %w", before.Name, err))
	}
	p.reports.written(before.UID, p.now)
	return nil
}

// condemn writes down that a revision has failed as a canary.
func (p *pass) condemn(ctx context.Context, rs *edsv1.ExtendedDaemonSetReplicaSet, v daemon.Verdict) error {
	changed := rs.DeepCopy()
	set(&changed.Status.Conditions, edsv1.ConditionCanaryFailed, true, string(v.Reason), v.Message, p.now)
	changed.Status.Status = edsv1.ReplicaSetCanaryFailed
	return p.writeRevision(ctx, rs, changed)
}

// writeStatus writes the status as it stands, if nobody else has in the meantime.
func (p *pass) writeStatus(ctx context.Context) error {
	changed := p.stored.DeepCopy()
	changed.Status = *p.eds.Status.DeepCopy()
	if err := p.client.Status().Update(ctx, changed); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.stored = changed
	p.reports.written(p.eds.UID, p.now)
	return nil
}

// unannotate removes annotations of the ExtendedDaemonSet, if nobody has changed it in the meantime.
func (p *pass) unannotate(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	annotations := map[string]any{}
	for _, key := range keys {
		annotations[key] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": p.stored.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return err
	}
	changed := p.stored.DeepCopy()
	switch err := p.client.Patch(ctx, changed, client.RawPatch(mergePatch, body)); {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("removing %s, %w", strings.Join(keys, ", "), err)
	case err == nil:
		p.stored.ResourceVersion = changed.ResourceVersion
	}
	return nil
}
