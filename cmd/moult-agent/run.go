// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
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

Where the help of a flag shows [$NAME], an environment variable may be used in place of the flag.`,
		Args: cobra.NoArgs,
	}
	s.bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(s.load(cmd.Flags(), lookup), s.complete()); err != nil {
			return err
		}
		return s.run(cmd)
	}
	return cmd
}

// host makes the host for the value of the Node's label. Dogswatch's label may have any value.
func (s *settings) host(protocol v1alpha1.HostProtocol, value string) (host.Host, error) {
	switch {
	case value == v1alpha1.InterfaceSentinel:
		return host.NewSentinel(s.sentinel), nil
	case value == v1alpha1.InterfaceUpdateAPI:
		return host.NewUpdateAPI(s.socket, s.sentinel.BootIDFile), nil
	case strings.HasPrefix(protocol.InterfaceLabel, "thar.amazonaws.com/"):
		return host.NewUpdog(cmp.Or(s.sentinel.Root, rootDogswatch), s.sentinel.BootIDFile), nil
	case value == v1alpha1.InterfaceUpdog:
		return host.NewUpdog(cmp.Or(s.sentinel.Root, rootBottlerocket), s.sentinel.BootIDFile), nil
	}
	return nil, fmt.Errorf("label %s has the value %q, which names no interface that this agent knows: these are %s, %s, %s",
		protocol.InterfaceLabel, value, v1alpha1.InterfaceUpdog, v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceSentinel)
}

func (s *settings) run(cmd *cobra.Command) (err error) {
	s.agent.Log = zap.New(zap.WriteTo(cmd.ErrOrStderr()))
	s.agent.Host = s.host
	s.agent.RequirePolicy = s.kubeconfig == "" // The policy is for the account of Pods.
	if s.agent.Config, err = s.restConfig(); err != nil {
		return err
	}
	a, err := agent.New(s.agent)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if s.probeAddress != "" {
		if _, err := serveHealth(ctx, s.probeAddress); err != nil {
			return err
		}
	}
	s.agent.Log.Info("starting", "version", version, "node", s.agent.NodeName)
	err = a.Run(ctx)
	s.agent.Log.Info("ending", "node", s.agent.NodeName)
	return err
}

// serveHealth answers GET /healthz until the context ends. It returns the address on which it listens.
func serveHealth(ctx context.Context, address string) (served string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("listening for probes, %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), nil
}
