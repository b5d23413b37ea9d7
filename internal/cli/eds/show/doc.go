// SPDX-License-Identifier: Apache-2.0

// Package show is what `kubectl eds` shows: get, get-ers, pods, canary pods and history, once or with each change.
//
//	object, pods, nodes ──▶ rows ──▶ table, -o json|yaml|wide|name      once
//	feed                ──▶ rows ──▶ those that are new or different    --watch
package show
