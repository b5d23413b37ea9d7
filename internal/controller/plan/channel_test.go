// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/internal/outbound"
)

// patience bounds how long a test waits for what must happen at once. A channel that is left to itself takes longer to end.
const patience = 10 * time.Second

// answers makes a server of what it says to each path: a status, and a Location behind it.
func answers(t *testing.T, paths map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := paths[r.URL.Path]
		if !ok || r.Method != http.MethodGet {
			t.Errorf("asked to %s %s", r.Method, r.URL)
		}
		var code int
		var location string
		_, _ = fmt.Sscanf(text, "%d %s", &code, &location)
		if location != "" {
			w.Header()["Location"] = []string{location}
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestResolveChannel(t *testing.T) {
	for name, tc := range map[string]struct {
		paths   map[string]string // "/channel" is the one that is asked; SERVER is the server's own address
		query   string
		want    string
		wantErr string
	}{
		"302":                           {map[string]string{"/channel": "302 https://github.com/k3s-io/k3s/releases/tag/v1.31.2"}, "", "v1.31.2", ""},
		"302, percent-encoded":          {map[string]string{"/channel": "302 https://github.com/k3s-io/k3s/releases/tag/v1.31.2%2Bk3s1"}, "", "v1.31.2+k3s1", ""},
		"302 to a path":                 {map[string]string{"/channel": "302 /releases/v1.31.2"}, "", "v1.31.2", ""},
		"302 to a neighbour":            {map[string]string{"/channel": "302 v1.31.2"}, "", "v1.31.2", ""},
		"302 with a query":              {map[string]string{"/channel": "302 /releases/v1.31.2?from=here#there"}, "", "v1.31.2", ""},
		"302 with a slash at the end":   {map[string]string{"/channel": "302 /releases/v1.31.2/"}, "", "v1.31.2", ""},
		"302 with a slash that is none": {map[string]string{"/channel": "302 /releases/a%2Fv1.31.2"}, "", "v1.31.2", ""},
		"302 nowhere":                   {map[string]string{"/channel": "302"}, "", "", "asking channel SERVER/channel, 302 without a usable Location, http: no Location header in response"},
		"302 to no URL":                 {map[string]string{"/channel": "302 http://%zz"}, "", "", `asking channel SERVER/channel, failed to parse Location header "http://%zz": parse "http://%zz": invalid URL escape "%zz"`},
		"302 to the root":               {map[string]string{"/channel": "302 /"}, "", "", "asking channel, the answer SERVER/ has no last path element"},
		"302 to a host":                 {map[string]string{"/channel": "302 http://example.com"}, "", "", "asking channel, the answer http://example.com has no last path element"},

		"200 is the channel's own last element": {map[string]string{"/channel": "200"}, "", "channel", ""},
		"200, and the query does not count":     {map[string]string{"/channel": "200"}, "?x=y/z", "channel", ""},
		"200, and the Location does not count":  {map[string]string{"/channel": "200 /v1"}, "", "channel", ""},
		"204":                                   {map[string]string{"/channel": "204"}, "", "channel", ""},
		"299":                                   {map[string]string{"/channel": "299"}, "", "channel", ""},

		"301 is followed":          {map[string]string{"/channel": "301 /new", "/new": "302 /v1"}, "", "v1", ""},
		"307 is followed":          {map[string]string{"/channel": "307 /new", "/new": "302 /v1"}, "", "v1", ""},
		"308 is followed":          {map[string]string{"/channel": "308 /new", "/new": "302 /v1"}, "", "v1", ""},
		"301 to another server":    {map[string]string{"/channel": "301 SERVER/new", "/new": "302 /v1"}, "", "v1", ""},
		"301, and 200 there":       {map[string]string{"/channel": "301 /v9", "/v9": "200"}, "", "v9", ""},
		"moved four times":         {map[string]string{"/channel": "301 /a", "/a": "307 /b", "/b": "308 /c", "/c": "301 /d", "/d": "302 /v1"}, "", "v1", ""},
		"moved five times":         {map[string]string{"/channel": "301 /a", "/a": "307 /b", "/b": "308 /c", "/c": "301 /d", "/d": "301 /e"}, "", "", "asking channel SERVER/channel, it has moved 5 times"},
		"moved in a circle":        {map[string]string{"/channel": "301 /channel"}, "", "", "asking channel SERVER/channel, it has moved 5 times"},
		"301 nowhere":              {map[string]string{"/channel": "301"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 301 Moved Permanently"},
		"308 nowhere":              {map[string]string{"/channel": "308"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 308 Permanent Redirect"},
		"303":                      {map[string]string{"/channel": "303 /v1"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 303 See Other"},
		"304":                      {map[string]string{"/channel": "304"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 304 Not Modified"},
		"404":                      {map[string]string{"/channel": "404"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 404 Not Found"},
		"404 after a move":         {map[string]string{"/channel": "301 /new", "/new": "404"}, "", "", "asking channel SERVER/new, unexpected response: HTTP/1.1 404 Not Found"},
		"500":                      {map[string]string{"/channel": "500"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 500 Internal Server Error"},
		"a status without a name":  {map[string]string{"/channel": "599"}, "", "", "asking channel SERVER/channel, unexpected response: HTTP/1.1 599 status code 599"},
		"moved to another scheme":  {map[string]string{"/channel": "301 ftp://example.com/v1"}, "", "", `asking channel SERVER/channel, it has moved to another host, ftp://example.com/v1, which is not followed`},
		"moved to what is no file": {map[string]string{"/channel": "301 file:///etc/passwd"}, "", "", `asking channel SERVER/channel, it has moved to another host, file:///etc/passwd, which is not followed`},
	} {
		t.Run(name, func(t *testing.T) {
			paths := map[string]string{}
			s := answers(t, paths)
			for path, text := range tc.paths {
				paths[path] = strings.ReplaceAll(text, "SERVER", s.URL)
			}
			got, err := resolve(t.Context(), newChannels(t.Context(), nil, testOptions(), nil).client, s.URL+"/channel"+tc.query, "", "")
			text := ""
			if err != nil {
				text = strings.ReplaceAll(err.Error(), s.URL, "SERVER")
			}
			if got != tc.want || text != tc.wantErr {
				t.Errorf("got %q, %s; want %q, %s", got, text, tc.want, tc.wantErr)
			}
		})
	}
}

// A Plan must not reach, through its channel, what only the operator's machine can reach. Nor may a server lead it there.
func TestChannelAtALocalAddress(t *testing.T) {
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer s.Close()
	o := testOptions()
	o.Transport = outbound.NewTransport(false)
	_, err := resolve(t.Context(), newChannels(t.Context(), nil, o, nil).client, s.URL+"/v1", "", "")
	if asked || err == nil || !strings.Contains(err.Error(), "--allow-local-addresses") {
		t.Errorf("asked: %t, %v", asked, err)
	}
}

func TestResolveChannelThatIsNone(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for channel, want := range map[string]string{
		"http://[::1":        `asking channel, missing ']' in host`,
		"stable":             `asking channel stable, unsupported protocol scheme ""`,
		"ftp://example.com/": `asking channel ftp://example.com/, unsupported protocol scheme "ftp"`,
		gone.URL + "/stable": "asking channel " + gone.URL + "/stable, dial: connect: connection refused",
		strings.Replace(gone.URL, "//", "//user:secret@", 1) + "/stable?token=secret": "asking channel " + gone.URL + "/stable, dial: connect: connection refused",
	} {
		got, err := resolve(t.Context(), newChannels(t.Context(), nil, testOptions(), nil).client, channel, "", "")
		if got != "" || err == nil || err.Error() != want {
			t.Errorf("got %q, %v; want %s", got, err, want)
		}
	}
}

// Servers that system-upgrade-controller asks may look for its headers as it spells them, which is not how Go does.
func TestResolveChannelHeaders(t *testing.T) {
	for name, tc := range map[string]struct {
		latest, cluster string
		want            []string
	}{
		"both":    {"v1.31.1-k3s1", "cluster-uid", []string{"X-SUC-Cluster-ID: cluster-uid", "X-SUC-Latest-Version: v1.31.1-k3s1"}},
		"no past": {"", "cluster-uid", []string{"X-SUC-Cluster-ID: cluster-uid"}},
		"neither": {"", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			asked := make(chan []string, 1)
			go func() {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				defer func() { _ = connection.Close() }()
				var lines []string
				for s := bufio.NewScanner(connection); s.Scan() && s.Text() != ""; {
					lines = append(lines, s.Text())
				}
				asked <- lines
				_, _ = connection.Write([]byte("HTTP/1.1 302 Found\r\nLocation: /v1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			}()
			got, err := resolve(t.Context(), newChannels(t.Context(), nil, testOptions(), nil).client, "http://"+listener.Addr().String()+"/stable", tc.latest, tc.cluster)
			if err != nil || got != "v1" {
				t.Fatalf("got %q, %v", got, err)
			}
			lines := <-asked
			if lines[0] != "GET /stable HTTP/1.1" {
				t.Errorf("asked %q", lines[0])
			}
			lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(strings.ToLower(line), "x-suc-") })
			slices.Sort(lines)
			if diff := cmp.Diff(tc.want, lines, cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveChannelTimeout(t *testing.T) {
	asked := make(chan struct{})
	left := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	c := newChannels(t.Context(), nil, testOptions(), nil)
	if _, err := resolve(ctx, c.client, s.URL+"/stable", "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-left
	if c.client.Timeout != 15*time.Second {
		t.Errorf("a channel that never answers is given %s", c.client.Timeout)
	}
}

// channelServer is a server whose answer a test sets, and channels that ask it.
type channelServer struct {
	*channels
	*httptest.Server
	t     *testing.T
	clock *clocktesting.FakePassiveClock

	mu     sync.Mutex
	answer http.HandlerFunc
	asked  []string
	woken  chan types.NamespacedName
}

func (s *channelServer) wake(plan types.NamespacedName) { s.woken <- plan }

func newChannelServer(t *testing.T) *channelServer {
	s := &channelServer{t: t, clock: clocktesting.NewFakePassiveClock(now), woken: make(chan types.NamespacedName, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.URL.Path)
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Server.Close)
	s.channels = newChannels(t.Context(), s.clock, testOptions(), s.wake)
	return s
}

func (s *channelServer) says(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/"+version)
		w.WriteHeader(http.StatusFound)
	}
}

func (s *channelServer) breaks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
}

// hangs never answers; what it returns is closed when whoever asked has given up.
func (s *channelServer) hangs() (asked, left chan struct{}) {
	asked, left = make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	}
	return asked, left
}

// wakes waits until a Plan is told of an answer.
func (s *channelServer) wakes(plan types.NamespacedName) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	select {
	case got := <-s.woken:
		if got != plan {
			s.t.Errorf("woke %s, want %s", got, plan)
		}
	case <-ctx.Done():
		s.t.Fatalf("no one wakes %s", plan)
	}
}

func (s *channelServer) waits(what chan struct{}) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	select {
	case <-what:
	case <-ctx.Done():
		s.t.Fatal("it does not happen")
	}
}

// expect asks, and says what must be heard: after is how long after the present to look again, 0 while a poll runs, and a second while the
// first one does.
func (s *channelServer) expect(plan types.NamespacedName, path, answer, problem string, after time.Duration) {
	s.t.Helper()
	got, due, err := s.ask(plan, s.URL+path, "", "v0")
	text := ""
	if err != nil {
		text = strings.TrimPrefix(err.Error(), "asking channel "+s.URL+path+", ")
	}
	want := time.Time{}
	if after != 0 {
		want = s.clock.Now().Add(after)
	}
	if got != answer || text != problem || !due.Equal(want) {
		s.t.Errorf("at %s got %q, %s, %q; want %q, %s, %q", s.clock.Now(), got, due, text, answer, want, problem)
	}
}

func (s *channelServer) passes(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func (s *channelServer) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

var (
	planA = types.NamespacedName{Namespace: namespace, Name: "a"}
	planB = types.NamespacedName{Namespace: namespace, Name: "b"}
)

func TestChannelInterval(t *testing.T) {
	s := newChannelServer(t)
	s.says("v1")
	s.expect(planA, "/stable", "", "", time.Second)
	s.wakes(planA)
	s.expect(planA, "/stable", "v1", "", 15*time.Minute)

	s.says("v2")
	s.passes(15*time.Minute - 1)
	s.expect(planA, "/stable", "v1", "", 1)
	if n := s.times(); n != 1 {
		t.Fatalf("asked %d times before it is due", n)
	}
	// When it is due it is asked, and what it said before stays good meanwhile.
	s.passes(1)
	s.expect(planA, "/stable", "v1", "", 0)
	s.wakes(planA)
	s.expect(planA, "/stable", "v2", "", 15*time.Minute)

	// The same answer counts as one: it is asked again after another interval, and so on.
	for range 3 {
		s.passes(15 * time.Minute)
		s.expect(planA, "/stable", "v2", "", 0)
		s.wakes(planA)
		s.expect(planA, "/stable", "v2", "", 15*time.Minute)
	}
	if n := s.times(); n != 5 {
		t.Errorf("asked %d times", n)
	}
}

func TestChannelBackoff(t *testing.T) {
	const problem = "unexpected response: HTTP/1.1 404 Not Found"
	s := newChannelServer(t)
	s.breaks()
	s.expect(planA, "/stable", "", "", time.Second)
	for _, seconds := range []int{10, 20, 40, 80, 160, 320, 640, 900, 900} {
		after := time.Duration(seconds) * time.Second
		s.wakes(planA)
		s.expect(planA, "/stable", "", problem, after)
		s.passes(after - 1)
		s.expect(planA, "/stable", "", problem, 1)
		s.passes(1)
		s.expect(planA, "/stable", "", problem, 0)
	}
	s.wakes(planA)
	s.says("v1")
	s.passes(900 * time.Second)
	s.expect(planA, "/stable", "", problem, 0)
	s.wakes(planA)
	s.expect(planA, "/stable", "v1", "", 15*time.Minute)

	// After a success it is patient from the beginning, and what was said stays.
	s.breaks()
	s.passes(15 * time.Minute)
	s.expect(planA, "/stable", "v1", "", 0)
	s.wakes(planA)
	s.expect(planA, "/stable", "v1", problem, 10*time.Second)
	s.says("v2")
	s.passes(10 * time.Second)
	s.expect(planA, "/stable", "v1", problem, 0)
	s.wakes(planA)
	s.expect(planA, "/stable", "v2", "", 15*time.Minute)
}

func TestChannelOfAnotherURL(t *testing.T) {
	s := newChannelServer(t)
	s.says("v1")
	s.expect(planA, "/stable", "", "", time.Second)
	s.wakes(planA)
	s.expect(planA, "/stable", "v1", "", 15*time.Minute)

	// Another one is asked at once, and what the first said is not taken for its answer.
	s.says("v2")
	s.expect(planA, "/latest", "", "", time.Second)
	s.wakes(planA)
	s.expect(planA, "/latest", "v2", "", 15*time.Minute)
	if diff := cmp.Diff([]string{"/stable", "/latest"}, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}

	// One that is being asked is ignored, and its end wakes no one.
	s.passes(15 * time.Minute)
	asked, _ := s.hangs()
	s.expect(planA, "/latest", "v2", "", 0)
	s.waits(asked)
	s.says("v3")
	s.expect(planA, "/stable", "", "", time.Second)
	s.wakes(planA)
	s.expect(planA, "/stable", "v3", "", 15*time.Minute)
	select {
	case plan := <-s.woken:
		t.Errorf("woke %s once more", plan)
	default:
	}
}

func TestChannelForget(t *testing.T) {
	s := newChannelServer(t)
	s.forget(planA)
	asked, _ := s.hangs()
	s.expect(planA, "/stable", "", "", time.Second)
	s.waits(asked)
	s.forget(planA)
	// A Plan of the same name, made later, begins anew.
	s.says("v1")
	s.expect(planA, "/stable", "", "", time.Second)
	s.wakes(planA)
	s.expect(planA, "/stable", "v1", "", 15*time.Minute)
	s.forget(planA)
	s.expect(planA, "/stable", "", "", time.Second)
	s.wakes(planA)
}

// One that never answers holds up no one, and is asked no second time meanwhile.
func TestChannelThatHangs(t *testing.T) {
	s := newChannelServer(t)
	asked, _ := s.hangs()
	s.expect(planA, "/stable", "", "", time.Second)
	s.waits(asked)
	s.says("v1")
	s.expect(planB, "/stable", "", "", time.Second)
	s.wakes(planB)
	s.expect(planB, "/stable", "v1", "", 15*time.Minute)
	s.passes(24 * time.Hour)
	s.expect(planA, "/stable", "", "", 0)
	if n := s.times(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	s.forget(planA)
}

// When the controller ends, so does what it asks.
func TestChannelsEnd(t *testing.T) {
	s := newChannelServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.channels = newChannels(ctx, s.clock, testOptions(), s.wake)
	asked, left := s.hangs()
	s.expect(planA, "/stable", "", "", time.Second)
	s.waits(asked)
	cancel()
	s.waits(left)
}

// What a channel answered before a restart is kept while it does not answer, also when the Plan is edited.
func TestChannelKnownBefore(t *testing.T) {
	s, plan := newChannelServer(t), types.NamespacedName{Name: "p"}
	s.breaks()
	if answer, _, err := s.ask(plan, s.URL+"/channel", "v1", "v1"); answer != "v1" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	s.wakes(plan)
	if answer, _, err := s.ask(plan, s.URL+"/channel", "", "v1"); answer != "v1" || err == nil {
		t.Errorf("after an edit %q, %v", answer, err)
	}
	if answer, _, _ := s.ask(plan, s.URL+"/other", "", "v1"); answer != "" {
		t.Errorf("another channel: %q", answer)
	}
}
