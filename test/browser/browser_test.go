// SPDX-License-Identifier: Apache-2.0

// Package browser tests the web pages in a real browser. `make screenshots` keeps pictures of them, and `make scale-page` measures them.
package browser

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/dashboard"
	"moult.dev/moult/internal/view"
	"moult.dev/moult/test/cluster"
)

var screenshots = flag.String("screenshots", "", "directory for pictures of the pages")

// patience is for what the browser does. Nothing waits that long.
const patience = 20 * time.Minute

// injected is a text that must not become markup. Pictures for people have none.
func injected() string {
	if *screenshots != "" {
		return ""
	}
	return ` <script>window.injected = true</script><img src=x onerror="window.injected = true">`
}

// unavailable skips the test, which lacks what this machine can't get, or fails it where no test may be skipped.
func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("MOULT_REQUIRE_MACHINES") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// browser starts a browser. It ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	if err := cluster.InstallPackages(t.Context(), os.Stderr, map[string]string{"chromium": "chromium"}); err != nil {
		unavailable(t, err)
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.IgnoreCertErrors)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	do(t, ctx) // It starts here: a timeout of its first context would be that of its life.
	ctx, cancel = context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	return ctx
}

func state(failed bool) *dashboard.State {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	since := &metav1.Time{Time: now.Add(-3 * time.Minute)}
	plan := view.Rollout{
		Kind: "Plan", Namespace: "system-upgrade", Name: "k3s-agent", Version: "v1.33.1+k3s1", State: view.Progressing, Since: since, TurnSeconds: 95,
		Wave:    &v1alpha1.WaveStatus{Name: "tenth", Number: 2, Of: 3, State: v1alpha1.WaveProgressing, Nodes: 60, Updated: 40},
		Budgets: []string{"production"}, History: history(now),
	}
	// What outdated nodes wait for, from this one on.
	waits := map[int]view.Node{
		44: {}, 48: {Reason: v1alpha1.ReasonMaxConcurrent, Message: "4 of at most 4 nodes are in a turn"},
		56: {Reason: v1alpha1.ReasonNodeNotReady, Message: "the kubelet does not report"},
		58: {Reason: v1alpha1.ReasonClaimed, Message: "claimed by NodeRollout/kernel"},
		60: {Reason: v1alpha1.ReasonWavePending, Message: "wave all begins when wave tenth is done"},
	}
	var waiting view.Node
	s := &dashboard.State{At: now}
	for i := range 120 {
		name := "worker-" + string('a'+rune(i%3)) + "-" + string('0'+rune(i/30)) + string('0'+rune(i/3%10))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "eu-central-1" + string('a'+rune(i%3))}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if next, ok := waits[i]; ok {
			waiting = next
		}
		unit := view.Node{Node: name, State: v1alpha1.UnitOutdated, Reason: waiting.Reason, Message: waiting.Message}
		switch {
		case i == 7 && failed:
			unit = view.Node{Node: name, State: v1alpha1.UnitFailed, Reason: "JobFailed", Message: "container upgrade ended with exit code 1" + injected(), Since: since}
			plan.Counts.Failed++
		case i < 40:
			unit = view.Node{Node: name, State: v1alpha1.UnitUpdated}
			plan.Counts.Updated++
		case i < 44:
			unit = view.Node{Node: name, State: v1alpha1.UnitUpdating, Phase: "Draining", Since: since, Started: since, Message: "evicting web-0"}
			node.Spec.Unschedulable = true
			plan.Counts.Updating++
		case unit.Reason == v1alpha1.ReasonNodeNotReady:
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
			plan.Counts.Waiting++
		default:
			plan.Counts.Waiting++
		}
		plan.Counts.Total++
		plan.Nodes, s.Nodes = append(plan.Nodes, unit), append(s.Nodes, node)
	}
	s.Rollouts = []view.Rollout{plan, {
		Kind: "ExtendedDaemonSet", Namespace: "monitoring", Name: "node-exporter", Version: "1.9.1", State: view.Complete, Since: since,
		Counts: v1alpha1.UnitCounts{Total: 120, Updated: 120},
	}}
	s.Budgets = []view.Budget{{
		Name: "production", State: view.BudgetExhausted, Matched: 120, Unavailable: 4, Limit: ptr.To(4), Allowed: ptr.To[int32](0),
		Holders: []v1alpha1.BudgetHolder{{Node: "worker-b-13", Message: "claimed by Plan/system-upgrade/k3s-agent" + injected()}},
	}}
	return s
}

