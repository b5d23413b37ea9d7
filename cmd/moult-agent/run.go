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
	"go.uber.org/zap/zapcore"
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

// host makes the host. It is called for the known interfaces only.
func (s *settings) host(protocol v1alpha1.HostProtocol, hostInterface string) (host.Host, error) {
	switch hostInterface {
	case v1alpha1.InterfaceUpdog:
		root := rootBottlerocket
		if strings.HasPrefix(protocol.InterfaceLabel, "thar.amazonaws.com/") {
			root = rootDogswatch
		}
		return host.NewUpdog(cmp.Or(s.hostRoot, root), s.bootIDFile), nil
	case v1alpha1.InterfaceUpdateAPI:
		return host.NewUpdateAPI(s.socket, s.bootIDFile), nil
	}
	return host.NewSentinel(host.SentinelOptions{
		Root: s.hostRoot, File: s.sentinelFile, Command: s.sentinelCommand,
		RebootCommand: s.rebootCommand, RebootSignal: s.rebootSignal, BootIDFile: s.bootIDFile,
	})
}

func (s *settings) run(cmd *cobra.Command) error {
	level := zapcore.InfoLevel
	if s.verbose {
		level = zapcore.DebugLevel
	}
	log := zap.New(zap.Level(level), zap.WriteTo(cmd.ErrOrStderr()))
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
	ctx := cmd.Context()
	if s.probeAddress != "" {
		if _, err := serveHealth(ctx, s.probeAddress); err != nil {
			return err
		}
	}
	log.Info("starting", "version", version, "node", s.nodeName)
	err = a.Run(ctx)
	log.Info("ending", "node", s.nodeName)
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
