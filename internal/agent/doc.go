// SPDX-License-Identifier: Apache-2.0

// Package agent is the node's half of a host update. The operator says on the Node what it wants; the agent takes it up, has the
// host do it, and says how it went, on the same Node:
//
//	Node ──watch──▶ hear ──next──▶ acknowledge ──▶ work on the host ──▶ succeeded or failed ──patch──▶ Node
//
// It does nothing that disrupts unless the operator asks for it. Its memory is the Node's annotations and the host itself, so that it
// may end between any two steps: the next process goes on. Each write is a patch of its own keys alone with the resourceVersion that the
// decision was made on; whoever loses decides again. Between words of the operator and checks of the host it makes no request but one
// watch of its own Node.
package agent
