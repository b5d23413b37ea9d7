// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"time"
)

// hostOptions say what to measure of host updates.
type hostOptions struct {
	rebootSeconds float64
	checkSeconds  float64
	podsPerNode   int
}

func (o *hostOptions) bind(flags *flag.FlagSet) {
	flags.Float64Var(&o.rebootSeconds, "reboot-seconds", 2, "hostupdate: how long a host is away when it reboots")
	flags.Float64Var(&o.checkSeconds, "check-seconds", 10, "hostupdate: how often agents check while idleness is watched; replacement: how often the cloud is asked then")
	flags.IntVar(&o.podsPerNode, "pods-per-node", 2, "hostupdate, replacement: how many pods there are to evict, for each node")
}

func (o *hostOptions) validate() error {
	if o.rebootSeconds < 0 || o.checkSeconds <= 0 || o.podsPerNode < 0 {
		return errors.New("--check-seconds must be positive, and --reboot-seconds and --pods-per-node may not be negative")
	}
	return nil
}

// checkInterval is that of agents by default.
const checkInterval = 30 * time.Minute

func (o *hostOptions) away() time.Duration {
	return time.Duration(o.rebootSeconds * float64(time.Second))
}

// often is the time between two checks while idleness is watched.
func (o *hostOptions) often() time.Duration {
	return time.Duration(o.checkSeconds * float64(time.Second))
}

// idealHosts is how long an update would take if only reboots took time.
func (o *options) idealHosts(nodes int) time.Duration {
	return time.Duration(roundsOf(nodes, o.concurrency)) * o.hosts.away()
}

// hostPatience bounds each stage.
func (o *options) hostPatience(nodes int) time.Duration {
	if o.timeout > 0 {
		return o.timeout
	}
	return 3*time.Minute + 4*o.idealHosts(nodes) + time.Duration(nodes)*200*time.Millisecond
}
