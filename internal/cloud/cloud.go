// SPDX-License-Identifier: Apache-2.0

// Package cloud is what a rollout needs of a cloud: scale sets, whose machines are added and deleted one by one. Each cloud is a folder below, with the
// same files: cloud.go, find.go, describe.go, machines.go, operation.go, add.go, delete.go, image.go, error.go.
//
// Nothing here waits. Prepare makes an operation of a change: it may read, and changes nothing. The caller writes the operation down. Send may be
// repeated, and takes effect once. Poll is repeated until the operation is done, also by another process.
package cloud

import (
	"context"
	"encoding/json"
	"time"
)

// Cloud is one cloud, with the credentials of one NodeRollout. It is safe for concurrent use.
type Cloud interface {
	// Find finds the scale sets of machines with these provider ids (Node.spec.providerID). The answer leaves out machines of no scale set, of another
	// cloud, or of another account.
	Find(ctx context.Context, providerIDs []string) (map[string]Location, error)
	// ScaleSet is the scale set of that name. It sends no request.
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
	// Describe reads the settings. KindNotFound: there is no scale set of that name.
	Describe(ctx context.Context) (Set, error)
	// Machines reads all machines, also those being made or deleted. inTurn are ids of machines in turns: a cloud that tells Machine.Protected of one
	// machine a request reads it of these alone.
	Machines(ctx context.Context, inTurn ...string) ([]Machine, error)
	// Prepare makes an operation of a change of the set as it was described, and changes nothing. KindFull: the set would have more machines than its
	// maximum. KindInvalid: the set can't be changed so.
	Prepare(ctx context.Context, s *Set, c Change) (Operation, error)
	// Send sends a prepared operation, and returns it with its new state. An operation that was sent before, by this process or by another, takes no
	// effect a second time. KindConflict: the set was changed since the operation was prepared. The operation has had no effect and never will: prepare
	// another one. KindQuota, KindFull: it has had no effect, and can be sent again. After any other error its effect is not known: send it again.
	Send(ctx context.Context, o Operation) (Operation, error)
	// Poll reads the progress of an operation that was sent. An error of KindQuota, KindFull, KindInvalid, KindDenied or KindFailed is how it ended. After
	// any other error, poll again.
	Poll(ctx context.Context, o Operation) (Operation, Progress, error)
}

// Set is the settings of a scale set.
type Set struct {
	// Name is the scale set's.
	Name string
	// Image is the reference of the image of new machines, as Change.Image takes it, and ImageName its name for people: the last part.
	Image, ImageName string
	// ImageID is the image itself, where Image refers to more, such as a version of a launch template. Change.Image takes it as well. Else empty.
	ImageID string
	// Model identifies all that new machines are made of: two sets with the same one make the same machines.
	Model string
	// Capacity is the desired number of machines. Max and Min are its limits, 0 where there is none. Max respects the limit that people set by a tag.
	Capacity, Min, Max int
	// Zones are those that can be asked for machines, at the same time. None: the cloud chooses the zone, and one operation at a time may add
	// machines.
	Zones []string
	// Overprovisions is true where the cloud makes more machines than it is asked for, and deletes some of them in the end.
	Overprovisions bool
	// Busy says why the set can't be changed now, such as another change under way; empty when it can.
	Busy string
	// Unfit says why the set must not be touched: it replaces machines by itself, or can't add or delete single ones. Empty when it can be used.
	Unfit string
	// Heals is true where the cloud itself replaces machines that fail.
	Heals bool
	// Version changes with each change of the set, such as an ETag; empty where the cloud has none.
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
	// State of the machine.
	State State
	// Protected is true where people have told the cloud to refuse its deletion. See ScaleSet.Machines.
	Protected bool
	// Aside says that people have set the machine aside, and what to do about it. It must not be deleted meanwhile. Empty where they have not.
	Aside string
	// Created is when it was made; zero where that is not known.
	Created time.Time
	// Message says what is wrong with a failed one.
	Message string
}

// State is the state of a machine.
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
	// State is what the provider keeps of it, at most 16 KiB of text.
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

// Progress is the progress of an operation.
type Progress struct {
	// Done is true once the operation has succeeded: the machines are being made, or gone, or the image is set.
	Done bool
	// Added are the known IDs of the machines that the operation has added: all of them once it is done. They need not run yet. Those that run may be used
	// before it is done, except in a set that overprovisions.
	Added []string
	// Message tells people about the progress.
	Message string
	// After is how long to wait before the next poll; zero leaves that to the caller.
	After time.Duration
}
