// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Nodeless reports whether the spot is a machine without a Node.
func (p *Spot) Nodeless() bool { return p.Name == "" }

// Wreck reports whether a machine is outdated, has failed, and has no Node.
func (w *World) Wreck(m *Machine) bool { return m.State == Failed && !m.UpToDate && w.NodeOf(m) == nil }

// Nodeless judges such machines, after all nodes. They are replaced one at a time in turns without surge: nothing runs on them, and there is no Node to remember
// why a turn was given up. What may be somebody else's, or some Node's, is no unit and left alone. wake is when the clock alone changes something.
func (w *World) Nodeless(turns []*Turn, nodes []Spot) (spots []Spot, wake time.Time) {
	busy := slices.ContainsFunc(turns, func(t *Turn) bool { return !t.Over && (t.Failed == nil || !t.nodeless()) }) || slices.ContainsFunc(nodes, func(p Spot) bool {
		u := &p.Unit
		return p.Counted && !u.OptedOut && u.State == v1alpha1.UnitOutdated && u.Reason == ""
	})
	for _, name := range slices.Sorted(maps.Keys(w.Sets)) {
		s := w.Sets[name]
		for i := range s.Machines {
			m := &s.Machines[i]
			if !w.Wreck(m) || Taken(turns, s.Name, m.ID) || s.promised(m.ID) || w.Spared(s, m) != "" {
				continue
			}
			p := Spot{Node: &Node{Node: &corev1.Node{}, Selected: true}, Set: s, Machine: m, Counted: true}
			u := &p.Unit
			u.Node, u.State, u.Nodeless = v1alpha1.MachineUnit(s.Name, m.ID), v1alpha1.UnitOutdated, true
			u.Rank = w.Rank(types.UID(u.Node))
			joins := w.joins(s, m)
			u.Reason, u.Message = w.delays(&p, joins, busy)
			busy = busy || u.Reason == ""
			if w.Now.Before(joins) && (wake.IsZero() || joins.Before(wake)) {
				wake = joins
			}
			spots = append(spots, p)
		}
	}
	return spots, wake
}

// joins is until when a machine that has failed may still join.
func (w *World) joins(s *Set, m *Machine) time.Time {
	since, seen := w.Wrecks[v1alpha1.MachineUnit(s.Name, m.ID)]
	switch {
	case !seen:
		since = w.Now
	case since.Before(m.Created):
		since = m.Created
	}
	return since.Add(w.Timeout)
}

// delays says why a machine without a Node can't be replaced now, or "".
func (w *World) delays(p *Spot, joins time.Time, busy bool) (v1alpha1.Reason, string) {
	s, m := p.Set, p.Machine
	reason, message := w.hindrance(s, m, p.Node, Room{})
	switch {
	case w.DetectOnly:
	case w.Now.Before(joins):
		return v1alpha1.ReasonScaleSetBusy, fmt.Sprintf("machine %s has failed, and may still join until %s", m.ID, joins.UTC().Format(time.RFC3339))
	case busy:
		return v1alpha1.ReasonReplacementPending, "machines with nodes go first"
	case s.NoRoom != "" || s.Careful:
		return cmp.Or(s.NoRoom, s.Trouble, v1alpha1.ReasonCloudQuota), cmp.Or(s.NoRoomMessage, "no other machine was added to scale set "+s.Name+" when one was asked for")
	}
	return reason, message
}

// Spared says why a machine without a Node is not to be touched, or "".
func (w *World) Spared(s *Set, m *Machine) string {
	switch {
	case w.ControlPlane:
		return "it may be a member of the control plane"
	case w.MatchOSImage:
		return "only its node could tell whether it is outdated"
	case s.Heals:
		return "the cloud replaces machines that fail by itself"
	case s.least():
		return s.tooFew()
	case w.others(s) != "":
		return "NodeRollout " + w.others(s) + " is for scale set " + s.Name + " as well"
	case !w.owns(s):
		return "the rollout does not select all nodes of scale set " + s.Name + ", or there are none that it may touch"
	}
	return w.mayBe(m)
}

// others is another NodeRollout that a set is for, or "". Its name may be written in another way there.
func (w *World) others(s *Set) string { return w.Others[LastOf(s.Name)] }

// LastOf is the last part of a cloud's name for something, in lower case.
func LastOf(name string) string { return strings.ToLower(name[strings.LastIndex(name, "/")+1:]) }

// owns reports whether every machine of a set is the rollout's, as far as their Nodes tell: it selects all of them, they are workers, and not all are opted out.
func (w *World) owns(s *Set) bool {
	if !s.Known || !w.isFor(s.Name) {
		return false
	}
	some := false
	for i := range s.Machines {
		if n := w.NodeOf(&s.Machines[i]); n != nil {
			if !n.Selected || w.stray(n) != "" {
				return false
			}
			some = some || !n.OptedOut
		}
	}
	return some
}

// mayBe says which Node may be that of a machine that seems to have none, or "".
func (w *World) mayBe(m *Machine) string {
	if n := w.Nodes[m.NodeName]; m.NodeName != "" && n != nil {
		return "Node " + n.Name + " has the name that machine " + m.ID + " is to have, and says that it is another: " + n.Spec.ProviderID
	}
	for _, n := range w.find().strangers {
		id := n.Spec.ProviderID
		switch {
		case id != "" && form(id) == form(m.ProviderID): // It is another machine.
		case n.Selected, id == "" && m.NodeName == "", id != "" && LastOf(id) == LastOf(m.ProviderID):
			return "Node " + n.Name + " is of a machine that is not known, and may be that of machine " + m.ID
		}
	}
	return ""
}

// form tells apart the ways in which provider ids are written.
func form(id string) string {
	scheme, path, _ := strings.Cut(strings.ToLower(id), "://")
	return fmt.Sprint(scheme, strings.Count(path, "/"))
}

// lone says why the turn of a machine without a Node is not to go on, as long as its deletion is not asked for.
func (w *World) lone(t *Turn, s *Set, m *Machine) string {
	switch {
	case !t.nodeless() || t.Operation != "" || m == nil || !s.Known || m.State == Deleting:
		return ""
	case m.State != Failed:
		return "machine " + m.ID + " has not failed any more"
	case t.Attempt != w.Attempt(s, nil), t.Failed == nil && t.Revision != w.Revision:
		return changed // Nodes go first again.
	case t.Failed == nil && w.Others == nil:
		return "it is not known which other NodeRollouts are for scale set " + s.Name
	case t.Failed == nil && (s.NoRoom != "" || s.Careful):
		return "no other machine was added when one was asked for"
	}
	return w.Spared(s, m)
}

// nodeless reports whether the machine that goes never had a Node.
func (t *Turn) nodeless() bool { return t.Node == "" && t.Machine != "" }
