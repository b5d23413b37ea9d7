// SPDX-License-Identifier: Apache-2.0

package azure_test

import (
	"encoding/json"
	"net/http"
)

// hidden copies a page of machines without those that have failed.
func hidden(w http.ResponseWriter, answer *http.Response) {
	defer answer.Body.Close()
	var page struct {
		Value    []map[string]any `json:"value"`
		NextLink string           `json:"nextLink,omitempty"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	kept := []map[string]any{}
	for _, vm := range page.Value {
		if properties, ok := vm["properties"].(map[string]any); !ok || properties["provisioningState"] != "Failed" {
			kept = append(kept, vm)
		}
	}
	page.Value = kept
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.StatusCode)
	_ = json.NewEncoder(w).Encode(page)
}
