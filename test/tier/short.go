// SPDX-License-Identifier: Apache-2.0

//go:build !all

package tier

const all = false
