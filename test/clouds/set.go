// SPDX-License-Identifier: Apache-2.0

package clouds

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// What a World answers to calls that it refuses. Such a call has done nothing.
var (
	// ErrNotFound: there is no set, or no machine, of that name.
	ErrNotFound = errors.New("not found")
	// ErrExists: a set or machine of that name is there already.
	ErrExists = errors.New("exists already")
	// ErrFull: the set would have more machines than its Max.
	ErrFull = errors.New("the set is at its maximum")
	// ErrMin: the set would have fewer machines than its Min.
	ErrMin = errors.New("the set is at its minimum")
	// ErrQuota: the account may have no more machines. Only the fault Quota causes it.
	ErrQuota = errors.New("the quota is exhausted")
	// ErrInvalid: the call makes no sense.
	ErrInvalid = errors.New("invalid")
	// ErrFailed is what a task ends with that the fault OperationFails has hit.
	ErrFailed = errors.New("the operation has failed")
)

// Set is a scale set: machines that are made alike.
type Set struct {
	Name string
	// Image is what new machines are made of, and Model numbers all that they are made of. It goes up with each change of Image.
	Image string
	Model int
	// Capacity is how many machines there are to be, without those that are Deleting. Max is 0 where there is no limit.
	Capacity, Min, Max int
	// Version goes up with each change of the set.
	Version int
	// Zones that machines are spread over. Without any, machines have none.
	Zones []string
	// Labels that the Nodes of machines have, which are made from now on.
	Labels map[string]string
	// Tags of the set, as people see them.
	Tags map[string]string
	// Busy is for the doubles to show. A World takes calls all the same.
	Busy bool
	// Settings are a double's own.
	Settings map[string]string
}

func (s *Set) clone() Set {
	c := *s
	c.Zones = slices.Clone(s.Zones)
	c.Labels, c.Tags, c.Settings = maps.Clone(s.Labels), maps.Clone(s.Tags), maps.Clone(s.Settings)
	return c
}

// same reports whether two states of a set differ in nothing that a cloud's ETag would tell apart.
func (s *Set) same(o *Set) bool {
	return s.Image == o.Image && s.Model == o.Model && s.Capacity == o.Capacity && s.Min == o.Min && s.Max == o.Max && s.Busy == o.Busy &&
		slices.Equal(s.Zones, o.Zones) && maps.Equal(s.Labels, o.Labels) && maps.Equal(s.Tags, o.Tags) && maps.Equal(s.Settings, o.Settings)
}

// The states of machines.
const (
	Creating = "Creating"
	Running  = "Running"
	Failed   = "Failed"
	Deleting = "Deleting"
)

// Machine is one machine of a set.
type Machine struct {
	// ID names it among those of its set. No other machine of the set has it ever again, unless a caller asks for it by name.
	ID, Set string
	// Zone it is in; empty in a set without zones.
	Zone string
	// Image and Model are what it was made of.
	Image string
	Model int
	// State is Creating, Running, Failed or Deleting.
	State string
	// Created is when it was asked for.
	Created time.Time
	// Protected is for the doubles to show; Scale leaves such a machine alone. See World.EditMachine.
	Protected bool
	// ProviderID and NodeName are what Options.Identify says.
	ProviderID, NodeName string
	// Message says what is wrong with it.
	Message string
	// Labels of its Node, beside that of the zone.
	Labels map[string]string
	// Sick is true for one whose Node joins, and is NotReady.
	Sick bool
}

func (m *Machine) clone() Machine {
	c := *m
	c.Labels = maps.Clone(m.Labels)
	return c
}
