// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// daemonSet is an ExtendedDaemonSet of the old version.
//
//go:embed daemonset.yaml
var daemonSet string

const (
	daemonImage   = "moult.dev/demo-daemon"
	brokenVersion = "v1.1.0"
)

// showDaemons gives an ExtendedDaemonSet a version whose canary fails, and then one whose canary passes.
func showDaemons(ctx context.Context, d *demo) {
	d.needMachines()
	d.build(ctx, "./test/demo/upgrade")
	d.start(ctx, cluster.StartDetached, cluster.Options{Machines: d.machines},
		d.version(daemonImage, oldVersion), d.version(daemonImage, brokenVersion, "crash"), d.version(daemonImage, latestVersion))
	d.install(ctx, "")
	d.rolledOut(ctx, "deployment/moult", "-n", operators)

	d.step("Creating an ExtendedDaemonSet of version %s", oldVersion)
	d.kubectl(ctx, daemonSet, "apply", "--server-side", "-f", "-")
	d.try(func() error { return d.follow(ctx, "default") })
	d.machinesRun(ctx, oldVersion)
	w := d.watch(ctx, d.machines)

	d.step("Setting the image to version %s, which crashes: the canary fails, and the other machines keep %s", brokenVersion, oldVersion)
	d.setDaemonImage(ctx, brokenVersion)
	stalled := d.follow(ctx, "default") // A canary that has failed is an error to it.
	eds := until(ctx, d, &edsv1.ExtendedDaemonSet{}, "default", "demo", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.State == edsv1.StateRunning && e.Status.Canary == nil && int(e.Status.Available) == d.machines
	})
	d.try(func() error {
		if !edsv1.IsConditionTrue(eds.Status.Conditions, edsv1.ConditionCanaryFailed) {
			return fmt.Errorf("the canary of a version that crashes has not failed, %w", stalled)
		}
		return nil
	})
	d.show(ctx, "eds", "get", "demo")
	d.machinesRun(ctx, oldVersion)

	d.step("Setting the image to version %s: when the canary has run for five seconds, the other machines follow, one at a time", latestVersion)
	d.setDaemonImage(ctx, latestVersion)
	d.try(func() error { return d.follow(ctx, "default") })
	d.show(ctx, "eds", "get", "demo")
	d.machinesRun(ctx, latestVersion)
	d.try(func() error { return w.tell(ctx, d, 0, false) })
	d.try(func() error {
		if n := w.nodesOf(daemonImage + ":" + brokenVersion); n != 1 {
			return fmt.Errorf("%d nodes had pods of version %s, want that of the canary alone", n, brokenVersion)
		}
		return nil
	})
	d.complete(fmt.Sprintf("%d machines run %s, and one has tried %s", d.machines, latestVersion, brokenVersion), afterDaemons)
}

// afterDaemons says what to try.
const afterDaemons = `
  kubectl eds get demo -o wide
  kubectl eds history demo
  kubectl eds rollback demo
  kubectl moult status --watch
`

// setDaemonImage sets the image of the ExtendedDaemonSet, as a person would.
func (d *demo) setDaemonImage(ctx context.Context, version string) {
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"%s:%s"}]`, daemonImage, version)
	d.show(ctx, "patch", "eds", "demo", "--type=json", "-p", patch)
}
