// SPDX-License-Identifier: Apache-2.0

package drain

// What a process that drains a node exits with when the drain's time is over and it was told what then happens, so that
// whoever runs it can tell that end from a failure that another attempt may mend. They are far from 1, which is every other
// failure, and from 125 on, where shells and container runtimes have theirs.
const (
	// ExitTimedOut: the time is over and the drain has halted. Another attempt is not wanted.
	ExitTimedOut = 43
	// ExitSkipped: the time is over and the node is skipped. It was given back.
	ExitSkipped = 44
)
