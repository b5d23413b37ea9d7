// SPDX-License-Identifier: Apache-2.0

// Package clouds is clouds for tests: scale sets in memory, whose machines come and go as in a real cloud, and on demand go wrong as there. The
// folders below put the wire of one cloud each in front of it, so that programs speak to it with that cloud's own SDK.
//
// A World holds the sets. Its Hosts make the Node of each machine come and go: simulated ones, real machines of package cluster, or none.
package clouds
