// SPDX-License-Identifier: Apache-2.0

// Package cloud is what a rollout needs of a cloud: scale sets, whose machines are added and deleted one by one. Each cloud is a folder below.
//
// Nothing here waits. A change is prepared, which may read and changes nothing; the caller writes the operation down; it is sent, as often as
// the caller likes, and takes effect once; and it is polled, by whoever has what was written down, until it is done.
package cloud

import (
	"context"
	"encoding/json"
	"time"
)

// Cloud is one cloud, by the rights of one NodeRollout. It is safe for concurrent use.
type Cloud interface {
	// Find finds out of which scale sets the machines with these provider ids (Node.spec.providerID) are. Those that are of none, of another cloud, or
	// of another account, are left out of the answer; that is no error.
	Find(ctx context.Context, providerIDs []string) (map[string]Location, error)
	// ScaleSet is the scale set of that name. It asks nothing.
	ScaleSet(name string) ScaleSet
}

// Location is where a machine is.
type Location struct {
	// ScaleSet is the name of its scale set, as Cloud.ScaleSet takes it.
	ScaleSet string
	// Machine is its Machine.ID.
	Machine string
}

// ScaleSet is a set of machines that are made alike: a virtual machine scale set, an Auto Scaling group, a managed instance group.
type ScaleSet interface {
	// Describe reads how it is set up. KindNotFound: there is none of that name.
	Describe(ctx context.Context) (Set, error)
	// Machines reads all its machines, also those that come or go. inTurn are ids of machines in turns: a cloud that tells Machine.Protected of one
	// machine a request reads it of these alone.
	Machines(ctx context.Context, inTurn ...string) ([]Machine, error)
	// Prepare makes an operation of a change of the set as it was described, and sends nothing. KindFull: it would have more machines than it may.
	// KindInvalid: it can't be done to this set.
	Prepare(ctx context.Context, s *Set, c Change) (Operation, error)
	// Send sends an operation that was prepared, and returns it with what is known of it since. An operation that was sent before, by this process
	// or by another, is not done a second time, and no error. KindConflict: the set has been changed since the operation was prepared, and the
	// operation has had no effect and never will: another one is to be prepared. KindQuota, KindFull: it has had no effect, and can be sent again.
	// After any other error it is not known whether it had: it is to be sent again.
	Send(ctx context.Context, o Operation) (Operation, error)
	// Poll asks how an operation stands that was sent. An error of KindQuota, KindFull, KindInvalid, KindDenied or KindFailed is how it ended. After any
	// other error it is to be asked again.
	Poll(ctx context.Context, o Operation) (Operation, Progress, error)
}

// Set is how a scale set is set up.
type Set struct {
	// Name is the scale set's.
	Name string
	// Image is the reference of the image that new machines are made of, as Change.Image takes it, and ImageName its name for people: the last part.
	Image, ImageName string
	// ImageID is the image itself, where Image is more than that, as a version of a launch template is. Change.Image takes it as well. Else empty.
	ImageID string
	// Model identifies all that new machines are made of: two sets with the same one make the same machines.
	Model string
	// Capacity is how many machines it is to have, Max how many it may, and Min how many it must, 0 where there is no limit. A limit that people set by tag
	// counts.
	Capacity, Min, Max int
	// Zones in each of which machines can be asked for at the same time as in the others; none where the cloud chooses the zone, or that is not
	// known. Then one operation at a time may add machines.
	Zones []string
	// Overprovisions is true where the cloud makes more machines than it is asked for, and takes some away again: which it keeps is known once it is done.
	Overprovisions bool
	// Busy says what the cloud does with the set at present that keeps it from being changed; empty when nothing does.
	Busy string
	// Unfit says why the set must not be touched: it replaces machines by itself, or can't add or delete single ones. Empty when it can be used.
	Unfit string
	// Heals is true where the cloud itself replaces machines that fail.
	Heals bool
	// Version is what the cloud tells a change of the set by, such as an ETag; empty where it has none.
	Version string
}

