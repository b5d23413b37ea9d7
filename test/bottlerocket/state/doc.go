// SPDX-License-Identifier: Apache-2.0

// Package state is what a host that only looks like one of Bottlerocket has on its disk: two partition sets and the flags by
// which the boot loader chooses among them, the repository of releases, settings, the faults that are injected, and a
// journal of all that was done. The programs of package double read and write it, and so do tests.
package state
