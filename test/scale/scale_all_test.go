// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

import (
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Every kind passes its checks, and needs no more than its limits.
func TestLimits(t *testing.T) {
	log.SetLogger(logr.Discard())
	if err := checkLimits(t.Context(), "limits.yaml", t.Output()); err != nil {
		t.Error(err)
	}
}
