// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net/http"
	"testing"
)

func TestHealth(t *testing.T) {
	var alive error
	address, stop, err := serveHealth(t.Context(), "127.0.0.1:0", func() error { return alive })
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
	alive = errors.New("stuck")
	if code, body := get("/healthz"); code != http.StatusInternalServerError || body != "stuck\n" {
		t.Errorf("%d: %s", code, body)
	}
	if code, _ := get("/metrics"); code != http.StatusNotFound {
		t.Errorf("%d for another path", code)
	}
	if _, _, err := serveHealth(t.Context(), address, nil); err == nil {
		t.Error("an address that is taken is no error")
	}
	stop()
	if response, err := http.Get("http://" + address + "/healthz"); err == nil {
		t.Error("it answers after its end")
		_ = response.Body.Close()
	}
}
