// SPDX-License-Identifier: Apache-2.0

package cloud

import "testing"

// Credentials go to an endpoint: no one on the way may read them.
func TestEndpoint(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"https://management.usgovcloudapi.net": true, "http://127.0.0.1:8080": true, "http://[::1]:1/": true, "http://localhost:1": true,
		"http://management.azure.com": false, "http://10.0.0.1": false, "http://127.0.0.1.example.com": false, "management.azure.com": false, "ftp://127.0.0.1": false, ":": false,
	} {
		if _, err := Endpoint(endpoint); (err == nil) != ok {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