// history is of a run that goes on, one that another came before, and one that is complete.
func history(now time.Time) []v1alpha1.Run {
	ago := func(hours int) *metav1.Time { return &metav1.Time{Time: now.Add(-time.Duration(hours) * time.Hour)} }
	return []v1alpha1.Run{{
		Revision: "v1.33.1+k3s1", CreatedBy: "argocd-controller", ApprovedBy: "jo@example.com", CreatedAt: *ago(2), StartedAt: ago(1),
		Total: 120, Updated: 39,
		FailedAt: ago(0), Ongoing: []v1alpha1.RunState{v1alpha1.RunFailed}, Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 1}},
		Turns: &v1alpha1.RunTurns{Count: 39, MedianSeconds: 95, P95Seconds: 140},
		Waits: []v1alpha1.RunWait{{Reason: v1alpha1.ReasonWaitingForApproval, Seconds: 2400}},
	}, {
		Revision: "v1.33.0+k3s1", CreatedBy: "argocd-controller", CreatedAt: *ago(50), StartedAt: ago(49), EndedAt: ago(2), Result: v1alpha1.RunSuperseded,
		Total: 120, Updated: 30, Turns: &v1alpha1.RunTurns{Count: 30, MedianSeconds: 90, P95Seconds: 120},
		Waits: []v1alpha1.RunWait{{Reason: v1alpha1.ReasonWaitingForApproval, Seconds: 160_000}, {Reason: v1alpha1.ReasonBudgetExhausted, Seconds: 700}},
	}, {
		Revision: "v1.32.5+k3s1", CreatedBy: "kubectl", CreatedAt: *ago(800), StartedAt: ago(799), EndedAt: ago(796), Result: v1alpha1.RunComplete,
		Total: 118, Updated: 118, Turns: &v1alpha1.RunTurns{Count: 118, MedianSeconds: 92, P95Seconds: 131},
		Waits: []v1alpha1.RunWait{{Reason: v1alpha1.ReasonOutsideWindow, Seconds: 5400}},
	}}
}

// served is pages that a server serves.
type served struct {
	pages *dashboard.Server
	*httptest.Server
}

// Close ends the server and its connections.
func (s served) Close() {
	s.CloseClientConnections()
	_ = s.Listener.Close()
}

func server(t *testing.T) (served, string) {
	t.Helper()
	pages := dashboard.New(clock.RealClock{}, dashboard.Reader{
		Why: func(node string) (text.Lines, bool) {
			return text.Lines{
				{text.Bold.Of(node), text.Plain.Of("  Ready, in service")},
				{text.Plain.Of("Plan system-upgrade/k3s-agent  "), text.Yellow.Of("waits")},
				{text.Red.Of("  ✗ "), text.Plain.Of("concurrency  MaxConcurrent: 4 of at most 4 nodes are in a turn" + injected())},
			}, true
		},
		Preview: func(context.Context, string, string, string) (text.Lines, error) {
			return text.Lines{{text.Plain.Of("  ends in about 31m; a turn takes 95s")}}, nil
		},
		Logs: func(context.Context, string, string, string, string) (string, error) {
			return "the last line" + injected(), nil
		},
	})
	pages.Publish(state(false))
	serving := httptest.NewServer(pages)
	t.Cleanup(serving.Close)
	return served{pages, serving}, serving.URL
}

// do carries out steps in the browser.
func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) { //nolint:revive // As in the library.
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// ask returns what an action finds in the browser.
func ask[T any](t *testing.T, ctx context.Context, what chromedp.Action[T]) T { //nolint:revive // As in the library.
	t.Helper()
	answer, err := chromedp.Run(ctx, what)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// until waits until an expression is true in the page. Another page may load meanwhile.
func until(t *testing.T, ctx context.Context, expression string) { //nolint:revive // As in the library.
	t.Helper()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience)))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", expression, err)
		}
	}
}

// scheme lets the browser prefer light or dark pages.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	})
}

// bad lists what must not happen in a browser.
type bad struct {
	mu  sync.Mutex
	all []string
}

