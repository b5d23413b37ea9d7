// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"regexp"
	"strings"
	"testing"
)

// isInstance is what the API takes for the ID of an instance. It refuses a whole request for another one.
var isInstance = regexp.MustCompile(`^i-[a-z0-9]{1,17}$`)

// FuzzProviderID finds provider ids, which a kubelet writes, that would make a request for all machines fail.
func FuzzProviderID(f *testing.F) {
	for _, id := range []string{
		"aws:///eu-west-1a/i-0123456789abcdef0", "aws:///eu-west-1a/i-", "aws://i-1", "aws:///x/i-" + strings.Repeat("0", 99), "aws:///x/i-\n", "aws:///x/i-a b",
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if match := providerID.FindStringSubmatch(id); match != nil && !isInstance.MatchString(match[1]) {
			t.Errorf("%q is asked for", match[1])
		}
	})
}
