// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
)

// sky is a cloud over scale sets in memory: what is asked for twice is done once, as clouds with tokens do it.
type sky struct {
	world *clouds.World

	mu sync.Mutex
	// done are the operations that have taken effect, by token; times counts how often each was sent.
	done  map[string]*effect
	times map[string]int
	// fails gives the error of a call, if it is to fail, before it has an effect and after.
	fails func(call, set string) (before, after error)
	calls []string
	unfit map[string]string
}

type effect struct {
	task  *clouds.Task
	added []string
}

// plan is the state of an operation.
type plan struct {
	Set     string   `json:"set"`
	Add     int      `json:"add,omitempty"`
	Zone    string   `json:"zone,omitempty"`
	Delete  []string `json:"delete,omitempty"`
	Image   string   `json:"image,omitempty"`
	Version int      `json:"version"`
}

func newSky(w *clouds.World) *sky {
	return &sky{world: w, done: map[string]*effect{}, times: map[string]int{}, unfit: map[string]string{}}
}

func identify(set, _, id string) (string, string) { return "sky://" + set + "/" + id, set + "-" + id }

func (s *sky) call(name, set string, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
	var before, after error
	if s.fails != nil {
		before, after = s.fails(name, set)
	}
	if before != nil {
		return before
	}
	if err := do(); err != nil {
		return kind(err)
	}
	return after
}

func kind(err error) error {
	for from, to := range map[error]cloud.Kind{
		clouds.ErrNotFound: cloud.KindNotFound, clouds.ErrFull: cloud.KindFull, clouds.ErrQuota: cloud.KindQuota, clouds.ErrFailed: cloud.KindFailed, clouds.ErrInvalid: cloud.KindInvalid,
	} {
		if errors.Is(err, from) {
			return cloud.Errorf(to, "%w", err)
		}
	}
	return err
}

func (s *sky) Find(_ context.Context, ids []string) (found map[string]string, err error) {
	found = map[string]string{}
	err = s.call("Find", "", func() error {
		for _, set := range s.world.Sets() {
			for _, m := range s.world.Machines(set.Name) {
				for _, id := range ids {
					if m.ProviderID == id {
						found[id] = set.Name
					}
				}
			}
		}
		return nil
	})
	return found, err
}

func (s *sky) ScaleSet(name string) cloud.ScaleSet { return &layer{s, name} }

func (s *sky) Look(name string) cloud.ScaleSet { return s.ScaleSet(name) }

// layer is a scale set of a sky.
type layer struct {
	sky  *sky
	name string
}

func (l *layer) Describe(context.Context) (d cloud.Set, err error) {
	err = l.sky.call("Describe", l.name, func() error {
		s, ok := l.sky.world.Set(l.name)
		if !ok {
			return clouds.ErrNotFound
		}
		d = cloud.Set{
			Name: l.name, Image: s.Image, ImageName: clouds.ImageName(s.Image), Model: strconv.Itoa(s.Model), Capacity: s.Capacity, Max: s.Max, Zones: s.Zones,
			Version: strconv.Itoa(s.Version), Unfit: l.sky.unfit[l.name],
		}
		if s.Busy {
			d.Busy = "it is being changed"
		}
		return nil
	})
	return d, err
}

func (l *layer) Machines(context.Context) (all []cloud.Machine, err error) {
	err = l.sky.call("Machines", l.name, func() error {
		s, _ := l.sky.world.Set(l.name)
		for _, m := range l.sky.world.Machines(l.name) {
			all = append(all, cloud.Machine{
				ID: m.ID, ProviderID: m.ProviderID, NodeName: m.NodeName, Zone: m.Zone, UpToDate: m.Image == s.Image, State: cloud.State(m.State), Protected: m.Protected,
				Created: m.Created, Message: m.Message,
			})
		}
		return nil
	})
	return all, err
}

func (l *layer) Prepare(_ context.Context, d *cloud.Set, c cloud.Change) (o cloud.Operation, err error) {
	err = l.sky.call("Prepare", l.name, func() error {
		version, err := strconv.Atoi(d.Version)
		if err != nil {
			return err
		}
		if d.Max > 0 && d.Capacity+c.Add > d.Max {
			return clouds.ErrFull
		}
		text, err := json.Marshal(plan{Set: l.name, Add: c.Add, Zone: c.Zone, Delete: c.Delete, Image: c.Image, Version: version})
		o = cloud.Operation{Token: c.Token, State: string(text)}
		return err
	})
	return o, err
}

func (l *layer) Send(_ context.Context, o cloud.Operation) (_ cloud.Operation, err error) {
	err = l.sky.call("Send", l.name, func() error {
		l.sky.times[o.Token]++
		if l.sky.done[o.Token] != nil {
			return nil
		}
		var p plan
		if err := json.Unmarshal([]byte(o.State), &p); err != nil {
			return err
		}
		done := &effect{}
		switch {
		case p.Add > 0:
			added, task, err := l.sky.world.Add(l.name, p.Zone, nil, p.Add)
			if err != nil {
				return err
			}
			for _, m := range added {
				done.added = append(done.added, m.ID)
			}
			_ = task // The machines are asked for: they need not run yet.
		case len(p.Delete) > 0:
			task, err := l.sky.world.Delete(l.name, p.Delete, true)
			if errors.Is(err, clouds.ErrNotFound) {
				break // They are gone.
			}
			if err != nil {
				return err
			}
			done.task = task
		default:
			if err := l.sky.world.Edit(l.name, func(s *clouds.Set) error { s.Image = p.Image; return nil }); err != nil {
				return err
			}
		}
		l.sky.done[o.Token] = done
		return nil
	})
	return o, err
}

func (l *layer) Poll(_ context.Context, o cloud.Operation) (_ cloud.Operation, p cloud.Progress, err error) {
	err = l.sky.call("Poll", l.name, func() error {
		done := l.sky.done[o.Token]
		if done == nil {
			return fmt.Errorf("operation %s was not sent", o.Token)
		}
		p.Done, p.Added = true, done.added
		if done.task != nil {
			var err error
			p.Done, err = done.task.Done()
			return err
		}
		return nil
	})
	return o, p, err
}
