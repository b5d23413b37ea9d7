// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// The machines' network:
//
//	this machine          machine-1                      machine-2
//	bridge 10.213.0.1 ──┬─ eth0 10.213.0.11             ┌─ eth0 10.213.0.12
//	 (API server)       │   cni0 10.244.1.1 ── pods     │   cni0 10.244.2.1 ── pods
//	                    └──────────────────────────────┘
//
// Each machine's interface is one end of a pair whose other end is on the bridge, and goes away with the machine's network namespace. No
// packet is forwarded beyond the bridge, and this machine's own routes and rules stay as they are.

// Hardware addresses are fixed. A bridge that is given none has that of one of its ports, and so another one whenever a machine
// reboots or a pod ends: whoever knows the old one then speaks to no one, for many seconds.
const (
	bridgeHardware    = "02:6d:6c:74:00:01"
	podBridgeHardware = "02:6d:6c:74:02:01"
)

// hardware is the hardware address of the machine with that index.
func hardware(index int) string { return fmt.Sprintf("02:6d:6c:74:01:%02x", index) }

// podSubnet is the range of pod addresses of one machine, the same in every cluster.
func podSubnet(index int) string { return fmt.Sprintf("10.244.%d.0/24", index) }

func (s *supervisor) makeBridge(ctx context.Context) error {
	name := "mlt" + s.spec.ID
	if err := s.updateRecord(func(rec *record) { rec.Bridge = name }); err != nil {
		return err
	}
	address := netip.PrefixFrom(s.record.Subnet.Addr().Next(), s.record.Subnet.Bits())
	return errors.Join(
		ip(ctx, "link", "add", name, "address", bridgeHardware, "type", "bridge"),
		ip(ctx, "addr", "add", address.String(), "dev", name),
		ip(ctx, "link", "set", name, "up"),
	)
}

// machineIP is the address of the machine with that index, counted from one.
func (s *supervisor) machineIP(index int) string {
	address := s.record.Subnet.Addr().As4()
	address[3] = byte(10 + index)
	return netip.AddrFrom4(address).String()
}

// link is the end of a machine's cable that is on the bridge.
func (m *machine) link() string { return m.supervisor.record.Bridge + "m" + strconv.Itoa(m.index) }

// plugIn connects a machine's namespaces, given by their first process, to the bridge.
func (m *machine) plugIn(ctx context.Context, pid int) error {
	// The last boot's may still be there: the kernel removes it in its own time.
	_ = ip(ctx, "link", "del", m.link())
	err := ip(ctx, "link", "add", m.link(), "type", "veth", "peer", "name", "eth0", "address", hardware(m.index), "netns", strconv.Itoa(pid))
	if err != nil {
		return err
	}
	if err := ip(ctx, "link", "set", m.link(), "master", m.supervisor.record.Bridge); err != nil {
		return err
	}
	return ip(ctx, "link", "set", m.link(), "up")
}

// removeLinks removes a bridge and every interface named after it.
func removeLinks(ctx context.Context, bridge string) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range links {
		if !strings.HasPrefix(link.Name, bridge) {
			continue
		}
		if err := ip(ctx, "link", "del", link.Name); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func ip(ctx context.Context, args ...string) error { return runTool(ctx, "ip", args...) }

// runTool runs a system program to its end.
func runTool(ctx context.Context, name string, args ...string) error {
	path := findTool(name)
	if path == "" {
		return fmt.Errorf("%s is not installed", name)
	}
	output, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s %s, %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

// configureNetwork is what a machine does with its end of the cable.
func (c machineConfig) configureNetwork(ctx context.Context) error {
	errs := []error{
		ip(ctx, "link", "set", "lo", "up"),
		ip(ctx, "link", "add", "cni0", "address", podBridgeHardware, "type", "bridge"),
		ip(ctx, "addr", "add", c.Address, "dev", "eth0"),
		ip(ctx, "link", "set", "eth0", "up"),
		// A packet needs a route before its destination is translated.
		ip(ctx, "route", "add", serviceCIDR, "via", c.Gateway),
	}
	for pods, machine := range c.Routes {
		// The supervisor may have been faster, with a machine that was added in this moment.
		errs = append(errs, ip(ctx, "route", "replace", pods, "via", machine))
	}
	// In place of kube-proxy, for the one service that pods cannot do without.
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		errs = append(errs, runTool(ctx, "iptables", "-t", "nat", "-A", chain,
			"-d", serviceIP, "-p", "tcp", "--dport", "443", "-j", "DNAT", "--to-destination", c.API))
	}
	errs = append(errs, writeSysctl("/proc/sys/net/ipv4/ip_forward", "1"))
	return errors.Join(errs...)
}
