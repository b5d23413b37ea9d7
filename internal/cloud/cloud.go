// SPDX-License-Identifier: Apache-2.0

// Package cloud is what a rollout needs of a cloud: scale sets whose machines are added and deleted one by one. Each cloud is a folder below.
//
//	cloud.go       the interface
//	operation.go   what operations of all clouds have in common
//	error.go       the kinds of errors
//
// Nothing here waits. Prepare makes an operation of a change: it may read, and changes nothing. The caller records the operation. Send may be
// repeated, and takes effect once. Poll is repeated until the operation is done, also by another process.
package cloud

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Cloud is one cloud, with the credentials of one NodeRollout. It is safe for concurrent use.
type Cloud interface {
	// Find returns the names of the scale sets of machines, by provider id (Node.spec.providerID). The answer leaves out machines of no scale set, of another
	// cloud, or of another account. After an error it has what was found until then.
	Find(ctx context.Context, providerIDs []string) (map[string]string, error)
	// ScaleSet is the scale set of that name. It sends no request.
	ScaleSet(name string) ScaleSet
	// Look is ScaleSet for one look at the set. It reads the settings and the machines once, and all its methods but Send judge by these.
	Look(name string) ScaleSet
}

// ScaleSet is a set of machines that are made alike: a virtual machine scale set, an Auto Scaling group, a managed instance group.
type ScaleSet interface {
	// Describe reads the settings. KindNotFound: there is no scale set of that name.
	Describe(ctx context.Context) (Set, error)
	// Machines reads all machines, also those being made or deleted.
	Machines(ctx context.Context) ([]Machine, error)
	// Prepare makes an operation of a change of the set as it was described, and changes nothing. KindFull: the set would have more machines than its
	// maximum. KindInvalid: this change can't be made.
	Prepare(ctx context.Context, s *Set, c Change) (Operation, error)
	// Send sends a prepared operation, and returns it with its new state. An operation that was sent before, by this process or by another, has no second
	// effect. KindConflict: the set was changed since the operation was prepared. The operation has had no effect and never will: prepare another one.
	// KindQuota, KindFull: it has had no effect, and can be sent again. After any other error its effect is not known: send it again.
	Send(ctx context.Context, o Operation) (Operation, error)
	// Poll reads the progress of an operation that was sent. An error of KindQuota, KindFull, KindInvalid, KindDenied or KindFailed is how it ended.
	// After any other error, poll again.
	Poll(ctx context.Context, o Operation) (Operation, Progress, error)
}

// Set is the settings of a scale set.
type Set struct {
	// Name is the scale set's.
	Name string
	// Image is the reference of the image of new machines, as Change.Image takes it, and ImageName its short name for messages.
	Image, ImageName string
	// ImageID is the image itself, where Image refers to more, such as a version of a launch template. Change.Image takes it as well. Else empty.
	ImageID string
	// Model identifies all that new machines are made of: sets with the same Model make the same machines.
	Model string
	// Capacity is the desired number of machines. Max and Min are its limits, 0 where there is none. Max respects the tag TagMax, but not on GCP.
	Capacity, Min, Max int
	// Zones are those in which machines can be added. Then each addition knows its machines, and several may run at once. None: the cloud chooses the zone,
	// and another addition may begin when the machines of the last one are known.
	Zones []string
	// Overprovisions is true where the cloud makes more machines than requested, and deletes some of them later.
	Overprovisions bool
	// Busy says why the set can't be changed now, such as another change under way; empty when it can.
	Busy string
	// BusyByOthers is true if Busy is never about what Moult has under way.
	BusyByOthers bool
	// Unfit says why the set must not be touched: it replaces machines by itself, or can't add or delete single ones. Empty when it can be used.
	Unfit string
	// Version changes with each change of the set, such as an ETag; empty where the cloud has none.
	Version string
}

// TagMax is the tag of a scale set with a maximum of machines, below the cloud's own.
const TagMax = "max"

// LimitTo sets the maximum by the value of TagMax. An invalid value makes the set unfit.
func (s *Set) LimitTo(tag string) {
	n, err := strconv.Atoi(strings.TrimSpace(tag))
	if err != nil || n < 1 {
		s.Unfit = cmp.Or(s.Unfit, fmt.Sprintf("its tag %s is %q, which is no number of machines", TagMax, tag))
	} else if s.Max == 0 || n < s.Max {
		s.Max = n
	}
}

// Machine is one machine of a scale set.
type Machine struct {
	// ID identifies the machine in its scale set, while it exists.
	ID string
	// ProviderID is the Node's spec.providerID, and NodeName the Node's name; either is empty where the cloud does not provide it.
	ProviderID, NodeName string
	// Zone that it is in, as the label topology.kubernetes.io/zone has it; empty where there are none.
	Zone string
	// UpToDate is true if the machine has the present model of its set.
	UpToDate bool
	// State of the machine.
	State State
	// Protected is true where the machine is protected from deletion in the cloud. See Protector.
	Protected bool
	// Aside says why the machine must not be deleted although it is not protected, and what to do about it. Else it is empty.
	Aside string
	// Created is when it was made; zero where that is not known.
	Created time.Time
	// Message says what is wrong with a failed machine.
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
	// Add is how many machines to add, at most 100. Zone is their zone, where the cloud allows a choice; empty is any zone.
	Add  int    `json:"add,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Delete holds the IDs of machines to delete, at most 100. The scale set's capacity is lowered by as many.
	Delete []string `json:"delete,omitempty"`
	// Image is the reference of the image that machines are made of from now on.
	Image string `json:"image,omitempty"`
	// Token identifies the change: lower case letters and digits, at most 32, unique.
	Token string `json:"-"`
}

// Progress is the progress of an operation.
type Progress struct {
	// Done is true once the operation has succeeded: the machines are being made, or gone, or the image is set.
	Done bool
	// Added are the known IDs of the machines that the operation has added: all of them once it is done. They need not run yet. Those that run may be
	// used before it is done, except in a set that overprovisions.
	Added []string
}

// Suspender is a ScaleSet whose cloud replaces machines to balance zones, unless that is suspended.
type Suspender interface {
	// Suspend stops the balancing. With on false it resumes what Moult suspended, also in another process. Both may be repeated.
	Suspend(ctx context.Context, on bool) error
}

// Protector is a ScaleSet whose cloud needs a request for each machine to read whether it is protected from deletion. Machines leaves that out.
type Protector interface {
	Protected(ctx context.Context, id string) (bool, error)
}

// Seen are answers that a look has read, by what was read. They must not be changed. It is nil outside of looks, and keeps nothing then.
type Seen[K comparable, V any] map[K]V

// Read returns the answer that is kept, or else reads it.
func (s Seen[K, V]) Read(key K, read func() (V, error)) (V, error) {
	if answer, ok := s[key]; ok {
		return answer, nil
	}
	answer, err := read()
	if err == nil && s != nil {
		s[key] = answer
	}
	return answer, err
}

// Value is what a pointer in the answer of a cloud points to, or the zero value for nil. So it reads through parts that are missing.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Endpoint reads the URL of a cloud's API. Credentials are sent there, so it must be an https URL, or an http one of this machine.
func Endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return nil, fmt.Errorf("%q must be an https URL, or an http one of this machine", text)
	}
	return u, nil
}
