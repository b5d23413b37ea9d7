// SPDX-License-Identifier: Apache-2.0

package source

import (
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
)

// Requests a second that a command may make, and how many at once. The API server's own fairness bounds them as well.
const (
	qps   = 50
	burst = 100
)

// Config says which cluster and namespace a command uses.
type Config interface {
	// Load returns the client configuration and the default namespace.
	Load() (*rest.Config, string, error)
}

// Flags are kubectl's flags for the cluster, namespace and user.
type Flags struct{ *genericclioptions.ConfigFlags }

// NewFlags returns the flags at their defaults.
func NewFlags() *Flags {
	return &Flags{genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag()}
}

// Load implements Config.
func (f *Flags) Load() (*rest.Config, string, error) {
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, "", err
	}
	config.QPS, config.Burst = qps, burst
	return config, namespace, nil
}
