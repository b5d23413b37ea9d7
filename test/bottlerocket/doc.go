// SPDX-License-Identifier: Apache-2.0

// Package bottlerocket makes hosts that only look like those of Bottlerocket: machines of the test cluster, which really reboot,
// and directories, for tests of what speaks to a host.
//
//	program, err := bottlerocket.Build(ctx, dir)
//	host, err := program.Install(ctx, machine, bottlerocket.Options{Interface: v1alpha1.InterfaceUpdateAPI, Version: "1.19.0", Releases: releases})
//	host.SetFault(ctx, state.BootFails, "")
//	…
//	host.Uninstall(ctx)
//
// A host has two partition sets, a repository with releases, updog and, where Options say so, the Update API on /run/api.sock,
// which carries its commands out by updog. A reboot chooses a partition set by the flags of the partition table, as Bottlerocket's
// boot loader does, and shows its version in /etc/os-release before the kubelet starts. What is in memory is lost: the Update
// API's status is uninitialized after a reboot.
//
// What the programs do is in package double; what a host has on its disk, with the list of faults, in package state.
//
// # What is not as on other hosts
//
// Images are names: nothing is fetched or written but the partition table. A minute of `shutdown -r` is a second. Only so much of
// systemctl and shutdown is there as reboots take.
package bottlerocket
