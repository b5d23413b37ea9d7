// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/outbound"
)

const (
	channelTimeout    = 15 * time.Second
	channelFirstRetry = 10 * time.Second
)

// channels polls the channels of Plans, each in its own goroutine, so a channel that never answers delays no other Plan. The clock wakes the
// Plan when the next poll is due.
type channels struct {
	clock     clock.PassiveClock
	interval  time.Duration
	clusterID string
	client    *http.Client
	// wake wakes a Plan whose channel has answered.
	wake func(plan types.NamespacedName)

	mu    sync.Mutex
	polls map[types.NamespacedName]*poll
	// ctx ends with the controller.
	ctx context.Context //nolint:containedctx // Polls outlive the reconcile that starts them.
}

// poll is the state of one Plan's channel.
type poll struct {
	url     string
	running bool
	due     time.Time
	retry   time.Duration
	// answer is the last good answer. err is why the polls since then failed, or nil.
	answer string
	err    error
}

func newChannels(ctx context.Context, clk clock.PassiveClock, o *Options, wake func(types.NamespacedName)) *channels {
	return &channels{
		ctx: ctx, clock: clk, interval: o.PollingInterval, clusterID: o.ClusterID, wake: wake,
		polls:  map[types.NamespacedName]*poll{},
		client: &http.Client{Timeout: channelTimeout, CheckRedirect: followMove, Transport: o.Transport},
	}
}

// followMove follows a channel that has moved on the same host. A 302 is the answer, and any other status than these is an error.
func followMove(next *http.Request, before []*http.Request) error {
	switch next.Response.StatusCode {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return outbound.SameHost(next, before)
	}
	return http.ErrUseLastResponse
}

// ask returns the last answer of the Plan's channel, the error of the last poll, and when the next poll is due. It starts a
// due poll. While a poll runs the due time is zero, because the answer wakes the Plan; but for the first second of the first poll it
// is the end of that second. known is what the channel answered before a restart, or "".
func (c *channels) ask(plan types.NamespacedName, channel, known, latest string) (answer string, due time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.polls[plan]
	if p == nil || p.url != channel {
		p = &poll{url: channel, due: c.clock.Now(), retry: channelFirstRetry}
		c.polls[plan] = p
	}
	p.answer = cmp.Or(p.answer, known)
	if !p.running && !c.clock.Now().Before(p.due) {
		p.running = true
		go c.run(plan, p, latest)
	}
	if firstSecond := p.due.Add(fleet.StatusInterval); !p.running {
		due = p.due
	} else if p.answer == "" && p.err == nil && c.clock.Now().Before(firstSecond) {
		due = firstSecond
	}
	return p.answer, due, p.err
}

// forget stops polling for a Plan that is deleted, or that has no channel any more.
func (c *channels) forget(plan types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.polls, plan)
}

func (c *channels) run(plan types.NamespacedName, p *poll, latest string) {
	answer, err := resolve(c.ctx, c.client, p.url, latest, c.clusterID)
	c.mu.Lock()
	p.running = false
	if err != nil {
		p.err = err
		p.due = c.clock.Now().Add(p.retry)
		p.retry = min(2*p.retry, c.interval)
	} else {
		p.answer, p.err = answer, nil
		p.due = c.clock.Now().Add(c.interval)
		p.retry = channelFirstRetry
	}
	current := c.polls[plan] == p
	c.mu.Unlock()
	if current {
		c.wake(plan)
	}
}

// resolve polls a channel once. After a 302 the answer is the last path element of its Location. After a 2xx the answer is
// the last path element of the channel's own URL: such a URL pins a version.
func resolve(ctx context.Context, client *http.Client, channel, latest, clusterID string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, channel, nil)
	if err != nil {
		return "", fmt.Errorf("asking channel, %w", cause(err))
	}
	// Servers may look for these names as they are written here.
	if clusterID != "" {
		request.Header["X-SUC-Cluster-ID"] = []string{clusterID}
	}
	if latest != "" {
		request.Header["X-SUC-Latest-Version"] = []string{latest}
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking channel %s, %w", outbound.Redacted(request.URL), cause(err))
	}
	_ = response.Body.Close()
	at := response.Request.URL
	name := outbound.Redacted(at)
	switch code := response.StatusCode; {
	case code == http.StatusFound:
		location, err := response.Location()
		if err != nil {
			return "", fmt.Errorf("asking channel %s, 302 without a usable Location, %w", name, cause(err))
		}
		return lastElement(location)
	case code >= 200 && code < 300:
		return lastElement(at)
	default:
		return "", fmt.Errorf("asking channel %s, unexpected response: %s %s", name, response.Proto, response.Status)
	}
}

// cause returns why a request failed, without URLs, which may hold secrets, and without details that differ each time, such as the source port.
func cause(err error) error {
	for inner, ok := errors.AsType[*url.Error](err); ok; inner, ok = errors.AsType[*url.Error](err) {
		err = inner.Err
	}
	if inner, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", inner.Op, inner.Err)
	}
	return err
}

func lastElement(u *url.URL) (string, error) {
	last := path.Base(u.Path)
	if last == "/" || last == "." {
		return "", errors.New("asking channel, the answer " + outbound.Redacted(u) + " has no last path element")
	}
	return last, nil
}
