// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
)

// settings are those of moult-agent run.
type settings struct {
	own
	checkInterval time.Duration
	rebootGrace   time.Duration
	probeAddress  string
	hostRoot      string
	socket        string
	bootIDFile    string

	sentinelFile    string
	sentinelCommand string
	rebootMethod    string
	rebootCommand   string
	rebootSignal    string
}

// Where the root of a host is, for hosts that are reached through it.
const (
	rootBottlerocket = "/.bottlerocket/rootfs"
	rootDogswatch    = "/.thar/rootfs"
)

// defaultSignal tells systemd to reboot.
const defaultSignal = "SIGRTMIN+5"

// The ways to reboot a host with a sentinel.
const (
	byCommand = "command"
	bySignal  = "signal"
)

func newRunCommand(lookup func(string) (string, bool)) *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Have the host do what the operator asks for on its Node",
		Long: `Have the host do what the operator asks for on its Node, until a signal ends it.

The value of the Node's label bottlerocket.aws/updater-interface-version (or thar.amazonaws.com/platform-version, or
moult.dev/updater-interface-version) says how the host is reached:

  1.0.0     Bottlerocket's updog, in the root of the host
  2.0.0     Bottlerocket's Update API, on its socket
  sentinel  any Linux: a file or a command says that a reboot is needed, and a command or a signal reboots

Where [$NAME] stands an environment variable does for the flag.`,
		Args: cobra.NoArgs,
	}
	known := s.bind(cmd.Flags())
	known.document(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(known.load(cmd.Flags(), lookup), s.complete()); err != nil {
			return err
		}
		return s.run(cmd.Context(), cmd)
	}
	return cmd
}

func (s *settings) bind(flags *pflag.FlagSet) variables {
	s.own.bind(flags)
	flags.DurationVar(&s.checkInterval, "check-interval", agent.DefaultCheckInterval, "time between two looks for updates, up to a fifth more or less at random")
	flags.DurationVar(&s.rebootGrace, "reboot-grace", agent.DefaultRebootGrace,
		"how long the host may not say after a boot what it runs, and stay up after it was told to reboot before the log says so")
	flags.StringVar(&s.probeAddress, "health-probe-bind-address", "", "address of /healthz, such as :8081 (default: none)")
	flags.StringVar(&s.hostRoot, "host-root", "", "root of the host, for updog (default "+rootBottlerocket+", or "+rootDogswatch+
		" for Dogswatch's label) and for the sentinel (default: the namespaces of process 1, which needs hostPID)")
	flags.StringVar(&s.socket, "api-socket", host.UpdateAPISocket, "socket of the Update API")
	flags.StringVar(&s.bootIDFile, "boot-id-file", host.DefaultBootIDFile, "file with the id of the present boot")
	flags.StringVar(&s.sentinelFile, "reboot-sentinel-file", host.DefaultSentinelFile, "file on the host that is there when a reboot is needed")
	flags.StringVar(&s.sentinelCommand, "reboot-sentinel-command", "", "command on the host that ends with 0 when a reboot is needed, in place of the file")
	flags.StringVar(&s.rebootCommand, "reboot-command", host.DefaultRebootCommand, "command on the host that reboots it")
	flags.StringVar(&s.rebootSignal, "reboot-signal", "", "signal to process 1 of the host that reboots it, such as "+defaultSignal+", in place of the command")
	flags.StringVar(&s.rebootMethod, "reboot-method", "", "command or signal (default: signal if there is one, else command)")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "reboot-sentinel" { // As kured calls it.
			name = "reboot-sentinel-file"
		}
		return pflag.NormalizedName(name)
	})
	known := nodeVariables()
	known["reboot-sentinel-file"] = []string{"KURED_REBOOT_SENTINEL"}
	known["reboot-sentinel-command"] = []string{"KURED_REBOOT_SENTINEL_COMMAND"}
	known["reboot-command"] = []string{"KURED_REBOOT_COMMAND"}
	known["reboot-signal"] = []string{"KURED_REBOOT_SIGNAL"}
	known["reboot-method"] = []string{"KURED_REBOOT_METHOD"}
	return known
}

// complete checks what flags alone can't.
func (s *settings) complete() error {
	problems := []error{s.own.complete()}
	if s.checkInterval < time.Second {
		problems = append(problems, fmt.Errorf("--check-interval must be 1s or more, not %s", s.checkInterval))
	}
	if s.rebootGrace < time.Second {
		problems = append(problems, fmt.Errorf("--reboot-grace must be 1s or more, not %s", s.rebootGrace))
	}
	switch s.rebootMethod {
	case "":
	case byCommand:
		s.rebootSignal = ""
	case bySignal:
		if s.rebootSignal == "" {
			s.rebootSignal = defaultSignal
		}
	default:
		problems = append(problems, fmt.Errorf("--reboot-method must be %s or %s, not %q", byCommand, bySignal, s.rebootMethod))
	}
	return errors.Join(problems...)
}

// host makes the host. It is called for the interfaces that there are, and for no other.
func (s *settings) host(protocol v1alpha1.HostProtocol, hostInterface string) (host.Host, error) {
	switch hostInterface {
	case v1alpha1.InterfaceUpdog:
		root := s.hostRoot
		if root == "" {
			root = rootBottlerocket
			if strings.HasPrefix(protocol.InterfaceLabel, "thar.amazonaws.com/") {
				root = rootDogswatch
			}
		}
		return host.NewUpdog(host.UpdogOptions{Root: root, BootIDFile: s.bootIDFile}), nil
	case v1alpha1.InterfaceUpdateAPI:
		return host.NewUpdateAPI(host.UpdateAPIOptions{Socket: s.socket, Clock: clock.RealClock{}, BootIDFile: s.bootIDFile}), nil
	}
	return host.NewSentinel(host.SentinelOptions{
		Root: s.hostRoot, File: s.sentinelFile, Command: s.sentinelCommand,
		RebootCommand: s.rebootCommand, RebootSignal: s.rebootSignal, BootIDFile: s.bootIDFile,
	})
}

func (s *settings) run(ctx context.Context, cmd *cobra.Command) error {
	log := logger(cmd.ErrOrStderr(), s.verbose)
	config, err := s.restConfig()
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		NodeName: s.nodeName, Config: config, ReadAsNode: agent.ReadAsNode(s.readAsNode), Host: s.host,
		CheckInterval: s.checkInterval, RebootGrace: s.rebootGrace, Log: log,
	})
	if err != nil {
		return err
	}
	if s.probeAddress != "" {
		_, stop, err := serveHealth(ctx, s.probeAddress, a.Alive)
		if err != nil {
			return err
		}
		defer stop()
	}
	log.Info("starting", "version", version, "node", s.nodeName)
	err = a.Run(ctx)
	log.Info("ending", "node", s.nodeName)
	return err
}
