// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"testing"
)

func TestHealth(t *testing.T) {
	address, err := serveHealth(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode, string(body)
	}
	if code, body := get("/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("%d: %s", code, body)
	}
	if code, _ := get("/metrics"); code != http.StatusNotFound {
		t.Errorf("%d for another path", code)
	}
	if _, err := serveHealth(t.Context(), address); err == nil {
		t.Error("an address that is taken is no error")
	}
}
