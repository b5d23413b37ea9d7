// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
)

var now = metav1.Time{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}

// stepped is a clock on which no time has to pass.
type stepped struct{ *clocktesting.FakeClock }

func (c stepped) NewTimer(d time.Duration) clock.Timer {
	t := c.FakeClock.NewTimer(d)
	c.Step(d)
	return t
}

func claiming(n *corev1.Node, turn string, change func(*v1alpha1.Claim)) *corev1.Node {
	c := v1alpha1.Claim{Rollout: "Plan/system-upgrade/k3s", UID: "u", Turn: turn, Since: now}
	if change != nil {
		change(&c)
	}
	text, err := v1alpha1.FormatClaims([]v1alpha1.Claim{c})
	if err != nil {
		panic(err)
	}
	n = n.DeepCopy()
	n.Annotations = map[string]string{v1alpha1.AnnotationClaims: text}
	return n
}

// TestWait looks at the node as often as needed, and says what holds up its drain.
func TestWait(t *testing.T) {
	cordoned := func(c *v1alpha1.Claim) { c.Cordoned = &now }
	drained := func(c *v1alpha1.Claim) { c.Cordoned, c.Drained = &now, &now }
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	held := claiming(bare, "t1", cordoned)
	held.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Message: "Plan/system-upgrade/k3s: 1 pod left"}}
	unreadable := bare.DeepCopy()
	unreadable.Annotations = map[string]string{v1alpha1.AnnotationClaims: "{"}
	for name, tc := range map[string]struct {
		command string
		answers []any
		out     string
		errOut  string
		err     string
	}{
		"cordoned": {command: "cordon", answers: []any{bare, claiming(bare, "t1", nil), claiming(bare, "t1", cordoned)}, out: "node/node-1 cordoned\n"},
		"drained": {
			command: "drain", answers: []any{bare, unreadable, claiming(bare, "t0", drained), held, held, claiming(bare, "t1", drained)},
			out: "node/node-1 drained\n", errOut: "1 pod left\n",
		},
		"an API server that does not answer": {
			command: "drain", answers: []any{errors.New("no answer"), errors.New("no answer"), claiming(bare, "t1", drained)},
			out: "node/node-1 drained\n", errOut: "no answer\n",
		},
		"without the right to get nodes": {
			command: "drain", answers: []any{apierrors.NewForbidden(corev1.Resource("nodes"), "node-1", errors.New("no"))},
			err: `reading node node-1, nodes "node-1" is forbidden: no`,
		},
		"stopped": {command: "drain", answers: []any{held}, errOut: "1 pod left\n", err: "waiting until node node-1 is drained, context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			api := fake.NewClientset()
			api.PrependReactor("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
				answer := tc.answers[0]
				if tc.answers = tc.answers[1:]; len(tc.answers) == 0 && name == "stopped" {
					cancel()
				}
				if err, ok := answer.(error); ok {
					return true, nil, err
				}
				return true, answer.(*corev1.Node), nil
			})
			var out, errOut bytes.Buffer
			var clk clock.Clock = stepped{clocktesting.NewFakeClock(now.Time)}
			if name == "stopped" {
				clk = clocktesting.NewFakeClock(now.Time)
			}
			w := waiter{clock: clk, out: &out, errOut: &errOut, turn: "t1", done: tc.command + "ed", isDone: isDrained}
			if tc.command == "cordon" {
				w.isDone = isCordoned
			}
			err := w.wait(ctx, api.CoreV1().Nodes(), "node-1")
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff([]string{tc.out, tc.errOut, tc.err}, []string{out.String(), errOut.String(), text}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestArguments are those that a Job gives: kubectl's, and the turn.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{
		{"drain", "node-1", "--pod-selector", "!upgrade.cattle.io/controller", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout", "5m",
			"--grace-period", "-1", "--disable-eviction=true", "--skip-wait-for-delete-timeout", "60", "--turn", "t1"},
		{"cordon", "node-1", "--turn", "t1"},
	} {
		for _, cmd := range NewCommands(clocktesting.NewFakeClock(now.Time), genericiooptions.NewTestIOStreamsDiscard()) {
			if cmd.Name() != args[0] {
				continue
			}
			if err := cmd.ParseFlags(args[1:]); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"node-1"}, cmd.Flags().Args()); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if turn := cmd.Flag("turn").Value.String(); turn != "t1" {
				t.Errorf("turn is %q", turn)
			}
		}
	}
}
