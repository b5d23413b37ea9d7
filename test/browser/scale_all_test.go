// SPDX-License-Identifier: Apache-2.0

//go:build all

package browser

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

var (
	nodes  = flag.Int("nodes", 200, "TestScale: how many simulated nodes there are")
	window = flag.Duration("window", 5*time.Second, "TestScale: how long each number of viewers is measured")
	atOnce = flag.Int64("concurrency", 100, "TestScale: how many nodes the rollout takes at once")
)

const (
	// mostBytes is what a first load of a page may have.
	mostBytes = 2_000_000
	// changes is how often it is measured how long a load takes, and a change until it is seen.
	changes = 10
)

// watched is a dashboard that shows a rollout in progress, and a client with a token.
type watched struct {
	*testing.T
	clientset *kubernetes.Clientset
	dashboard *operator.Process
	address   string
	token     string
}

// newWatched starts a cluster, the operator with a rollout, and the dashboard.
func newWatched(t *testing.T) *watched {
	log.SetLogger(logr.Discard())
	w, dir := &watched{T: t}, t.TempDir()
	c := cluster.New(t, cluster.Options{Nodes: *nodes, PodSeconds: 1.5})
	program, err := operator.Build(t.Context(), dir)
	w.must(err)
	// This node is in no rollout, and has a canvas of its own.
	w.must(c.AddNode(t.Context(), cluster.NodeOptions{Name: "probe", Zone: "probe"}))
	config := c.Config()
	config.QPS = -1
	w.clientset, err = kubernetes.NewForConfig(config)
	w.must(err)
	w.must(upgradev1.AddToScheme(clientgoscheme.Scheme))
	objects, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	w.must(err)
	const namespace = "system-upgrade"
	viewer := metav1.ObjectMeta{Namespace: namespace, Name: "viewer"}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: viewer},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: viewer.Name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: viewer.Name}},
		},
	} {
		w.must(objects.Create(t.Context(), o))
	}
	made, err := w.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), viewer.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](36000)}}, metav1.CreateOptions{})
	w.must(err)
	w.token = made.Status.Token

	run := func(name string, args ...string) *operator.Process {
		p, err := operator.Run(program, filepath.Join(dir, name+".log"), []string{"KUBECONFIG=" + c.Kubeconfig()}, args...)
		w.must(err)
		t.Cleanup(func() { w.must(p.Stop(patience)) })
		return p
	}
	run("operator", "controller", "--kubeconfig="+c.Kubeconfig(), "--install-crds", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	plan := &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "many"},
		Spec: upgradev1.PlanSpec{
			Concurrency: *atOnce, Version: "v1", Cordon: true, Upgrade: &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
			NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelTopologyZone, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"probe"}},
			}},
		},
	}
	w.eventually("the Plan is created", func() error { return objects.Create(t.Context(), plan) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	w.address = "https://" + free.Addr().String()
	w.must(free.Close())
	w.dashboard = run("dashboard", "dashboard", "--bind-address="+free.Addr().String())
	viewing := w.client()
	w.eventually("the rollout is in progress", func() error {
		page, _, err := w.load(viewing, "/")
		if err == nil && (strings.Contains(page, ">0 of ") || !strings.Contains(page, " updating")) {
			err = errors.New("no node is updated yet: " + page)
		}
		return err
	})
	return w
}

func (w *watched) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *watched) eventually(what string, try func() error) {
	w.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	}); err != nil {
		w.Fatalf("%s: %v", what, last)
	}
}

// client is that of one viewer, with connections of its own.
func (w *watched) client() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} // The certificate is self-signed.
	w.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (w *watched) get(ctx context.Context, from *http.Client, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.address+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Accept-Encoding", "gzip") // Not unpacked, so that its size is known.
	answer, err := from.Do(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.Join(errors.New(path+": "+answer.Status), answer.Body.Close())
	}
	return answer, err
}

// load returns an answer, and how many bytes it has on the way.
func (w *watched) load(from *http.Client, path string) (body string, size int, err error) {
	answer, err := w.get(w.Context(), from, path)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()
	packed, err := io.ReadAll(answer.Body)
	if err != nil || answer.Header.Get("Content-Encoding") != "gzip" {
		return string(packed), len(packed), err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", 0, err
	}
	text, err := io.ReadAll(unpacked)
	return string(text), len(packed), err
}

