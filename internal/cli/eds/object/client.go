// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// Client reads and writes the objects of one namespace.
type Client struct {
	*source.Source
	// Namespace is that of the command line; empty is all.
	Namespace string
}

// Connect makes a client for the namespace and the cluster that are meant.
func Connect(config config.Config) (*Client, error) {
	namespace, err := config.Namespace()
	if err != nil {
		return nil, err
	}
	rest, err := config.REST()
	if err != nil {
		return nil, err
	}
	src, err := source.Connect(rest)
	if err != nil {
		return nil, err
	}
	return &Client{Source: src, Namespace: namespace}, nil
}

// Of is the objects of a kind in the namespace.
func (c *Client) Of(k *target.Kind) dynamic.ResourceInterface {
	return c.Client.Resource(k.Resource).Namespace(c.Namespace)
}

// OneName refuses a command line without the name of an ExtendedDaemonSet, or with more.
func OneName(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("the extendeddaemonset name is required")
	case 1:
		return nil
	}
	return errors.New("only one extendeddaemonset name is allowed")
}

// Name reads a name from a command line: NAME, or KIND/NAME.
func Name(k *target.Kind, arg string) (string, error) {
	named, err := target.Parse(arg, k)
	return named.Name, err
}
