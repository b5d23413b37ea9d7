// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// several are rollouts of all kinds.
func several() []view.Rollout {
	return slices.Concat([]view.Rollout{{
		Kind: view.KindNodeRollout, Name: "hosts", PolicyMissing: "there is no ValidatingAdmissionPolicy moult-agent", Version: "1.20.3", State: view.Progressing, Counts: v1alpha1.UnitCounts{Total: 2, Updated: 1, Failed: 1},
		Nodes: []view.Node{{Node: "n1", State: v1alpha1.UnitFailed, Reason: v1alpha1.ReasonNotRebooted}, {Node: "n2", State: v1alpha1.UnitUpdated}},
	}}, steered(), daemonRollouts(), []view.Rollout{servers()})
}

func TestList(t *testing.T) {
	for name, wide := range map[string]bool{"all": false, "wide": true} {
		var out bytes.Buffer
		c := &command{IOStreams: genericiooptions.IOStreams{Out: &out}}
		if err := c.printTable(listRows(several(), wide, wide)); err != nil {
			t.Fatal(err)
		}
		golden(t, "list/"+name, out.Bytes())
	}
}

// TestOutput prints the same rollouts in each format for programs.
func TestOutput(t *testing.T) {
	s := &shown{rollouts: several(), budgets: budgets()}
	for name, format := range map[string]string{
		"name":        flags.Name,
		"jsonpath":    `jsonpath={.apiVersion} {.kind}{"\n"}{range .items[*]}{.apiVersion} {.kind} {.metadata.name} {.reason}{"\n"}{end}`,
		"go-template": `go-template={{range .budgets}}{{.apiVersion}} {{.kind}} {{.metadata.name}} {{.state}}{{"\n"}}{{end}}`,
	} {
		var output flags.Output
		output.Add(&cobra.Command{}, flags.JSON, flags.Name)
		var out bytes.Buffer
		err := output.Set(format)
		if err == nil {
			err = output.Print(&out, newStatusObject(s))
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden(t, "list/output-"+name, out.Bytes())
	}
}

// TestNeeds says what needs a person, and nothing where everything goes on by itself.
func TestNeeds(t *testing.T) {
	used := []view.Budget{
		{Name: "bad", State: view.BudgetInvalid, BlockedBy: []v1alpha1.BudgetBlock{{Gate: v1alpha1.ReasonBudgetInvalid, Message: "spec.windows[0]: no such time zone"}}},
		{Name: "by-turns", State: view.BudgetExhausted, Holders: []v1alpha1.BudgetHolder{{Node: "n1", Cause: v1alpha1.CauseClaimed}}},
		{Name: "by-a-person", State: view.BudgetExhausted, Matched: 3, Unavailable: 1, Holders: []v1alpha1.BudgetHolder{{Node: "n2", Cause: v1alpha1.CauseUnschedulable}}},
	}
	golden(t, "status/needs", drawNeeds(&shown{rollouts: several(), budgets: used}).Text(0, false))
	calm := agents(3, 2)
	calm.Nodes = calm.Nodes[1:]
	retried := agents(1, 1)
	retried.Nodes[0].RetryAt = ago(-time.Minute)
	if l := drawNeeds(&shown{rollouts: []view.Rollout{servers(), calm, retried}, budgets: budgets()}); len(l) > 0 {
		t.Errorf("it needs a person: %s", l.Text(0, false))
	}
}

// TestEvents shows those of the rollout and of its nodes, and no others.
func TestEvents(t *testing.T) {
	event := func(kind, name, reason string, at time.Duration) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name + "." + reason},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Reason: reason, LastTimestamp: *ago(at),
		}
	}
	plan := aPlan("ns", "p", upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionTrue})
	plan.SetUID("uid-p")
	src, _, core := fakes(t, plan)
	late := event("Node", "node", "Rebooted", time.Minute)
	late.Series, late.LastTimestamp = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(now.Add(-time.Second))}, metav1.Time{}
	events := []*corev1.Event{late, event("Node", "node", "NodeReady", 3*time.Minute), event("Node", "other", "NodeReady", time.Hour), event("Plan", "p", "SyncJob", 2*time.Minute)}
	core.PrependReactor("list", "events", func(a ktesting.Action) (bool, runtime.Object, error) {
		list := &corev1.EventList{}
		of := a.(ktesting.ListAction).GetListRestrictions().Fields
		for _, e := range events {
			kind, ofKind := of.RequiresExactMatch("involvedObject.kind")
			if uid, ofUID := of.RequiresExactMatch("involvedObject.uid"); ofKind && kind == e.InvolvedObject.Kind || ofUID && uid == "uid-p" && e.InvolvedObject.Kind == "Plan" {
				list.Items = append(list.Items, *e)
			}
		}
		return true, list, nil
	})
	c := &command{IOStreams: genericiooptions.IOStreams{ErrOut: &bytes.Buffer{}}, clock: clocktesting.NewFakeClock(now)}
	got, err := c.eventsOf(t.Context(), src, source.Object{Unstructured: plan, Kind: source.Plan})
	var reasons []string
	for i := range got {
		reasons = append(reasons, got[i].Reason)
	}
	if want := []string{"NodeReady", "SyncJob", "Rebooted"}; err != nil || !slices.Equal(reasons, want) {
		t.Errorf("%v, %v; want %v", reasons, err, want)
	}
}

