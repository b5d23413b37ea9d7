// SPDX-License-Identifier: Apache-2.0

// Package preview is `kubectl moult preview`: what a rollout would do, of the cluster's or of a file. It only reads.
//
//	file.go    the rollouts of a manifest, read strictly, with what the cluster knows of it
//	pods.go    what a drain of a node would do to its pods, and which PodDisruptionBudgets would hold it
//	draw.go    what people read
package preview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// command is one call of preview.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config config.Config
	output text.Output

	file      string
	limit     int
	all       bool
	turn      time.Duration
	src       *source.Source
	policy    typedpolicyv1.PolicyV1Interface
	apps      typedappsv1.AppsV1Interface
	namespace string
}

// result is what is shown of one rollout.
type result struct {
	view.Preview
	// Drains says of the first nodes what a drain would do to their pods.
	Drains []drained `json:"drains,omitempty"`
}

// NewCommand makes the command. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, config: cluster}
	cmd := &cobra.Command{
		Use:   "preview ROLLOUT|FILE",
		Short: "Say what a rollout would do: which nodes, in which order, when about, and what a drain would meet there",
		Long: `Say what a rollout would do, if nothing changed but by itself: which nodes start now and why the others wait, in which
order and in which waves, until about when; and for the first nodes which pods a drain would evict, which of them it may
not take, and which PodDisruptionBudgets would hold it.

FILE is a manifest with a Plan, an ExtendedDaemonSet or a NodeRollout (a file that is there, or a name that ends in .yaml, .yml or
.json), which may but need not be in the cluster yet; - is the standard input. Its fields are read strictly: one that the kind does not
have is an error.

Of an ExtendedDaemonSet it says on which nodes the canary of the template would run, in which order the other nodes follow and how
many at once, how many nodes get a first pod, and on which nodes there would be none and why. Of a NodeRollout it says what each host
runs and would be brought to, or how machines of its scale sets would be added and deleted; no cloud is asked, so that of machines of which the
cluster does not tell whether they are outdated all count as such.

When it ends is estimated from the turns that were measured (status.turnSeconds of a Plan or a NodeRollout), or from --turn, by playing
the rollout with the engine that decides it: with its waves, soaks and windows, and with the cluster's NodeDisruptionBudgets.

Nothing is written, and the API server is asked for no dry run.`,
		Example: `  kubectl moult preview k3s-agent -n system-upgrade
  kubectl moult preview -f plan.yaml --all
  kubectl moult preview plan.yaml --turn 6m
  kubectl moult preview eds/node-exporter -n monitoring --turn 30s
  kubectl moult preview nr/bottlerocket --turn 8m
  kustomize build . | kubectl moult preview -f -`,
		Args:              cobra.MaximumNArgs(1),
		SilenceUsage:      true,
		ValidArgsFunction: c.complete,
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.file, "filename", "f", "", "Manifest with the rollout; - is the standard input.")
	flags.IntVar(&c.limit, "nodes", 10, "Of how many nodes to show the pods, and how many of those that wait.")
	flags.BoolVar(&c.all, "all", false, "Show all nodes, and the pods of each, as -o wide does.")
	flags.DurationVar(&c.turn, "turn", 0, "How long a turn takes, for the estimate. 0 is what has been measured.")
	c.output.AddFlag(cmd, text.Wide, text.JSON, text.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) }
	return cmd
}