func (b *bad) listen(t *testing.T, ctx context.Context, address string) { //nolint:revive // As in the library.
	t.Helper()
	err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.all = append(b.all, "exception: "+e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			b.all = append(b.all, "console: "+string(e.Type))
		case *log.EventEntryAdded:
			b.all = append(b.all, "log: "+e.Entry.Text+" "+e.Entry.URL)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, address+"/") {
				b.all = append(b.all, "request to "+e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// smaller returns a PNG with at most 256 colours. Of colours that look alike it keeps the most frequent one.
func smaller(full []byte) ([]byte, error) {
	picture, err := png.Decode(bytes.NewReader(full))
	if err != nil {
		return nil, err
	}
	pixels := map[color.NRGBA]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			pixels[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(pixels), func(a, b color.NRGBA) int { return cmp.Compare(pixels[b], pixels[a]) })
	known := map[[3]byte]bool{}
	var palette color.Palette
	for _, c := range colours {
		if like := [3]byte{c.R >> 4, c.G >> 4, c.B >> 4}; !known[like] && len(palette) < 256 {
			known[like], palette = true, append(palette, c)
		}
	}
	indexed := image.NewPaletted(picture.Bounds(), palette)
	draw.Draw(indexed, indexed.Rect, picture, image.Point{}, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, indexed)
	return out.Bytes(), err
}

// drawn is true when the fleet has been drawn, if the page has it.
const drawn = `!document.getElementById("fleet") || document.querySelectorAll("#fleet canvas").length === 3`

// Each page is right in light and dark, on a desk and on a phone: no error, no request to another host, nothing wider than the screen, nothing
// that WCAG 2.1 AA forbids, and no injected markup.
func TestPages(t *testing.T) {
	ctx, axe := browser(t), axe(t)
	pages, address := server(t)
	pages.pages.Publish(state(true))
	var wrong bad
	wrong.listen(t, ctx, address)
	for name, path := range map[string]string{"fleet": "/", "rollout": "/rollouts/Plan/system-upgrade/k3s-agent", "node": "/nodes/worker-a-20"} {
		for _, colours := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				do(t, ctx, chromedp.EmulateViewport(width, 844), scheme(colours), chromedp.Navigate(address+path))
				until(t, ctx, drawn)
				at := fmt.Sprintf("%s-%s-%d", name, colours, width)
				if ask(t, ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth`)) {
					t.Errorf("%s is wider than the screen", at)
				}
				if ask(t, ctx, chromedp.Evaluate[bool](`Boolean(window.injected || document.querySelector("main img, main script"))`)) {
					t.Errorf("%s: markup was injected", at)
				}
				if *screenshots != "" {
					picture, err := smaller(ask(t, ctx, chromedp.FullScreenshot(100)))
					if err := errors.Join(err, os.WriteFile(filepath.Join(*screenshots, at+".png"), picture, 0o644)); err != nil {
						t.Fatal(err)
					}
				}
				do(t, ctx, chromedp.Evaluate[chromedp.Void](`for (const folded of document.querySelectorAll("details")) folded.open = true`))
				if found := violations(t, ctx, axe); len(found) > 0 {
					t.Errorf("%s is not accessible:\n%s", at, strings.Join(found, "\n"))
				}
			}
		}
	}
	wrong.mu.Lock()
	defer wrong.mu.Unlock()
	if len(wrong.all) > 0 {
		t.Errorf("%q", wrong.all)
	}
}

// A change appears by itself, and what a person has opened stays open. When the server is gone the page says so.
func TestLive(t *testing.T) {
	ctx := browser(t)
	pages, address := server(t)
	do(t, ctx, chromedp.Navigate(address+"/rollouts/Plan/system-upgrade/k3s-agent"), chromedp.Click(chromedp.CSS("#wait-MaxConcurrent summary")))
	pages.pages.Publish(state(true))
	until(t, ctx, `document.querySelector("#failed") && document.querySelector("#wait-MaxConcurrent").open`)
	do(t, ctx, chromedp.Click(chromedp.CSS(".failures summary")))
	until(t, ctx, `document.querySelector(".failures pre").textContent.startsWith("the last line")`)
	pages.Close()
	until(t, ctx, `document.getElementById("stale").textContent !== ""`)
}

// The keyboard alone leads from the fleet to a node.
func TestKeyboard(t *testing.T) {
	ctx := browser(t)
	_, address := server(t)
	do(t, ctx, chromedp.Navigate(address))
	until(t, ctx, drawn)
	do(t, ctx, chromedp.Focus(chromedp.CSS("#fleet canvas")), chromedp.SendKeys(chromedp.CSS("#fleet canvas"), kb.ArrowRight))
	if tip := ask(t, ctx, chromedp.Text(chromedp.CSS("#tip"))); !strings.HasPrefix(tip, "worker-a-01. Plan system-upgrade/k3s-agent: ") {
		t.Error(tip)
	}
	do(t, ctx, chromedp.SendKeys(chromedp.CSS("#fleet canvas"), kb.Enter))
	until(t, ctx, `document.title.startsWith("Node worker-a-01 ")`)
}
