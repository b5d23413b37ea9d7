// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/scale/operator"
)

// What the operator writes.
const (
	claims   = "claim a node"
	creates  = "create a Job"
	releases = "release a node"
	reports  = "write the status"
	// anyInstant is no write, but a time.
	anyInstant = ""
)

// When it is killed.
const (
	before = "before it could"  // The write is never sent.
	after  = "when it had just" // The write is done, and the operator never hears of it.
	late   = "on its way to"    // The write arrives when the operator is gone, perhaps when the next one is at work.
)

// instant is when to kill.
type instant struct {
	write string
	nth   int
	when  string
	// delay is until the kill, or until a late write arrives.
	delay time.Duration
}

func (i instant) String() string {
	if i.write == anyInstant {
		return "at any instant"
	}
	return i.when + " " + i.write
}

// draw draws an instant: one in three at any time, the others at a write.
func draw(random *rand.Rand) instant {
	between := func(from, to int) time.Duration { return time.Duration(from+random.IntN(to-from)) * time.Millisecond }
	if random.IntN(3) == 0 {
		return instant{delay: between(30, 800)}
	}
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	return instant{
		write: pick(claims, creates, releases, claims, creates, releases, reports),
		when:  pick(before, after, late),
		nth:   1 + random.IntN(4),
		delay: between(50, 1500),
	}
}

// gate stands between the operator and the API server.
type gate struct {
	kubeconfig string
	// probes is where the operator answers whether it is ready.
	probes string

	backend   *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	under     sync.WaitGroup // late writes

	mu      sync.Mutex
	at      *instant
	process *operator.Process
	hit     chan struct{}
}

func newGate(t *testing.T, config *rest.Config) *gate {
	t.Helper()
	g := &gate{probes: freeAddress(t)}
	var err error
	if g.transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	if g.backend, err = url.Parse(config.Host); err != nil {
		t.Fatal(err)
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(g.backend) },
		Transport:     g.transport,
		FlushInterval: -1,
		// Whose caller is gone is not worth a word.
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(g)
	server.Config.ErrorLog = g.proxy.ErrorLog
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["gate"] = &clientcmdapi.Cluster{Server: server.URL}
	kubeconfig.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate"}
	kubeconfig.CurrentContext = "gate"
	g.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, g.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// arm makes the gate kill the process at the instant. The channel is closed when it has.
func (g *gate) arm(at instant, p *operator.Process) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hit, g.process = make(chan struct{}), p
	if g.at = &at; at.write == anyInstant {
		g.at = nil
	}
	return g.hit
}

// disarm takes that back, and reports whether it did so in time.
func (g *gate) disarm() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	armed := g.at != nil || !closing(g.hit)
	g.at = nil
	return armed
}

func closing(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait returns when every late write has arrived.
func (g *gate) wait() { g.under.Wait() }

// due reports whether this write is the one to kill at, and when.
func (g *gate) due(write string) *instant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == nil || write == "" || g.at.write != write {
		return nil
	}
	if g.at.nth--; g.at.nth > 0 {
		return nil
	}
	at := g.at
	g.at = nil
	return at
}

// strike kills the operator.
func (g *gate) strike() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.process.Kill()
	close(g.hit)
}

// ServeHTTP passes a request on, or kills who sent it.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.Method != http.MethodGet {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	at := g.due(writeOf(r, body))
	if at == nil {
		g.proxy.ServeHTTP(w, r)
		return
	}
	switch at.when {
	case before:
		g.strike()
	case after:
		g.send(r, body)
		g.strike()
	case late:
		g.under.Go(func() {
			time.Sleep(at.delay)
			g.send(r, body)
		})
		g.strike()
	}
	panic(http.ErrAbortHandler)
}

// send sends a request to the API server, whether or not its sender still lives, and drops the answer.
func (g *gate) send(r *http.Request, body []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
	defer cancel()
	sent := r.Clone(ctx)
	sent.RequestURI = ""
	sent.URL.Scheme, sent.URL.Host = g.backend.Scheme, g.backend.Host
	sent.Host = ""
	sent.Body = io.NopCloser(bytes.NewReader(body))
	response, err := g.transport.RoundTrip(sent)
	if err != nil {
		return // The audit log and the journal say what has arrived.
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
}

// writeOf says which of the operator's writes a request is.
func writeOf(r *http.Request, body []byte) string {
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/jobs"):
		return creates
	case r.Method == http.MethodPatch && strings.HasSuffix(path, "/plans/"+planName+"/status"):
		return reports
	case r.Method == http.MethodPatch && strings.HasPrefix(path, "/api/v1/nodes/"):
		if bytes.Contains(body, []byte(`"`+v1alpha1.AnnotationClaims+`":null`)) {
			return releases
		}
		return claims
	default:
		return ""
	}
}

// ready asks the operator.
func (g *gate) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/readyz", g.probes), nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
