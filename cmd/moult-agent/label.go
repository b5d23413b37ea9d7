// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
)

// labellerRoot is where the labeller sees the host.
const labellerRoot = "/.host"

func newLabelCommand(lookup func(string) (string, bool)) *cobra.Command {
	o := &own{}
	var root, socket string
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "label",
		Short: "Put the label that names the host's interface on the Node of a Bottlerocket host",
		Long: `Put the label bottlerocket.aws/updater-interface-version on the Node of a Bottlerocket host that has none:

  2.0.0  where the Update API answers, and is of Bottlerocket 0.4.1 or newer
  1.0.0  where there is updog alone

A label that is there is never changed, and no label is put on other hosts. It goes on until a signal ends it, for there is
no end to a DaemonSet, and looks again now and then.

Where [$NAME] stands an environment variable does for the flag.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVar(&root, "host-root", labellerRoot, "root of the host, or of the part of it that is needed: run/api.sock and usr/bin/updog")
	flags.StringVar(&socket, "api-socket", "", "socket of the Update API (default: run/api.sock below the root)")
	flags.DurationVar(&interval, "look-interval", agent.DefaultCheckInterval, "time between two looks, up to a fifth more or less at random")
	known := nodeVariables()
	known.document(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := known.load(flags, lookup); err != nil {
			return err
		}
		if err := o.complete(); err != nil {
			return err
		}
		config, err := o.restConfig()
		if err != nil {
			return err
		}
		if socket == "" {
			socket = filepath.Join(root, host.UpdateAPISocket)
		}
		log := logger(cmd.ErrOrStderr(), o.verbose)
		l, err := agent.NewLabeller(agent.LabellerOptions{
			NodeName: o.nodeName, Config: config, ReadAsNode: agent.ReadAsNode(o.readAsNode), LookInterval: interval, Log: log,
			API:   host.NewUpdateAPI(host.UpdateAPIOptions{Socket: socket, Clock: clock.RealClock{}}).Version,
			Updog: host.NewUpdog(host.UpdogOptions{Root: root}).Present,
		})
		if err != nil {
			return err
		}
		log.Info("starting", "version", version, "node", o.nodeName)
		return l.Run(cmd.Context())
	}
	return cmd
}
