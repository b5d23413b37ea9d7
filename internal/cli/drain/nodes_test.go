// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodeNames(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
		err  string
	}{
		"plain":      {[]string{"a", "b"}, []string{"a", "b"}, ""},
		"with kind":  {[]string{"node/a", "nodes/b", "no/c", "Node/d"}, []string{"a", "b", "c", "d"}, ""},
		"twice":      {[]string{"a", "node/a"}, []string{"a"}, ""},
		"not a node": {[]string{"pod/a"}, nil, `"pod/a" is not the name of a Node: the word before the slash must be node`},
		"slash":      {[]string{"node/a/b"}, nil, `"node/a/b" is not the name of a Node`},
		"empty":      {[]string{"node/"}, nil, `"node/" is not the name of a Node`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nodeNames(tc.args)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("got error %v", err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}
