// SPDX-License-Identifier: Apache-2.0

//go:build all

package tier

// All reports whether every test runs, with its full counts.
const All = true