// complete offers the rollouts, and files where none fits.
func (c *command) complete(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, none := source.Complete(c.config, nil, target.Rollouts...)(cmd, args, prefix)
	if len(args) == 0 && len(names) == 0 {
		return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return names, none
}

func (c *command) run(ctx context.Context, args []string) (err error) {
	name := ""
	switch {
	case len(args) == 0 && c.file == "":
		return errors.New("preview needs the name of a rollout, or a file: see kubectl moult preview --help")
	case len(args) > 0 && c.file != "":
		return errors.New("preview takes the name of a rollout or --filename, not both")
	case len(args) > 0 && isFile(args[0]):
		c.file = args[0]
	case len(args) > 0:
		name = args[0]
	}
	c.all = c.all || c.output.String() == text.Wide
	if c.turn < 0 || c.limit < 0 {
		return errors.New("--turn and --nodes must not be negative")
	}
	if c.src == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	return c.show(ctx, name)
}

func (c *command) connect() (err error) {
	if c.namespace, err = c.config.Namespace(); err != nil {
		return err
	}
	rest, err := c.config.REST()
	if err != nil {
		return err
	}
	if c.src, err = source.Connect(rest); err != nil {
		return err
	}
	if c.policy, err = typedpolicyv1.NewForConfig(rest); err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	if c.apps, err = typedappsv1.NewForConfig(rest); err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	return nil
}

// isFile reports whether an argument names a file and no rollout.
func isFile(arg string) bool {
	if arg == "-" {
		return true
	}
	for _, ending := range []string{".yaml", ".yml", ".json"} {
		if strings.HasSuffix(arg, ending) {
			return true
		}
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// subject is a rollout to look at, a Plan, an ExtendedDaemonSet or a NodeRollout, and what is to be supposed of it.
type subject struct {
	plan  *upgradev1.Plan
	eds   *edsv1.ExtendedDaemonSet
	hosts *v1alpha1.NodeRollout
	view.Supposition
}

// order is that of its strategy.
func (s *subject) order() []v1alpha1.Order {
	var strategy *v1alpha1.Strategy
	switch {
	case s.eds != nil:
		return s.eds.Spec.Strategy.Order
	case s.hosts != nil:
		strategy = s.hosts.Spec.Strategy
	default:
		strategy = s.plan.Spec.Strategy
	}
	if strategy == nil {
		return nil
	}
	return strategy.Order
}

// drains reports whether it drains nodes.
func (s *subject) drains() bool {
	switch {
	case s.plan != nil:
		return s.plan.Spec.Drain != nil
	case s.hosts != nil:
		return s.hosts.Spec.Drain == nil || !s.hosts.Spec.Drain.Disabled
	}
	return false
}

func (c *command) show(ctx context.Context, name string) error {
	all, err := c.subjects(ctx, name)
	if err != nil {
		return err
	}
	nodes, err := c.src.ReadNodes(ctx)
	switch {
	case err != nil:
		return err
	case nodes == nil:
		return errors.New("nodes can't be listed, and without them there is nothing to preview")
	}
	budgets, note, err := c.src.ReadBudgets(ctx)
	if err != nil {
		return err
	}
	now := c.clock.Now()
	gated, noteGates, err := c.gated(ctx, view.See(nil, nodes, budgets, now), nodes)
	if err != nil {
		return err
	}
	own, noteOwn := c.src.ReadOperatorNode(ctx)
	for _, note := range []string{note, noteGates, noteOwn} {
		if note != "" {
			fmt.Fprintln(c.ErrOut, note)
		}
	}
	results := make([]result, 0, len(all))
	for _, s := range all {
		cluster := view.See(nil, nodes, budgets, now)
		cluster.OwnNode(own)
		for node, pods := range gated.pods {
			cluster.PodsOn(node, pods, gated.namespaces)
		}
		r, err := c.preview(ctx, &s, cluster)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	switch {
	case c.output.Structured() && len(results) == 1:
		return c.output.Print(c.Out, results[0])
	case c.output.Structured():
		return c.output.Print(c.Out, map[string]any{"items": results})
	}
	var l text.Page
	for i := range results {
		if i > 0 {
			l.Add()
		}
		c.draw(&l, &results[i], &all[i], now)
	}
	_, err = c.Out.Write(l.Lines.Text(0, text.LookAt(c.Out).Colour))
	return err
}

// gated is what gates of nodes go by that no status lists: the pods by the nodes that they are on, and the labels of namespaces.
type gated struct {
	pods       map[string][]corev1.Pod
	namespaces map[string]labels.Set
}

// gated reads it, where any node has such a gate. Where it can't be read, a note says so.
func (c *command) gated(ctx context.Context, cluster *view.Cluster, nodes []corev1.Node) (g gated, note string, err error) {
	has := map[string]bool{}
	namespaces := false
	for i := range nodes {
		pods, sets := cluster.PodGates(nodes[i].Name)
		if pods {
			has[nodes[i].Name] = true
		}
		namespaces = namespaces || sets
	}
	if len(has) == 0 {
		return g, "", nil
	}
	read, note, err := c.src.ReadGated(ctx, "", namespaces)
	g.pods, g.namespaces = map[string][]corev1.Pod{}, read.Namespaces
	for i := range read.Pods {
		if on := read.Pods[i].Spec.NodeName; has[on] {
			g.pods[on] = append(g.pods[on], read.Pods[i])
		}
	}
	return g, note, err
}

// preview looks at one rollout.
func (c *command) preview(ctx context.Context, s *subject, cluster *view.Cluster) (r result, err error) {
	if byEvictions(s.order()) {
		cluster.Evictions(c.countEvictions(ctx))
	}
	if s.eds != nil {
		daemons, note, err := c.src.ReadDaemons(ctx, []edsv1.ExtendedDaemonSet{*s.eds}, "", func(*edsv1.ExtendedDaemonSet) source.Reach { return source.AllPods })
		if err != nil {
			return r, err
		}
		if note != "" {
			return r, errors.New("pods, revisions and settings of ExtendedDaemonSets can't all be listed, and without them there is nothing to preview")
		}
		r.Preview = cluster.Daemons(daemons).PreviewDaemonSet(s.eds, s.Supposition)
		return r, nil
	}
	if s.hosts != nil {
		r.Preview = cluster.PreviewNodeRollout(s.hosts, s.Supposition)
	} else {
		r.Preview = cluster.Preview(s.plan, s.Supposition)
	}
	if s.drains() {
		r.Drains, err = c.drains(ctx, s, r.Steps)
	}
	return r, err
}

// subjects are those to look at: one of the cluster, or those of the file.
func (c *command) subjects(ctx context.Context, name string) ([]subject, error) {
	if name != "" {
		return c.named(ctx, name)
	}
	all, err := c.read()
	if err != nil {
		return nil, err
	}
	for i := range all {
		s := &all[i]
		s.Turn = c.turn
		switch {
		case s.eds != nil:
			err = c.meetDaemonSet(ctx, s)
		case s.hosts != nil:
			err = c.meetNodeRollout(ctx, s)
		default:
			err = c.meetPlan(ctx, s)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// named is a rollout of the cluster.
func (c *command) named(ctx context.Context, name string) ([]subject, error) {
	named, err := target.Parse(name, target.Rollouts...)
	if err != nil {
		return nil, err
	}
	found, err := c.src.ReadRollouts(ctx, source.Scope{Namespace: c.namespace, Name: named.Name, Kind: named.Kind})
	if err != nil {
		return nil, err
	}
	for _, note := range found.Notes {
		fmt.Fprintln(c.ErrOut, note)
	}
	switch {
	case found.Len() > 1:
		return nil, ambiguous(&found, named.Name)
	case len(found.DaemonSets) > 0:
		return []subject{{eds: &found.DaemonSets[0], Supposition: view.Supposition{Turn: c.turn}}}, nil
	case len(found.NodeRollouts) > 0:
		return []subject{{hosts: &found.NodeRollouts[0], Supposition: view.Supposition{Turn: c.turn}}}, nil
	}
	p := &found.Plans[0]
	return []subject{{plan: p, Supposition: view.Supposition{Unresolved: p.Status.LatestHash == "", Turn: c.turn}}}, nil
}

// ambiguous says that rollouts of several kinds have the name.
func ambiguous(found *source.Rollouts, name string) error {
	var kinds, args []string
	count := map[*target.Kind]int{
		target.Plan: len(found.Plans), target.DaemonSet: len(found.DaemonSets), target.NodeRollout: len(found.NodeRollouts),
	}
	for _, k := range target.Rollouts {
		if count[k] > 0 {
			kinds, args = append(kinds, k.Article+" "+k.Name), append(args, k.Short+"/"+name)
		}
	}
	return fmt.Errorf("there are %s of the name %q: say %s", strings.Join(kinds, " and "), name, strings.Join(args, " or "))
}

// meetPlan adds to a Plan of a file what the cluster knows of it.
func (c *command) meetPlan(ctx context.Context, s *subject) error {
	p := s.plan
	if p.Namespace == "" {
		p.Namespace = c.namespace
	}
	o, err := c.src.Plans(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.New, s.Unresolved = true, true
	case err != nil:
		return source.Explain(err)
	default:
		there := source.DecodePlan(o)
		s.Unresolved = there.Status.LatestHash == "" || !sameRevision(there, p)
		p.UID, p.Status, p.CreationTimestamp, p.Generation = there.UID, there.Status, there.CreationTimestamp, there.Generation
		p.Annotations = merged(there.Annotations, p.Annotations)
	}
	return nil
}

// meetDaemonSet adds to an ExtendedDaemonSet of a file what the cluster knows of it.
func (c *command) meetDaemonSet(ctx context.Context, s *subject) error {
	d := s.eds
	if d.Namespace == "" {
		d.Namespace = c.namespace
	}
	o, err := c.src.DaemonSets(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.New = true
	case err != nil:
		return source.ExplainOf(target.DaemonSet, err)
	default:
		there := source.DecodeDaemonSet(o)
		d.UID, d.Status, d.CreationTimestamp, d.Generation = there.UID, there.Status, there.CreationTimestamp, there.Generation
		d.Annotations = merged(there.Annotations, d.Annotations)
	}
	return nil
}

// meetNodeRollout adds to a NodeRollout of a file what the cluster knows of it.
func (c *command) meetNodeRollout(ctx context.Context, s *subject) error {
	r := s.hosts
	r.Namespace = ""
	o, err := c.src.NodeRollouts().Get(ctx, r.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.New = true
	case err != nil:
		return source.ExplainOf(target.NodeRollout, err)
	default:
		there := source.DecodeNodeRollout(o)
		r.UID, r.Status, r.CreationTimestamp, r.Generation = there.UID, there.Status, there.CreationTimestamp, there.Generation
		r.Annotations = merged(there.Annotations, r.Annotations)
	}
	return nil
}

func byEvictions(order []v1alpha1.Order) bool {
	return slices.ContainsFunc(order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst })
}
