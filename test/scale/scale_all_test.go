// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Every kind passes its checks over a few nodes.
func TestScale(t *testing.T) {
	log.SetLogger(logr.Discard())
	for _, args := range []string{
		"--kind plan --concurrency 10 --pod-seconds 0.2 --guarded --idle 5s",
		"--kind daemonset --idle 5s",
		"--kind hostupdate --concurrency 10 --reboot-seconds 0.2 --idle 5s --check-seconds 2",
		"--kind replacement --cloud azure --machine-seconds 0.2 --idle 5s --check-seconds 2",
	} {
		t.Run(args, func(t *testing.T) {
			o, err := parse(append([]string{"--nodes", "60"}, strings.Fields(args)...))
			if err != nil {
				t.Fatal(err)
			}
			if err := run(t.Context(), o, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
}
