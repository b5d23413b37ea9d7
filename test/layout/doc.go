// SPDX-License-Identifier: Apache-2.0

// Package layout holds tests of the source tree itself: which folder may import which, and what every file looks like.
// The linter says much of it too, and sooner; these tests also see what is imported indirectly, and need no linter.
package layout
