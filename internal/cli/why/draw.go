// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// draw writes it all: the node, the rollouts, and the budgets.
func draw(w *view.Why, now time.Time) text.Lines {
	var l text.Page
	drawNode(&l, &w.Node, now)
	for i := range w.Rollouts {
		l.Add()
		drawPart(&l, w, &w.Rollouts[i], now)
	}
	if len(w.Rollouts) == 0 {
		l.Add()
		drawOthers(&l, w)
	}
	for i := range w.Budgets {
		l.Add()
		drawBudget(&l, &w.Budgets[i], w.Node.Name, now)
	}
	return l.Lines
}

// ago is since when something is so, in few letters.
func ago(t *metav1.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return " for " + text.Since(t, now)
}

func drawNode(l *text.Page, n *view.Facts, now time.Time) {
	head := text.Line{text.Plain.Of("Node "), text.Bold.Of(n.Name)}
	if n.Ready {
		head = append(head, text.Green.Of("  ready"), text.Plain.Of(ago(n.ReadySince, now)))
	} else {
		head = append(head, text.Red.Of("  not ready"), text.Plain.Of(ago(n.ReadySince, now)))
		if n.ReadyMessage != "" {
			head = append(head, text.Plain.Of(": "+n.ReadyMessage))
		}
	}
	l.Add(head...)
	if n.Deleting != nil {
		l.Add(text.Red.Of("  being deleted"), text.Plain.Of(ago(n.Deleting, now)))
	}
	switch {
	case n.Unschedulable && n.CordonedBy == "":
		l.Add(text.Yellow.Of("  cordoned"), text.Plain.Of(" by a person or another tool: it stays so after a turn, and counts as unavailable"))
	case n.Unschedulable:
		l.Add(text.Yellow.Of("  cordoned"), text.Plain.Of(" by "+n.CordonedBy))
	}
	switch {
	case n.Excluded && n.ExcludedBy == "":
		l.Add(text.Plain.Of("  kept from external load balancers by a person or another tool"))
	case n.Excluded:
		l.Add(text.Plain.Of("  kept from external load balancers by " + n.ExcludedBy))
	}
	if n.ClaimError != "" {
		l.Add(text.Red.Of("  claims unreadable: "+n.ClaimError), text.Plain.Of("; no rollout may take the node until somebody mends or removes the annotation"))
	}
	for i := range n.Claims {
		drawClaim(l, &n.Claims[i], now)
	}
	if n.Host != nil {
		drawHost(l, n.Host, now)
	}
	for i := range n.Machines {
		drawMachine(l, &n.Machines[i], now)
	}
	if len(n.Evicted) > 0 {
		l.Add(text.Yellow.Of("  evicted"), text.Plain.Of(" and not known to be available again: "+strings.Join(n.Evicted, ", ")))
	}
	if n.EvictedError != "" {
		l.Add(text.Red.Of("  what was evicted is unreadable: " + n.EvictedError))
	}
	for i := range n.Conditions {
		c := &n.Conditions[i]
		l.Add(text.Yellow.Of("  condition "+c.Type+" is "+c.Status), text.Plain.Of(ago(c.Since, now)+colon(c.Message)))
	}
	if len(n.Taints) > 0 {
		l.Add(text.Plain.Of("  tainted " + strings.Join(n.Taints, ", ")))
	}
}

func drawClaim(l *text.Page, c *v1alpha1.Claim, now time.Time) {
	how := ""
	if c.Shared {
		how = ", shared"
	}
	switch {
	case c.Skipped():
		l.Add(text.Plain.Of("  skipped by " + c.Rollout + " " + text.Since(&c.Failed.Time, now) + " ago: the claim only remembers that, and is in nobody's way"))
	case c.Failed != nil:
		l.Add(text.Yellow.Of("  claimed"), text.Plain.Of(" by "+c.Rollout+ago(&c.Since, now)+how+"; its turn failed "+text.Since(&c.Failed.Time, now)+" ago, and the node waits for a retry"))
	default:
		l.Add(text.Yellow.Of("  claimed"), text.Plain.Of(" by "+c.Rollout+ago(&c.Since, now)+how))
	}
}