// Machine is one machine of a scale set.
type Machine struct {
	// ID names it among those of its scale set, for as long as it exists.
	ID string
	// ProviderID is the Node's spec.providerID, and NodeName the Node's name; either may be empty where the cloud can't tell.
	ProviderID, NodeName string
	// Zone that it is in, as the label topology.kubernetes.io/zone has it; empty where there are none.
	Zone string
	// UpToDate reports whether it is made of what new ones are made of.
	UpToDate bool
	// State is how it stands.
	State State
	// Protected is true where people have told the cloud to refuse its deletion. See ScaleSet.Machines.
	Protected bool
	// Aside says that people have set it aside, and what to do about that: it must not be deleted meanwhile. Empty where they have not.
	Aside string
	// Created is when it was made; zero where that is not known.
	Created time.Time
	// Message says what is wrong with a failed one.
	Message string
}

// State is how a machine stands.
type State string

// The states of machines.
const (
	Creating State = "Creating"
	Running  State = "Running"
	Failed   State = "Failed"
	Deleting State = "Deleting"
	Stopped  State = "Stopped"
)

// Change is one change of a scale set: exactly one of Add, Delete and Image is set.
type Change struct {
	// Add is how many machines to add, at most 100, and Zone where, if the cloud lets that be chosen; empty is anywhere.
	Add  int
	Zone string
	// Delete holds the IDs of machines to delete, at most 100. The scale set's capacity goes down by as many.
	Delete []string
	// Image is the reference of the image that machines are made of from now on.
	Image string
	// Token identifies the change: lower case letters and digits, at most 32, unique.
	Token string
}

// MostMachines is how many machines one change adds or deletes at most.
const MostMachines = 100

// Check returns an error of KindInvalid unless exactly one of Add, Delete and Image is set, within bounds, and there is a token.
func (c *Change) Check() error {
	set := 0
	for _, is := range []bool{c.Add != 0, len(c.Delete) > 0, c.Image != ""} {
		if is {
			set++
		}
	}
	if set != 1 || c.Token == "" || c.Add < 0 || c.Add > MostMachines || len(c.Delete) > MostMachines {
		return Errorf(KindInvalid, "a change must have a token, and be one of add, delete and image, of at most %d machines", MostMachines)
	}
	return nil
}

// Operation is a change under way. It is plain data, and kept by the caller.
type Operation struct {
	// Token is the change's.
	Token string
	// State is the provider's memory of it, at most 16 KiB of text.
	State string
}

// maxState bounds Operation.State.
const maxState = 16 << 10

// NewOperation makes an operation whose State is a provider's memory as JSON. KindInvalid: the memory is too large.
func NewOperation(token string, memory any) (Operation, error) {
	text, err := json.Marshal(memory)
	if err != nil {
		return Operation{}, Errorf(KindInvalid, "writing operation %s, %w", token, err)
	}
	if len(text) > maxState {
		return Operation{}, Errorf(KindInvalid, "writing operation %s, its state has %d bytes and must have at most %d: it is about too many machines",
			token, len(text), maxState)
	}
	return Operation{Token: token, State: string(text)}, nil
}

// Read reads the memory that NewOperation was given.
func (o Operation) Read(memory any) error {
	if err := json.Unmarshal([]byte(o.State), memory); err != nil {
		return Errorf(KindInvalid, "reading operation %s, %w", o.Token, err)
	}
	return nil
}

// Progress is how an operation stands.
type Progress struct {
	// Done is true once it has ended well: the machines are asked for, or gone, or the image is set.
	Done bool
	// Added are the IDs of the machines that an operation has added, as far as they are known. All are once it is done. They need not run yet. Those that
	// run may be used before it is done, but for a set that overprovisions.
	Added []string
	// Message says how it goes on, for people.
	Message string
	// After is when it is worth asking again; zero leaves that to the caller.
	After time.Duration
}
