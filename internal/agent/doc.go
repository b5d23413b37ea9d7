// SPDX-License-Identifier: Apache-2.0

// Package agent is the node's half of a host update. The operator writes an order on the Node. The agent acknowledges the order, makes the
// host carry it out, and writes the result on the same Node. An order to look for updates needs no acknowledgement. The result of a reboot also
// says whether there is a further update:
//
//	node.go      reads and watches the Node, and patches it
//	protocol.go  what operator and agent have written on the Node, and the next step        pure
//	report.go    what the agent writes on the Node                                          pure
//	run.go       the loop: acknowledge, start work, write the result
//	work.go      the work on the host, in its own goroutine
//
// The agent disrupts nothing unless the operator asks for it. Its memory is the Node's annotations and the host itself, so the process may
// end between any two steps, and the next process continues. Each write is a patch of the agent's own keys with the resourceVersion that the
// decision was made on. After a conflict the agent decides again. In steady state the agent has one watch of its own Node and sends no other
// request.
package agent
