// SPDX-License-Identifier: Apache-2.0

// Package drain is the command line of one-shot drains: `moult drain`, `moult cordon` and `moult uncordon`. They take
// the flags of their namesakes of kubectl 1.37 and do the same, so that Moult's own image can stand in for kubectl's in
// the Jobs of a Plan, and a person finds what they know.
//
// They need no more of the API than those Jobs' service account has: get and patch nodes (list with --selector), get,
// list and delete pods, create pods/eviction, get daemonsets; and, with --wait-for-volume-detach, list volumeattachments and
// get persistentvolumeclaims. Without the right to patch nodes/status they only warn. They watch nothing: they look again
// every second.
//
// Differences from kubectl:
//   - a node that could not be cordoned is not drained, and cordon and uncordon fail if a node does (kubectl says 0);
//   - pods of critical priority go last (see package internal/drain);
//   - a pod that comes to the node while it is drained, although it is cordoned, is not chased;
//   - an API server that fails during the drain is asked again, until --timeout;
//   - --dry-run=server asks once, and fails if a budget would hold a pod;
//   - a drain that fails or is stopped releases the node: what it has cordoned is schedulable again, the label that
//     --exclude-from-load-balancers has put on is off, and the node's conditions say that the drain is over;
//   - --on-timeout says what happens when the time is over, and the exit code which end it was;
//   - --wait-for-volume-detach waits for volumes, too;
//   - drain says in the node's conditions how it goes, and records in an annotation whose pods it evicts;
//   - run by a Plan's Job, cordon and drain mark the node as cordoned by the Plan, unless a person had cordoned it.
//
// What carries the mark of the Plan is undone also if an earlier attempt of the Job has put it there, and what a
// person did stays. An attempt that is killed undoes nothing: the next one does, or the controller in the end.
package drain

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

// requestTimeout bounds a request where --request-timeout doesn't: an API server that hangs must not outlast --timeout.
const requestTimeout = time.Minute

// NewCommands makes the commands drain, cordon and uncordon, to be mounted under a root.
func NewCommands(clk clock.Clock, streams genericiooptions.IOStreams) []*cobra.Command {
	var commands []*cobra.Command
	for _, create := range []func(*command) *cobra.Command{newDrain, newCordon, newUncordon} {
		commands = append(commands, create(&command{clock: clk, IOStreams: streams, environment: environment{os.Getenv, os.ReadFile}}))
	}
	return commands
}

// command is what the three share: which nodes of which cluster, and whether anything is written.
type command struct {
	genericiooptions.IOStreams
	clock       clock.Clock
	environment environment

	connect  func() (client.Client, error)
	selector string
	dryRun   flags.DryRun
	// chunk is the page size of lists. Only drain has a flag for it.
	chunk int64
}

// complete gives the cobra command the shared flags, completion, and an end by signal.
func (c *command) complete(cmd *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	cluster := config.NewFlags()
	cluster.Add(cmd.Flags())
	if c.connect == nil {
		c.connect = func() (client.Client, error) { return connect(cluster) }
	}
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "Label selector of the nodes, instead of their names.")
	c.dryRun.Add(cmd)
	cmd.DisableFlagsInUseLine = true
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = c.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.Flags().Changed("selector") {
			return fmt.Errorf("%s needs the name of a node, or --selector: see %s --help", cmd.Name(), cmd.CommandPath())
		}
		if len(args) > 0 && c.selector != "" {
			return fmt.Errorf("%s takes names of nodes or --selector, not both", cmd.Name())
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err := run(ctx, args)
		if err == nil || ctx.Err() == nil {
			return err
		}
		// The cause names the signal, unless whoever mounted the command heard it first. It is context.Canceled either way.
		cause := context.Cause(ctx).Error()
		if cause == context.Canceled.Error() {
			cause = "told to end"
		}
		return fmt.Errorf("%s stopped, %s: %w", cmd.Name(), cause, err)
	}
	return cmd
}

// completeNodes offers the names of nodes that are not on the command line yet.
func (c *command) completeNodes(cmd *cobra.Command, args []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
	var nodes corev1.NodeList
	api, err := c.connect()
	if err != nil || api.List(cmd.Context(), &nodes) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for i := range nodes.Items {
		if name := nodes.Items[i].Name; strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// connect makes a client that knows the few kinds of a drain, and so needs no discovery.
func connect(cluster config.Config) (client.Client, error) {
	rest, err := cluster.REST()
	if err != nil {
		return nil, err
	}
	if rest.Timeout == 0 {
		rest.Timeout = requestTimeout
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, storagev1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	mapper.Add(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), meta.RESTScopeRoot)
	return client.New(drain.NeverWait(rest), client.Options{Scheme: scheme, Mapper: mapper})
}

// Where a pod learns which Plan its Job belongs to, and its own namespace, which is the Plan's.
const (
	planVariable      = "SYSTEM_UPGRADE_PLAN_NAME"
	namespaceVariable = "POD_NAMESPACE"
	namespaceFile     = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// environment is what the command knows of the process that runs it.
type environment struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
}

// holder is the rollout that the command cordons for, or empty when a person runs it.
func (e environment) holder() (string, error) {
	plan := e.getenv(planVariable)
	if plan == "" {
		return "", nil
	}
	namespace := e.getenv(namespaceVariable)
	if namespace == "" {
		content, err := e.readFile(namespaceFile)
		if err != nil {
			return "", fmt.Errorf("finding the namespace of Plan %s, %w", plan, err)
		}
		namespace = strings.TrimSpace(string(content))
	}
	return node.Holder("Plan", types.NamespacedName{Namespace: namespace, Name: plan}), nil
}
