// SPDX-License-Identifier: Apache-2.0

// Package tier says how much the tests try: what every change must pass, or everything there is.
//
// Build with the tag "all" for everything. A test that runs only then is in a file with that tag.
package tier

// All reports whether every test runs, with its full counts.
const All = all
