// SPDX-License-Identifier: Apache-2.0

// Package drain has the commands that the Job of a Plan runs before the change: `moult cordon` and `moult drain` wait until the claim on the
// Node says that the operator has cordoned or drained the node. They need the right to get nodes, and write nothing.
package drain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
)

const (
	// poll is the time between two reads of the Node.
	poll = time.Second
	// requestTimeout bounds one read.
	requestTimeout = 10 * time.Second
)

// NewCommands makes the commands cordon and drain.
func NewCommands(clk clock.Clock, streams genericiooptions.IOStreams) []*cobra.Command {
	return []*cobra.Command{
		newCommand(clk, streams, "cordon", "cordoned", isCordoned),
		newCommand(clk, streams, "drain", "drained", isDrained),
	}
}

func isCordoned(c *v1alpha1.Claim) bool { return c.Cordoned != nil }

func isDrained(c *v1alpha1.Claim) bool { return c.Drained != nil }

func newCommand(clk clock.Clock, streams genericiooptions.IOStreams, name, done string, isDone func(*v1alpha1.Claim) bool) *cobra.Command {
	w := waiter{clock: clk, out: streams.Out, errOut: streams.ErrOut, done: done, isDone: isDone}
	cmd := &cobra.Command{
		Use:   name + " NODE --turn=TURN",
		Short: "Wait until the operator has " + done + " a node for the Job of a Plan",
		Long: "Wait until the operator has " + done + ` a node for the Job of a Plan.

Jobs run it with the arguments of kubectl, and ignore those: the operator does what the Plan says. By hand use kubectl.`,
		Args:               cobra.ExactArgs(1),
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := rest.InClusterConfig()
			if err != nil {
				return fmt.Errorf("finding the API server, %w", err)
			}
			config.Timeout = requestTimeout
			core, err := typedcorev1.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("making a client, %w", err)
			}
			return w.wait(cmd.Context(), core.Nodes(), args[0])
		},
	}
	cmd.Flags().StringVar(&w.turn, "turn", "", "The turn to wait for.")
	_ = cmd.MarkFlagRequired("turn")
	return cmd
}

// waiter waits for one turn.
type waiter struct {
	clock       clock.Clock
	out, errOut io.Writer
	turn, done  string
	isDone      func(*v1alpha1.Claim) bool
}

// wait returns when the turn's claim says that the operator is done. Until then it prints why the drain waits.
func (w *waiter) wait(ctx context.Context, nodes typedcorev1.NodeInterface, name string) error {
	for last := ""; ; {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		text := ""
		switch {
		case err == nil && w.isOver(n):
			fmt.Fprintf(w.out, "node/%s %s\n", name, w.done)
			return nil
		case err == nil:
			text = progress(n)
		case drain.IsTransient(err):
			text = err.Error()
		default:
			return fmt.Errorf("reading node %s, %w", name, err)
		}
		if text != "" && text != last {
			last = text
			fmt.Fprintln(w.errOut, text)
		}
		timer := w.clock.NewTimer(poll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting until node %s is %s, %w", name, w.done, ctx.Err())
		case <-timer.C():
		}
	}
}

func (w *waiter) isOver(n *corev1.Node) bool {
	claims, _ := v1alpha1.ParseClaims(n.Annotations) // Claims that can't be read say nothing.
	return slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool { return c.Turn == w.turn && w.isDone(&c) })
}

// progress returns the message of the node's condition about its drain, without the rollout's name before it.
func progress(n *corev1.Node) string {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue {
			_, text, _ := strings.Cut(c.Message, ": ")
			return text
		}
	}
	return ""
}
