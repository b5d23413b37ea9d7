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
// A host has two sets of partitions, a repository with releases, updog and, where Options say so, the Update API on /run/api.sock.
// A reboot boots the set that is next, and shows its version in /etc/os-release before the kubelet starts. What is in memory is
// lost: the Update API's status is uninitialized after a reboot.
//
// Package double is the programs. Package state is what a host has on its disk, and the list of faults. It is a package of its own
// so that the program on the machines stays small.
//
// Images are names, and nothing is fetched. A minute of `shutdown -r` is a second. systemctl and shutdown know only reboots.
package bottlerocket