// view does what the page's script does in a browser, until the context ends.
func (w *watched) view(ctx context.Context) error {
	from := w.client()
	events, err := w.get(ctx, from, "/changes")
	if err != nil {
		return err
	}
	defer events.Body.Close()
	for lines := bufio.NewScanner(events.Body); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		for _, path := range []string{"/?part=", "/fleet.json?by=" + corev1.LabelTopologyZone} {
			answer, err := w.get(ctx, from, path)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			if err := errors.Join(err, answer.Body.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// seen patches the node of its own, and returns how long it takes until its cell looks different.
func (w *watched) seen(ctx context.Context, cordoned bool) time.Duration {
	w.Helper()
	const look = `(() => {
		const cell = document.querySelector('#fleet canvas[data-group="probe"]');
		const pixels = () => cell.getContext("2d").getImageData(0, 0, 18, 18).data.join(); // the largest cell
		const before = pixels();
		window.seen = new Promise(done => {
			const again = () => pixels() === before ? requestAnimationFrame(again) : done(Date.now());
			again();
		});
	})()`
	do(w.T, ctx, chromedp.Evaluate[chromedp.Void](look))
	began := time.Now()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := w.clientset.CoreV1().Nodes().Patch(ctx, "probe", types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
	at := ask(w.T, ctx, chromedp.Evaluate[int64]("window.seen", chromedp.EvalAwaitPromise))
	return time.UnixMilli(at).Sub(began)
}

// used is what the server has used so far.
func (w *watched) used() (cpu float64, resident, sent int) {
	w.Helper()
	p, err := procfs.NewProc(w.dashboard.PID())
	w.must(err)
	stat, err := p.Stat()
	w.must(err)
	written, err := p.IO()
	w.must(err)
	return stat.CPUTime(), stat.ResidentMemory(), int(written.WChar)
}

// The page of a large fleet is small, while its rollout goes on. How fast it is depends on the machine: it is measured, for 1 and for 50 viewers, and
// written into the log.
func TestScale(t *testing.T) {
	w := newWatched(t)
	ctx, from := browser(t), w.client()
	login := func(ctx context.Context, to *chromedp.Target) (chromedp.Void, error) {
		headers := network.Headers{"Authorization": "Bearer " + w.token}
		_, err := cdp.Call(ctx, to, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: headers})
		return chromedp.Void{}, err
	}
	do(t, ctx, login)
	// A browser gives up when interfaces of this machine's network come or go meanwhile.
	w.eventually("the browser shows the page", func() error { return chromedp.Do(ctx, chromedp.Navigate(w.address)) })
	until(t, ctx, `document.querySelectorAll("#fleet canvas").length > 1`)

	const rollout = "/rollouts/Plan/system-upgrade/many"
	for path, of := range map[string][]string{"fleet": {"/", "/fleet.json", "/assets/dashboard.js", "/assets/dashboard.css"}, "rollout": {rollout}} {
		var took []time.Duration
		total := 0
		for range changes {
			total = 0
			began := time.Now()
			for _, part := range of {
				_, size, err := w.load(from, part)
				w.must(err)
				total += size
			}
			took = append(took, time.Since(began))
			<-time.After(*window / time.Duration(changes))
		}
		slices.Sort(took)
		t.Logf("first load of %s: %d bytes; median %s, slowest %s", path, total, took[changes/2], took[changes-1])
		if total > mostBytes {
			t.Errorf("the page %s has %d bytes, more than %d", path, total, mostBytes)
		}
	}
	for _, viewers := range []int{1, 50} {
		viewing, stop := context.WithCancel(ctx)
		for range viewers - 1 { // The browser is one.
			go func() {
				if err := w.view(viewing); err != nil && viewing.Err() == nil {
					t.Error(err)
				}
			}()
		}
		cpu, _, sent := w.used()
		began := time.Now()
		var seen []time.Duration
		for i := range changes {
			seen = append(seen, w.seen(ctx, i%2 == 0))
			<-time.After(time.Until(began.Add(*window * time.Duration(i+1) / time.Duration(changes))))
		}
		seconds := time.Since(began).Seconds()
		cpuNow, resident, sentNow := w.used()
		stop()
		slices.Sort(seen)
		t.Logf("%d nodes, %d viewers, %.0f s: %.0f %% of a core, %d MiB, %.0f KB/s for each viewer; a change is seen after %s, at most %s", *nodes, viewers,
			seconds, (cpuNow-cpu)/seconds*100, resident>>20, float64(sentNow-sent)/seconds/1000/float64(viewers), seen[changes/2], seen[changes-1])
	}
	page, _, err := w.load(from, rollout)
	w.must(err)
	_, line, _ := strings.Cut(page, "</svg><p class=\"\">")
	line, _, _ = strings.Cut(line, "<")
	t.Logf("at the end: %s", line)
}
