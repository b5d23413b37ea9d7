// SPDX-License-Identifier: Apache-2.0

package docs

import "fmt"

// Peer returns the page of the names of another operator, with the tables that are checked.
func Peer(peer, page, tables string) string {
	return fmt.Sprintf("# Compatibility: %s\n\nEvery name of %s, what Moult does with it, and the test that proves it. `x.*` is all below `x`. "+
		"The tables are checked: each named test exists, and no name is missing. How to move: [from %s](../../moving-from/%s.md).\n\n%s", peer, peer, peer, page, tables)
}
