// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Requests a second that a command may make, and how many at once. The API server's own fairness bounds them as well.
const (
	qps   = 50
	burst = 100
)

// Flags are kubectl's flags for the cluster, namespace and user, as in cli-runtime's ConfigFlags (a test compares them).
// cli-runtime itself would bring kustomize and double the plugin's size.
type Flags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	userExtra []string
}

// NewFlags returns the flags at their defaults.
func NewFlags() *Flags {
	return &Flags{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
}

// Add adds the flags to a command's.
func (f *Flags) Add(flags *pflag.FlagSet) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&f.overrides, flags, names)
	flags.StringVar(&f.rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	flags.StringArrayVar(&f.userExtra, "as-user-extra", nil, "User extras to impersonate for the operation, as key=value.")
	flags.String("cache-dir", "", "Accepted and not used: nothing is cached.")
	_ = flags.MarkHidden("cache-dir") // Accepted, unused.
}

// Load implements Config.
func (f *Flags) Load() (*rest.Config, string, error) {
	extras := map[string][]string{}
	for _, extra := range f.userExtra {
		key, value, ok := strings.Cut(extra, "=")
		if !ok {
			return nil, "", fmt.Errorf("reading --as-user-extra, %q is not key=value", extra)
		}
		extras[key] = append(extras[key], value)
	}
	f.overrides.AuthInfo.ImpersonateUserExtra = extras
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules, &f.overrides)
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	config.QPS, config.Burst = qps, burst
	return config, namespace, nil
}

// Config says which cluster and namespace a command uses.
type Config interface {
	// Load returns the client configuration and the default namespace.
	Load() (*rest.Config, string, error)
}
