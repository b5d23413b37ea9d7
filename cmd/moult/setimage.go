// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/setimage"
)

// setImage is the command's name.
const setImage = "set-image"

func newSetImageCommand(streams genericiooptions.IOStreams) *cobra.Command {
	c := newClouds(os.Getenv)
	cmd := setimage.NewCommand(clock.RealClock{}, streams, os.Getenv, c.of)
	v := newVariables(cmd.Flags())
	c.bind(v)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		ignored, err := v.load(os.Getenv)
		return errors.Join(append(ignored, err)...)
	}
	return cmd
}
