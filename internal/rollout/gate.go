// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// gatesOpen starts nothing while a health gate of a budget is closed. Claimed nodes continue: one of them may be the cause
// of the closed gate, and to stop it would keep the gate closed forever.
func gatesOpen(p *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.Claimed {
		return "", ""
	}
	for _, a := range p.budgets(c) {
		if len(a.gates) > 0 {
			return a.gates[0].Gate, a.gates[0].Message
		}
		if block, ok := a.NodeBlocks[c.Node]; ok {
			return block.Gate, a.says(block.Message)
		}
	}
	return "", ""
}
