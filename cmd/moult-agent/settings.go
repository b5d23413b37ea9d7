// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"moult.dev/moult/internal/agent"
)

// variables says which environment variables stand for which flag, the first that is set first.
type variables map[string][]string

// load takes from the environment what no flag says.
func (v variables) load(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var problems []error
	flags.VisitAll(func(f *pflag.Flag) {
		for _, name := range v[f.Name] {
			value, ok := lookup(name)
			if f.Changed || !ok || value == "" {
				continue
			}
			if err := flags.Set(f.Name, value); err != nil {
				problems = append(problems, fmt.Errorf("$%s: %w", name, err))
			}
			return
		}
	})
	return errors.Join(problems...)
}

// document says in each flag's help which variables stand for it.
func (v variables) document(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if names := v[f.Name]; len(names) > 0 {
			f.Usage += " [$" + strings.Join(names, ", $") + "]"
		}
	})
}

// own are the settings that both commands have: which Node, and how the API server is reached.
type own struct {
	nodeName   string
	kubeconfig string
	readAsNode string
	verbose    bool
}

// nodeVariables are the environment variables of own.
func nodeVariables() variables {
	return variables{"node-name": {"NODE_NAME", "MY_NODE_NAME", "KURED_NODE_ID"}, "kubeconfig": {"KUBECONFIG"}}
}

func (o *own) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.nodeName, "node-name", "", "name of the Node of this host")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how the API server is reached (default: as a Pod, by its service account)")
	flags.StringVar(&o.readAsNode, "read-as-node", string(agent.ReadAsNodeAuto),
		"read the Node as the node itself, which sees no other: auto (where Kubernetes can, 1.36 and newer), always or never")
	flags.BoolVar(&o.verbose, "debug", false, "log more")
}

// complete checks what flags alone can't.
func (o *own) complete() error {
	if strings.TrimSpace(o.nodeName) == "" {
		return errors.New("--node-name must be given, or $NODE_NAME, and not be empty")
	}
	return nil
}

// restConfig finds the API server.
func (o *own) restConfig() (*rest.Config, error) {
	find := rest.InClusterConfig
	if o.kubeconfig != "" {
		find = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.kubeconfig) }
	}
	config, err := find()
	if err != nil {
		return nil, fmt.Errorf("finding the API server (is $KUBECONFIG set?), %w", err)
	}
	config.UserAgent = "moult-agent/" + version
	return config, nil
}