// drawHost writes what the host runs and has to offer, and what it is to do and how that stands.
func drawHost(l *text.Page, h *view.Host, now time.Time) {
	runs := ""
	if h.Version != "" {
		runs = "runs " + h.Version + ", "
	}
	if h.Version != "" && h.Previous != "" && h.Previous != h.Version {
		runs = "runs " + h.Version + " (before: " + h.Previous + "), "
	}
	offers := "has not said whether there is an update"
	switch {
	case h.Update == v1alpha1.HostUpdateTrue && h.Target != "":
		offers = "has " + h.Target + " to offer"
	case h.Update == v1alpha1.HostUpdateTrue:
		offers = "has an update, or needs a reboot"
	case h.Update == v1alpha1.HostUpdateFalse:
		offers = "has no update"
	}
	said := "  host " + runs + offers
	if h.Checked != nil {
		said += ", checked " + text.Since(h.Checked, now) + " ago"
	}
	l.Add(text.Plain.Of(said + "; interface " + h.Interface + " (" + h.Label + ")"))
	line := text.Line{text.Plain.Of("  host wanted "), text.Bold.Of(action(h.Wanted)), text.Plain.Of(", active "), text.Bold.Of(action(h.Active)), text.Plain.Of(", state ")}
	style := text.Plain
	switch h.State {
	case v1alpha1.HostStateBusy:
		style = text.Yellow
	case v1alpha1.HostStateError:
		style = text.Red
	case v1alpha1.HostStateReady:
		style = text.Green
	case v1alpha1.HostStateUnknown:
	}
	line = append(line, style.Of(cmp.Or(string(h.State), "none")))
	if h.Asked != "" {
		line = append(line, text.Plain.Of(", to be brought to "+h.Asked))
	}
	if h.Attempts > 0 {
		line = append(line, text.Plain.Of(fmt.Sprintf(", attempt %d", h.Attempts)))
	}
	l.Add(line...)
	if h.Error != "" {
		l.Add(text.Red.Of("  host error: " + h.Error))
	}
}

func action(a v1alpha1.HostAction) string { return cmp.Or(string(a), "none") }

func drawPart(l *text.Page, w *view.Why, p *view.Part, now time.Time) {
	r := &p.Rollout
	head := text.Line{text.Plain.Of(r.Kind + " "), text.Bold.Of(r.FullName())}
	if r.Version != "" {
		head = append(head, text.Plain.Of("  "+r.Version))
	}
	state, style := stateOf(p)
	l.Add(append(head, style.Of("  "+state), text.Plain.Of(ago(p.Unit.Since, now)))...)
	message := p.Unit.Message
	if len(p.Checks) > 0 || slices.ContainsFunc(p.Pods, func(o view.Pod) bool { return o.Says(message) }) {
		message = "" // It stands below.
	}
	if message != "" {
		l.Add(text.Plain.Of("  " + message))
	}
	for i := range p.Pods {
		o := p.Pods[i]
		if message != "" && strings.Contains(message, o.Message) {
			o.Message = "" // It stands above.
		}
		drawPod(l, &o, r.Version, now)
	}
	drawCanary(l, p)
	switch r.State {
	case view.Pending, view.Stalled:
		l.Add(text.Red.Of("  the rollout is "+string(r.State)), text.Plain.Of(ago(r.Since, now)+colon(r.Message)))
	case view.Progressing, view.Waiting, view.Complete:
		if len(p.Checks) == 0 && p.Unit.State == v1alpha1.UnitOutdated && !p.OptedOut {
			l.Add(text.Plain.Of("  the rollout is " + string(r.State) + ago(r.Since, now) + colon(r.Message)))
		}
	}
	if !p.OptedOut {
		drawChecks(l, p)
	}
	for _, advice := range advise(w, p, now) {
		l.Add(text.Dim.Of("  → " + advice))
	}
}

// stateOf says in a few words how the node stands in a rollout.
func stateOf(p *view.Part) (string, text.Style) {
	switch u := &p.Unit; {
	case u.Canary && u.InTurn():
		return "canary, " + string(u.State) + ": " + string(u.Phase), text.Yellow
	case u.Canary && u.State == v1alpha1.UnitUpdated:
		return "canary, " + string(u.State), text.Green
	case p.OptedOut:
		return "opted out", text.Plain
	case u.State == v1alpha1.UnitFailed && u.Skipped:
		return "Failed: " + string(u.Reason) + ", skipped", text.Red
	case u.State == v1alpha1.UnitFailed:
		return "Failed: " + string(u.Reason), text.Red
	case u.InTurn():
		return string(u.State) + ": " + string(u.Phase), text.Yellow
	case u.State == v1alpha1.UnitUpdated:
		return string(u.State), text.Green
	case p.Place > 0 && !p.Waits():
		return string(u.State) + ", next", text.Yellow
	default:
		return string(u.State), text.Plain
	}
}

// drawChecks writes the unit's place in the order, and every check in its order; those that are passed in one line.
func drawChecks(l *text.Page, p *view.Part) {
	if p.Place > 0 {
		drawPlace(l, p)
	}
	var passed []string
	flush := func() {
		if len(passed) > 0 {
			l.Add(text.Green.Of("  ✓ "), text.Plain.Of(strings.Join(passed, ", ")))
		}
		passed = nil
	}
	for i := range p.Checks {
		c := &p.Checks[i]
		if c.Reason == "" {
			passed = append(passed, c.Name)
			continue
		}
		flush()
		l.Add(text.Red.Of("  ✗ "), text.Plain.Of(c.Name+": "), text.Red.Of(string(c.Reason)), text.Plain.Of(colon(c.Message)))
	}
	flush()
}

