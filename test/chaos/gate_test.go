// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// anyInstant is no write, but a time.
const anyInstant = ""

// writes are what the operator writes.
type writes struct {
	// of says which of them a request is.
	of func(r *http.Request, body []byte) string
	// names are those to kill at, the more often the more there are of them, and most is which one at most.
	names []string
	most  int
	// punctual is true where no write arrives late.
	punctual bool
	// longest is how long a life may be that ends at any time, and patience how long one whose write does not come. Default 800ms and patience.
	longest, patience time.Duration
}

// When it is killed.
const (
	before = "before" // The write is never sent.
	after  = "after"  // The write is done, and the operator never hears of it.
	late   = "while"  // The write arrives when the operator is gone, perhaps when the next one is at work.
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
		return "at any time"
	}
	return i.when + " " + i.write
}

// draw draws an instant: one in three at any time, the others at a write.
func (w writes) draw(random *rand.Rand) instant {
	between := func(from, to int) time.Duration { return time.Duration(from+random.IntN(to-from)) * time.Millisecond }
	if random.IntN(3) == 0 {
		return instant{delay: between(30, int(cmp.Or(w.longest, 800*time.Millisecond).Milliseconds()))}
	}
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	whens := []string{before, after, late}
	if w.punctual {
		whens = whens[:2]
	}
	return instant{
		write: pick(w.names...),
		when:  pick(whens...),
		nth:   1 + random.IntN(w.most),
		delay: between(100, 3000),
	}
}

// process is what is killed.
type process interface {
	// Kill ends it as a power cut does, and returns when it is gone. It reports whether it was still running.
	Kill() bool
}

// gate stands between the operator and the API server, or what else is asked by HTTP.
type gate struct {
	// url is where it is, and kubeconfig says so.
	url        string
	kubeconfig string
	writes     writes

	backend   *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	onTheWay  sync.WaitGroup // late writes

	mu      sync.Mutex
	process process
	at      *instant // the write to kill the process at, or nil
	taken   bool     // that write has come
	hit     chan struct{}
	late    []lateWrite
	begun   chan struct{} // closed at the next request; nil if nobody waits for that
}

// lateWrite is one that arrived when who had sent it was dead.
type lateWrite struct {
	method, path string
	// code is what the API server said, and object what it answered with, in whichever encoding.
	code   int
	object []byte
}

func newGate(t *testing.T, config *rest.Config, w writes) *gate {
	t.Helper()
	return newGateAt(t, config, w, "127.0.0.1:0")
}

// newGateAt is a gate at an address of this machine.
func newGateAt(t *testing.T, config *rest.Config, w writes, address string) *gate {
	t.Helper()
	g := &gate{writes: w}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if g.transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	if g.backend, err = url.Parse(config.Host); err != nil {
		t.Fatal(err)
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(g.backend)
			r.Out.Host = r.In.Host // What answers with URLs names the gate in them.
		},
		Transport:     g.transport,
		FlushInterval: -1,
		// Whose caller is gone is not worth a word.
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(g)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = g.proxy.ErrorLog
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.url = server.URL
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
func (g *gate) arm(at instant, p process) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.process, g.at, g.taken, g.hit = p, nil, false, make(chan struct{})
	if at.write != anyInstant {
		g.at = &at
	}
	return g.hit
}

// next is closed when the next request comes.
func (g *gate) next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = make(chan struct{})
	return g.begun
}

// comes notes that a request has come.
func (g *gate) comes() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun != nil {
		close(g.begun)
		g.begun = nil
	}
}

// disarm takes that back, and reports whether it did so in time.
func (g *gate) disarm() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = nil
	return !g.taken
}

// wait returns when every late write has arrived.
func (g *gate) wait() { g.onTheWay.Wait() }

// lateWrites are those that have arrived late.
func (g *gate) lateWrites() []lateWrite {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.late)
}

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
	g.at, g.taken = nil, true
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
	g.comes()
	at := g.due(g.writes.of(r, body))
	if at == nil {
		g.proxy.ServeHTTP(w, r)
		return
	}
	own := r.Clone(context.WithoutCancel(r.Context()))
	own.Body = io.NopCloser(bytes.NewReader(body))
	switch at.when {
	case before:
		g.strike()
	case after:
		g.send(own)
		g.strike()
	case late:
		g.onTheWay.Go(func() {
			time.Sleep(at.delay)
			code, object := g.send(own)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.late = append(g.late, lateWrite{own.Method, own.URL.Path, code, object})
		})
		g.strike()
	}
	panic(http.ErrAbortHandler)
}

// send sends a request to the API server. Who sent it does not see the answer.
func (g *gate) send(r *http.Request) (code int, object []byte) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	r = r.WithContext(ctx)
	r.RequestURI, r.Host = "", ""
	r.URL.Scheme, r.URL.Host = g.backend.Scheme, g.backend.Host
	// The transport asks for compression by itself, and undoes it, only where nobody else has asked for it.
	r.Header.Del("Accept-Encoding")
	response, err := g.transport.RoundTrip(r)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	object, _ = io.ReadAll(response.Body)
	return response.StatusCode, object
}

// ready asks the operator whether it has seen how things stand.
func ready(ctx context.Context, probes string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", nil)
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
