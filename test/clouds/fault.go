// SPDX-License-Identifier: Apache-2.0

package clouds

import "slices"

// FaultKind is what goes wrong.
type FaultKind string

// Faults of the wire, which Serve applies to calls by the names that its double gives them.
const (
	// Throttled, Conflict, Denied and Unavailable: the double answers so, and does nothing.
	Throttled   FaultKind = "Throttled"
	Conflict    FaultKind = "Conflict"
	Denied      FaultKind = "Denied"
	Unavailable FaultKind = "Unavailable"
	// DropBefore: the connection ends, and nothing was done. DropAfter: it was done, and the answer is lost.
	DropBefore FaultKind = "DropBefore"
	DropAfter  FaultKind = "DropAfter"
	// Twice: the request is delivered twice, one after the other, and the second answer is returned.
	Twice FaultKind = "Twice"
	// Truncated: it was done, and half of the answer arrives.
	Truncated FaultKind = "Truncated"
)

// Faults of the world, whose calls are Add (Scale and a change of Capacity too), Delete, and Heal, which replaces what was deleted without decrement.
const (
	// Quota: Add is refused with ErrQuota.
	Quota FaultKind = "Quota"
	// Slow: what is begun takes ten times as long.
	Slow FaultKind = "Slow"
	// OperationFails: the task ends with ErrFailed. Machines that were added are Failed, and count; those to be deleted stay, as does the capacity.
	OperationFails FaultKind = "OperationFails"
	// NeverJoins: a machine runs, and has no Node ever. JoinsSick: its Node is NotReady. Times counts machines.
	NeverJoins FaultKind = "NeverJoins"
	JoinsSick  FaultKind = "JoinsSick"
)

// wireFaults are those that Serve applies.
var wireFaults = []FaultKind{Throttled, Conflict, Denied, Unavailable, DropBefore, DropAfter, Twice, Truncated}

// Fault is something that goes wrong.
type Fault struct {
	Kind FaultKind
	// Call is the name of the call that it hits. Empty: each.
	Call string
	// Set is the name of the set that it is about. On the wire these are calls whose URL or form has the last part of it. Empty: each.
	Set string
	// Times is how often it does. 0: until ClearFaults.
	Times int
}

// Fault lets something go wrong from now on. Several faults hit one after the other, in the order in which they were given.
func (w *World) Fault(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, &f)
}

// ClearFaults lets all go well from now on. What has gone wrong stays so.
func (w *World) ClearFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = nil
}

// fault reports whether one of these faults hits a call about a set, and uses it up.
func (w *World) fault(call, set string, kind FaultKind) bool {
	return w.nextFault(call, func(name string) bool { return name == set }, []FaultKind{kind}) != ""
}

func (w *World) nextFault(call string, about func(set string) bool, kinds []FaultKind) FaultKind {
	for i, f := range w.faults {
		if !slices.Contains(kinds, f.Kind) || f.Call != "" && f.Call != call || f.Set != "" && !about(f.Set) {
			continue
		}
		if f.Times == 1 {
			w.faults = slices.Delete(w.faults, i, i+1)
		} else if f.Times > 1 {
			f.Times--
		}
		return f.Kind
	}
	return ""
}

// ClearFaultsOf lets all go well from now on with a set.
func (w *World) ClearFaultsOf(set string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = slices.DeleteFunc(w.faults, func(f *Fault) bool { return f.Set == set })
}
