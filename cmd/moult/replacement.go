// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/controller/replacement"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
)

// replacements sets up what looks after NodeRollouts with replacement, and makes those that Ducklett's flags ask for. No cloud is spoken to before
// there is one.
func (s *settings) replacements(ctx context.Context, m ctrl.Manager, f *fleet.Fleet, recorder *events.Recorder) error {
	live, err := client.New(drain.NeverWait(m.GetConfig()), client.Options{Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	pods, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	o := replacement.Options{
		NodeName: s.nodeName, Threads: s.Threads, Clouds: s.clouds.of, Plane: controlplane.New(live, controlplane.Certificates(s.etcdCertificates)),
	}
	if len(s.duckletRollouts) > 0 {
		if err := (&keeper{client: m.GetClient(), rollouts: s.duckletRollouts}).SetupWithManager(m); err != nil {
			return fmt.Errorf("setting up what keeps the NodeRollouts of Ducklett, %w", err)
		}
	}
	return replacement.NewController(clock.RealClock{}, m.GetClient(), live, pods.CoreV1(), f, recorder, o).SetupWithManager(ctx, m)
}
