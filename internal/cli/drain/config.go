// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/drain"
)

// requestTimeout bounds a request where --request-timeout doesn't: an API server that hangs must not outlast --timeout.
const requestTimeout = time.Minute

// config says which cluster, by kubectl's flags, by a kubeconfig file, or by the pod that the command runs in. It has
// the flags of cli-runtime's ConfigFlags (a test compares them) without that package, which brings kustomize and with
// it 27 MB to a binary that every Plan Job pulls.
type config struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	userExtra []string
}

func (c *config) addFlags(flags *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
	flags.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	flags.StringArrayVar(&c.userExtra, "as-user-extra", nil, "User extras to impersonate for the operation, as key=value.")
	flags.String("cache-dir", "", "Accepted and not used: nothing is cached.")
}

// client makes a client that knows the few kinds of a drain, and so has nothing to discover.
func (c *config) client() (client.Client, error) {
	for _, extra := range c.userExtra {
		key, value, ok := strings.Cut(extra, "=")
		if !ok {
			return nil, fmt.Errorf("reading --as-user-extra, %q is not key=value", extra)
		}
		if c.overrides.AuthInfo.ImpersonateUserExtra == nil {
			c.overrides.AuthInfo.ImpersonateUserExtra = map[string][]string{}
		}
		c.overrides.AuthInfo.ImpersonateUserExtra[key] = append(c.overrides.AuthInfo.ImpersonateUserExtra[key], value)
	}
	rest, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides).ClientConfig()
	if err != nil {
		return nil, err
	}
	if rest.Timeout == 0 {
		rest.Timeout = requestTimeout
	}
	rest.QPS, rest.Burst = 50, 100

	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(policyv1.AddToScheme(scheme))
	utilruntime.Must(storagev1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	mapper.Add(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), meta.RESTScopeRoot)
	return client.New(drain.NeverWait(rest), client.Options{Scheme: scheme, Mapper: mapper})
}