func drawPlace(l *text.Page, p *view.Part) {
	place := fmt.Sprintf("  number %d of %d that are to be started", p.Place, p.Asking)
	if p.Wave != "" {
		place += ", in wave " + p.Wave
	}
	if n := len(p.Ahead); n > 0 {
		ahead := strings.Join(p.Ahead[:min(n, few)], ", ")
		if more := p.Place - 1 - min(n, few); more > 0 {
			ahead += fmt.Sprintf(" and %d more", more)
		}
		place += "; before it " + ahead
	}
	l.Add(text.Plain.Of(place))
	if p.Note != "" {
		l.Add(text.Dim.Of("  (" + p.Note + ")"))
	}
}

// drawPod writes how a daemon's pod does.
func drawPod(l *text.Page, o *view.Pod, version string, now time.Time) {
	said := "  pod " + o.Name
	switch {
	case o.Revision != "" && o.Revision != version:
		said += " of revision " + o.Revision
	case o.Revision != "" && !o.UpToDate && o.Ready && o.Deleted == nil:
		said += " with other resources than it should have"
	}
	line := text.Line{text.Plain.Of(said)}
	switch {
	case o.Deleted != nil:
		line = append(line, text.Yellow.Of("  being deleted"), text.Plain.Of(ago(o.Deleted, now)))
	case o.Ready:
		line = append(line, text.Green.Of("  ready"), text.Plain.Of(ago(o.Since, now)))
	default:
		line = append(line, text.Red.Of("  not ready"), text.Plain.Of(", made "+text.Since(o.Since, now)+" ago"))
	}
	if o.Restarts > 0 {
		line = append(line, text.Plain.Of(fmt.Sprintf(", %d restarts", o.Restarts)))
	}
	l.Add(append(line, text.Plain.Of(colon(o.Message)))...)
}

// drawCanary writes how the canary stands that keeps the node waiting, or runs on it.
func drawCanary(l *text.Page, p *view.Part) {
	c := p.Rollout.Canary
	if c == nil {
		return
	}
	switch c.State {
	case view.CanaryPaused:
		if slices.ContainsFunc(p.Checks, func(c view.Check) bool { return c.Reason == v1alpha1.ReasonPaused }) {
			return // It stands below.
		}
		l.Add(text.Yellow.Of("  the canary of "+c.Revision+" is paused"), text.Plain.Of(colon(c.Said())))
	case view.CanaryFailed:
		if p.Rollout.State != view.Stalled {
			l.Add(text.Red.Of("  the canary of "+c.Revision+" has failed"), text.Plain.Of(colon(c.Said())))
		}
	case view.CanaryProgressing:
		if w := p.Rollout.Wave; w != nil && w.Message != "" && p.Unit.Canary {
			l.Add(text.Plain.Of("  " + w.Message))
		}
	}
}

func colon(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// drawOthers says why no rollout selects the node.
func drawOthers(l *text.Page, w *view.Why) {
	if len(w.Others) == 0 {
		l.Add(text.Plain.Of("There is no rollout."))
		return
	}
	l.Add(text.Plain.Of("No rollout selects this node:"))
	for i := range w.Others {
		o := &w.Others[i]
		l.Add(text.Plain.Of("  "+o.Kind+" "), text.Bold.Of(o.FullName()), text.Plain.Of(": "+o.Message))
	}
}

func drawBudget(l *text.Page, b *view.Budget, node string, now time.Time) {
	style := text.Red
	switch b.State {
	case view.BudgetOpen:
		style = text.Green
	case view.BudgetExhausted:
		style = text.Yellow
	case view.BudgetBlocked, view.BudgetInvalid:
	}
	l.Add(text.Plain.Of("Budget "), text.Bold.Of(b.Name), style.Of("  "+string(b.State)), text.Plain.Of("  "+b.Line()))
	for i := range b.BlockedBy {
		block := &b.BlockedBy[i]
		l.Add(text.Red.Of("  "+string(block.Gate)), text.Plain.Of(ago(block.Since, now)+colon(block.Message)))
	}
	for i := range b.Holders {
		h := &b.Holders[i]
		if i == maxHolders && h.Node != node {
			l.Add(text.Dim.Of(fmt.Sprintf("  and %d more", len(b.Holders)-maxHolders)))
			break
		}
		l.Add(text.Plain.Of("  uses it up: "+h.Node+"  "), text.Yellow.Of(string(h.Cause)), text.Plain.Of("  "+cmp.Or(h.Message, h.By)))
	}
	if b.Message != "" {
		l.Add(text.Dim.Of("  " + b.Message))
	}
}

// maxHolders bounds how many nodes are named that use up a budget.
const maxHolders = 5
