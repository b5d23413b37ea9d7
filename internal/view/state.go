// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// State is the state of a rollout, in one word.
type State string

// The states of a rollout.
const (
	// Pending: no controller has observed the rollout or its latest change.
	Pending State = "Pending"
	// Progressing: nodes are in a turn, or about to be.
	Progressing State = "Progressing"
	// Waiting: nodes are outdated, and none may be started now.
	Waiting State = "Waiting"
	// Stalled: the rollout stops until a person changes something.
	Stalled State = "Stalled"
	// Complete: every node has the desired revision.
	Complete State = "Complete"
)

// unnoticed is how old a rollout may be without a status before a message says so.
const unnoticed = 10 * time.Second

// rolloutConditions are what decides the state of a rollout, of any kind.
type rolloutConditions struct {
	object   metav1.Object
	observed int64 // generation; 0 if the controller does not write it
	// complete says whether the rollout is complete; nil before a controller has looked at it. stalled may be nil too.
	complete, stalled *metav1.Condition
	// message is shown unless the rollout is pending or stalled.
	message string
}

// startReasons are the reasons of a Plan's condition Complete while turns go on or start.
var startReasons = []string{upgradev1.ReasonSyncJob, upgradev1.ReasonResolved}

// state returns a rollout's state, the message for it, and its start.
func (c *rolloutConditions) state(r *Rollout, now time.Time) (State, string, *metav1.Time) {
	starts := func(n Node) bool { return n.State == v1alpha1.UnitOutdated && n.Reason == "" }
	switch {
	case c.complete == nil && now.Sub(c.object.GetCreationTimestamp().Time) < unnoticed:
		return Pending, "", nil
	case c.complete == nil:
		return Pending, "no controller has looked at it: does one run, for its kind and namespace?", nil
	case c.observed != 0 && c.observed != c.object.GetGeneration():
		return Pending, "the controller has not looked at its latest change yet", nil
	case c.stalled != nil && c.stalled.Status == metav1.ConditionTrue:
		return Stalled, c.stalled.Message, timeOrNil(c.stalled.LastTransitionTime.Time)
	}
	state := Waiting
	switch {
	case c.complete.Status == metav1.ConditionTrue && r.Counts.Updating == 0: // Else the Nodes were read before the rollout.
		state = Complete
	case r.Counts.Updating > 0 || slices.Contains(startReasons, c.complete.Reason) || slices.ContainsFunc(r.Nodes, starts):
		state = Progressing
	}
	return state, c.message, timeOrNil(c.complete.LastTransitionTime.Time)
}
