// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
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
)

// write is a request that changes something, or that is worth a kill for another reason.
type write struct {
	mechanism, name string
}

// target is a write of a mechanism to kill at.
type target struct {
	name string
	// most is the greatest count of such writes before the kill. Default 1.
	most int
	// late is true where the write may arrive when the next operator is at work. A claim may not: its precondition is the
	// Node alone, so a late claim can exceed a budget and no operator can prevent that.
	late bool
}

// When the process is killed.
const (
	before  = "before"   // The write is never sent.
	after   = "after"    // The write is done, and the process never hears of it.
	late    = "during"   // The write arrives when the process is gone, perhaps when the next one is at work.
	anytime = "any time" // At a time that counts from the mechanism's first write.
)

// instant is when to kill.
type instant struct {
	mechanism, name string
	nth             int
	when            string
	// delay is until the kill, or until a late write arrives.
	delay time.Duration
}

func (i instant) String() string {
	if i.when == anytime {
		return "at any time"
	}
	return i.when + " " + i.name
}

// draw draws an instant: one in four at any time, the others at a write.
func draw(random *rand.Rand, mechanism string, targets []target) instant {
	milliseconds := func(from, to int) time.Duration { return time.Duration(from+random.IntN(to-from)) * time.Millisecond }
	if random.IntN(4) == 0 {
		return instant{mechanism: mechanism, when: anytime, delay: milliseconds(0, 600)}
	}
	t := targets[random.IntN(len(targets))]
	whens := []string{before, after}
	if t.late {
		whens = append(whens, late)
	}
	return instant{
		mechanism: mechanism, name: t.name, nth: 1 + random.IntN(max(t.most, 1)), when: whens[random.IntN(len(whens))], delay: milliseconds(100, 2000),
	}
}

// victim is what is killed. Kill ends it as a power cut does.
type victim interface{ Kill() }

// trap kills the process that sends a certain write.
type trap struct {
	onTheWay sync.WaitGroup // late writes

	mu sync.Mutex
	at *instant // nil while the trap is not armed
	// counting is true once the delay until the kill at any time has begun, and others counts the mechanism's other writes.
	counting bool
	others   int
	hit      chan string
}

// arm makes the trap kill at the instant. The channel receives what it killed.
func (t *trap) arm(at instant) <-chan string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.counting, t.others, t.hit = &at, false, 0, make(chan string, 1)
	return t.hit
}

// take kills the victim if its write is the one to kill at, and reports whether it is. Then send is called if and when the
// write is to arrive.
func (t *trap) take(w write, v victim, send func()) bool {
	at := t.due(w, v)
	if at == nil {
		return false
	}
	switch at.when {
	case after:
		send()
	case late:
		t.onTheWay.Go(func() {
			time.Sleep(at.delay)
			send()
		})
	}
	v.Kill()
	t.hit <- at.when + " " + w.name
	return true
}

// due returns the instant if this write is the one to kill at.
func (t *trap) due(w write, v victim) *instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.at
	if at == nil || w.mechanism != at.mechanism {
		return nil
	}
	if at.when == anytime {
		if !t.counting {
			t.counting = true
			time.AfterFunc(at.delay, func() {
				v.Kill()
				t.hit <- at.String()
			})
		}
		return nil
	}
	// Some writes are rare. Then any other of the mechanism will do.
	const patience = 10
	if at.name != w.name {
		if t.others++; t.others < patience {
			return nil
		}
		at.nth, at.when = 1, before
	}
	if at.nth--; at.nth > 0 {
		return nil
	}
	t.at = nil
	return at
}

// gate stands between the operator and a server, and knows what the operator writes.
type gate struct {
	url  string
	trap *trap
	// of says which write a request is; nothing for all others.
	of func(r *http.Request, body []byte) write
	// forbidden reports a request that the operator must never send.
	forbidden func(r *http.Request) bool
	victim    victim

	backend   *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	// inFlight is held for reading by the writes that are with the server. They are not interrupted, so that all are done before the next
	// operator starts.
	inFlight sync.RWMutex

	mu sync.Mutex
	// faults are requests that were forbidden or invalid.
	faults []string
}

func newGate(t *testing.T, config *rest.Config, trap *trap, v victim) *gate {
	t.Helper()
	g := &gate{trap: trap, victim: v, forbidden: func(*http.Request) bool { return false }}
	var err error
	if g.transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	if g.backend, err = url.Parse(config.Host); err != nil {
		t.Fatal(err)
	}
	quiet := log.New(io.Discard, "", 0) // A caller that is killed is no error.
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(g.backend)
			r.Out.Host = r.In.Host // Answers with URLs must name the gate.
		},
		Transport: g.transport, FlushInterval: -1, ErrorLog: quiet,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(g)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.url = server.URL
	return g
}

// kubeconfig writes a kubeconfig that leads through the gate.
func (g *gate) kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["gate"] = &clientcmdapi.Cluster{Server: g.url}
	config.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate"}
	config.CurrentContext = "gate"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// ServeHTTP passes a request on, or kills its sender.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api") {
		g.proxy.ServeHTTP(w, r) // It may be a watch.
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	g.inFlight.RLock()
	defer g.inFlight.RUnlock()
	if g.trap.take(g.of(r, body), g.victim, func() { _, _, _ = g.send(r, body) }) { //nolint:bodyclose // send closes it.
		panic(http.ErrAbortHandler)
	}
	response, answer, err := g.send(r, body) //nolint:bodyclose // send closes it.
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(answer) // The caller may be dead.
}

// send sends a request to the server, whatever becomes of its sender.
func (g *gate) send(r *http.Request, body []byte) (*http.Response, []byte, error) {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.RequestURI, r.Host = "", g.host(r)
	r.URL.Scheme, r.URL.Host = g.backend.Scheme, g.backend.Host
	response, err := g.transport.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	g.note(r, response.StatusCode)
	return response, answer, err
}

// host is the name that the server is called by. A cloud answers with URLs, which must name the gate.
func (g *gate) host(r *http.Request) string {
	if g.backend.Scheme == "https" {
		return ""
	}
	return r.Host
}

// note keeps what was wrong with a write.
func (g *gate) note(r *http.Request, code int) {
	what := r.Method + " " + r.URL.Path
	g.mu.Lock()
	defer g.mu.Unlock()
	switch code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		g.faults = append(g.faults, fmt.Sprintf("%s: %d", what, code))
	}
	if g.forbidden(r) {
		g.faults = append(g.faults, what+": must never be sent")
	}
}