// TestTimeout ends a command with an exit code of its own.
func TestTimeout(t *testing.T) {
	waits := func(cmd *cobra.Command, _ []string) error {
		<-cmd.Context().Done()
		return errors.New("a client's own error")
	}
	watches := func(cmd *cobra.Command, _ []string) error {
		<-cmd.Context().Done()
		return nil
	}
	fails := func(*cobra.Command, []string) error { return errors.New("it broke") }
	for name, tc := range map[string]struct {
		timeout time.Duration
		run     func(*cobra.Command, []string) error
		want    string
		code    int
	}{
		"passed":  {time.Nanosecond, waits, "--timeout 1ns has passed", exitTimeout},
		"a watch": {time.Nanosecond, watches, "--timeout 1ns has passed", exitTimeout},
		"failed":  {time.Hour, fails, "it broke", 0},
		"none":    {0, fails, "it broke", 0},
	} {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		err := within(&tc.timeout, tc.run)(cmd, nil)
		var coded exitError
		if errors.As(err, &coded); err == nil || err.Error() != tc.want || coded.code != tc.code {
			t.Errorf("%s: %v, exit code %d", name, err, coded.code)
		}
	}
}

// TestHelp: each command has a help of at most two lines, and examples.
func TestHelp(t *testing.T) {
	root := NewCommand(clocktesting.NewFakeClock(now), genericiooptions.IOStreams{}, nil)
	for _, cmd := range root.Commands() {
		lines := strings.Split(strings.TrimSpace(cmd.Long), "\n")
		if cmd.Short == "" || cmd.Example == "" || len(lines) != 2 {
			t.Errorf("%s has %d lines of help, and examples %q", cmd.Name(), len(lines), cmd.Example)
		}
		for _, line := range lines {
			if len(line) > 150 {
				t.Errorf("%s: %d columns: %s", cmd.Name(), len(line), line)
			}
		}
	}
}

// TestColor: --color decides, and else the terminal, which a test has none of.
func TestColor(t *testing.T) {
	for value, want := range map[string]bool{"": false, "--color=auto": false, "--color=never": false, "--color=always": true} {
		color := &flags.Choice{}
		cmd := &cobra.Command{}
		color.Add(cmd, "color", "", "auto", "always", "never")
		if err := cmd.ParseFlags(strings.Fields(value)); err != nil {
			t.Fatal(err)
		}
		c := &command{IOStreams: genericiooptions.IOStreams{Out: &bytes.Buffer{}}, color: color}
		if got := c.terminal().Colour; got != want {
			t.Errorf("%q: colours %v", value, got)
		}
	}
}
