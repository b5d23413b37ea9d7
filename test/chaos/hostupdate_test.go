// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/cluster"
)

const (
	hostRollout = "hosts"
	hostPool    = "hosts"
	hostNodes   = 5
	// hostsAtOnce is how many hosts may be in a turn.
	hostsAtOnce = 2
	// rebootDelay is how long a host stays up after it is ordered to reboot, and rebootTime how long it is down.
	rebootDelay, rebootTime = 150 * time.Millisecond, 150 * time.Millisecond
)

// hosts are brought from release to release. The agents run in this process. They are killed too.
type hosts struct {
	*harness
	count int
	hosts []*simulatedHost

	mu sync.Mutex
	// releases so far. The first is what the hosts begin with.
	releases []string
}

const (
	hostPrepares  = "telling a host to prepare"
	hostPerforms  = "telling a host to perform"
	hostCordons   = "cordoning a host"
	hostEvicts    = "evicting a pod from a host"
	hostReboots   = "telling a host to reboot"
	hostUncordons = "uncordoning a host"
	hostEnds      = "letting a host go"
	hostReports   = "writing the status of hosts"

	agentStarts  = "an agent taking up an order"
	agentReboots = "an agent taking up the order to reboot"
	agentReports = "an agent reporting that it is done"
)

func (h *hosts) name() string { return "host update" }

func (h *hosts) holder() string { return "NodeRollout/" + hostRollout }

func (h *hosts) targets() []target {
	// The order to prepare comes with the claim.
	all := []target{{name: hostPrepares}}
	for _, name := range []string{
		hostPerforms, hostCordons, hostEvicts, hostReboots, hostReboots, hostUncordons, hostEnds, hostReports, agentStarts, agentReboots, agentReboots, agentReports,
	} {
		all = append(all, target{name: name, late: true})
	}
	return all
}

func (h *hosts) writeOf(r *http.Request, body []byte) string {
	says := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/eviction") && strings.Contains(path, "/"+serving+hostPool):
		return hostEvicts
	case r.Method == http.MethodPatch && strings.HasSuffix(path, "/noderollouts/"+hostRollout+"/status"):
		return hostReports
	case h.nodeWrite(r, body) != h.holder():
	case says(`/action-wanted":"prepare-update"`):
		return hostPrepares
	case says(`/action-wanted":"perform-update"`):
		return hostPerforms
	case says(`/action-wanted":"reboot-update"`):
		return hostReboots
	case says(`"unschedulable":true`):
		return hostCordons
	case says(`"unschedulable":null`), says(`"unschedulable":false`):
		return hostUncordons
	case says(`/action-wanted":"stabilize"`):
		return hostEnds
	}
	return ""
}

// writeOfAgent is which write of an agent a request is.
func writeOfAgent(r *http.Request, body []byte) write {
	says := func(text string) bool { return r.Method == http.MethodPatch && bytes.Contains(body, []byte(text)) }
	name := ""
	switch {
	case says(`"busy"`) && says(`"reboot-update"`):
		name = agentReboots
	case says(`"busy"`):
		name = agentStarts
	case says(`"ready"`):
		name = agentReports
	default:
		return write{}
	}
	return write{(*hosts)(nil).name(), name}
}

func releaseOf(n int) string { return fmt.Sprintf("1.%d.0", 10+n) }

func osImage(release string) string {
	return fmt.Sprintf("Bottlerocket OS %s (%s)", release, bottlerocket.Variant)
}

func (h *hosts) prepare(ctx context.Context) {
	h.t.Helper()
	h.releases = []string{releaseOf(0), releaseOf(1)}
	h.addNodes(ctx, hostPool, h.count, map[string]string{"bottlerocket.aws/updater-interface-version": "2.0.0"}, osImage(h.releases[0]))
	h.serve(ctx, hostPool, 3, 1)
	for i := range h.count {
		var n corev1.Node
		if err := h.client.Get(ctx, client.ObjectKey{Name: fmt.Sprintf("%s-%d", hostPool, i+1)}, &n); err != nil {
			h.t.Fatal(err)
		}
		s := &simulatedHost{ctx: ctx, fleet: h, node: n.Name, boot: n.Status.NodeInfo.BootID, boots: []string{h.releases[0]}}
		h.hosts = append(h.hosts, s)
		h.background.Go(func() {
			if err := s.run(ctx); err != nil && ctx.Err() == nil {
				h.t.Errorf("running host %s, %v", s.node, err)
			}
		})
	}
}

func (h *hosts) begin(ctx context.Context) {
	h.t.Helper()
	h.create(ctx, &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: hostRollout},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelPool: hostPool}},
			Strategy:     &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(hostsAtOnce))},
			HostUpdate:   &v1alpha1.HostUpdate{RebootTimeout: &metav1.Duration{Duration: time.Hour}},
		},
	})
}

// newest is the newest release.
func (h *hosts) newest() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.releases[len(h.releases)-1]
}

func (h *hosts) missing() string {
	version, updated := h.newest(), 0
	h.journal.see(func(latest map[string]client.Object) {
		for _, o := range latest {
			n, ok := o.(*corev1.Node)
			if ok && n.Labels[labelPool] == hostPool && n.Status.NodeInfo.OSImage == osImage(version) && leftOn(n) == "" &&
				bottlerocket.Intent(n) == bottlerocket.UpToDate {
				updated++
			}
		}
	})
	r := find[*v1alpha1.NodeRollout](h.journal, hostRollout)
	if updated == h.count && r != nil && r.Status.Revision == version && r.Status.Counts != nil && int(r.Status.Counts.Updated) == h.count &&
		meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady) {
		return ""
	}
	text := fmt.Sprintf("%s is on %d hosts", version, updated)
	h.journal.see(func(latest map[string]client.Object) {
		for _, s := range h.hosts {
			if n, ok := latest[keyOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}})].(*corev1.Node); ok {
				text += "; " + bottlerocket.Intent(n)
			}
		}
	})
	return text
}

func (h *hosts) ask(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, releaseOf(len(h.releases)))
	return nil
}

func (h *hosts) busy(ctx context.Context) (bool, error) { return claimed(ctx, h.client, h.holder()) }

func (h *hosts) invariants() []invariant {
	turns := sets.New[string]()
	return []invariant{
		limited("the host update's concurrency is not exceeded", h.holder(), hostsAtOnce, hostPool),
		ofNodes("a host has one turn for a release", func(_ *replay, old, n *corev1.Node) string {
			if old == nil || !strings.HasPrefix(bottlerocket.Intent(n), bottlerocket.Updated[0]) || strings.HasPrefix(bottlerocket.Intent(old), bottlerocket.Updated[0]) {
				return ""
			}
			turn := n.Name + " " + n.Status.NodeInfo.OSImage
			if turns.Has(turn) {
				return "it is again ordered to prepare, from " + n.Status.NodeInfo.OSImage
			}
			turns.Insert(turn)
			return ""
		}),
		ofNodes("a host is ordered to reboot only when it is drained", func(r *replay, old, n *corev1.Node) string {
			const order = "reboot-update,perform-update"
			if old == nil || !strings.HasPrefix(bottlerocket.Intent(n), order) || strings.HasPrefix(bottlerocket.Intent(old), order) {
				return ""
			}
			if pods := r.remaining(n.Name); len(pods) > 0 || !n.Spec.Unschedulable {
				return fmt.Sprintf("it is unschedulable %t, and has the pods %v", n.Spec.Unschedulable, pods)
			}
			return ""
		}),
	}
}

// checkEnd expects that each host booted once into each release.
func (h *hosts) checkEnd(*replay) {
	h.t.Helper()
	for _, s := range h.hosts {
		s.mu.Lock()
		if !slices.Equal(s.boots, h.releases) {
			h.t.Errorf("host %s has booted into %v, want one boot into each of %v", s.node, s.boots, h.releases)
		}
		s.mu.Unlock()
	}
	h.t.Logf("hosts had %d releases", len(h.releases)-1)
}

// simulatedHost is a host of which there is only what its agent sees, with its agent.
type simulatedHost struct {
	ctx   context.Context //nolint:containedctx // A reboot outlives the agent that has ordered it.
	fleet *hosts
	node  string

	mu              sync.Mutex
	boot            string
	prepared, order string
	rebooting, down bool
	// boots are the releases that it has booted into.
	boots []string
	life  *agentLife
}

// agentLife is an agent's process, so to say.
type agentLife struct {
	host *simulatedHost
	ctx  context.Context //nolint:containedctx // The context is the process.
	end  context.CancelFunc
	// dead is true once nothing must leave the process any more.
	dead atomic.Bool
	base http.RoundTripper
}

var (
	_       host.Host = (*agentLife)(nil)
	errDead           = errors.New("the agent is dead")
)

// Kill ends the agent. It is started again.
func (l *agentLife) Kill() {
	l.dead.Store(true)
	l.end()
}

// RoundTrip sends a request of the agent, or kills it.
func (l *agentLife) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.dead.Load() {
		return nil, errDead
	}
	if r.Method == http.MethodGet || r.GetBody == nil {
		return l.base.RoundTrip(r)
	}
	var body bytes.Buffer
	reader, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	if _, err := body.ReadFrom(reader); err != nil {
		return nil, err
	}
	killed := l.host.fleet.trap.take(writeOfAgent(r, body.Bytes()), l, func() {
		own := r.Clone(context.WithoutCancel(r.Context()))
		own.Body, _ = r.GetBody()
		if response, err := l.base.RoundTrip(own); err == nil {
			_ = response.Body.Close()
		}
	})
	if killed {
		return nil, errDead
	}
	return l.base.RoundTrip(r)
}

// run lets agents run one after the other, until the context ends.
func (s *simulatedHost) run(ctx context.Context) error {
	for ctx.Err() == nil {
		l := &agentLife{host: s}
		l.ctx, l.end = context.WithCancel(ctx) //nolint:fatcontext // Each life has a context of its own.
		config := s.fleet.cluster.Config()
		config.UserAgent = "moult-agent/chaos"
		config.Wrap(func(base http.RoundTripper) http.RoundTripper {
			l.base = base
			return l
		})
		a, err := agent.New(agent.Options{
			NodeName: s.node, Config: config, ReadAsNode: agent.ReadAsNodeNever, CheckInterval: 500 * time.Millisecond, RebootGrace: time.Hour,
			Host: func(v1alpha1.HostProtocol, string) (host.Host, error) { return l, nil },
		})
		if err != nil {
			return err
		}
		if s.begin(l) {
			err = a.Run(l.ctx)
		} else {
			time.Sleep(5 * time.Millisecond)
		}
		if err != nil && l.ctx.Err() == nil {
			return err
		}
		l.end()
	}
	return nil
}

// begin makes this the host's agent, unless the host is down.
func (s *simulatedHost) begin(l *agentLife) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		s.life = l
	}
	return !s.down
}

// reboot reboots the host some time after it was told to.
func (s *simulatedHost) reboot(ctx context.Context) {
	time.Sleep(rebootDelay)
	s.mu.Lock()
	s.down = true
	s.life.Kill()
	s.mu.Unlock()
	time.Sleep(rebootTime)
	s.mu.Lock()
	running := cmp.Or(s.order, s.boots[len(s.boots)-1])
	s.boots = append(s.boots, running)
	s.boot, s.prepared, s.order, s.rebooting = string(uuid.NewUUID()), "", "", false
	text := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q,"osImage":%q}}}`, s.boot, osImage(running))
	s.mu.Unlock()
	for ctx.Err() == nil {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}
		err := s.fleet.client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, text))
		if err != nil && !cluster.Passing(err) && ctx.Err() == nil {
			s.fleet.t.Errorf("reporting the boot of %s, %v", s.node, err)
		}
		if err == nil || !cluster.Passing(err) {
			break
		}
	}
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
}

// Version is what runs.
func (l *agentLife) Version(context.Context) (string, error) {
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	return l.host.boots[len(l.host.boots)-1], l.alive()
}

func (l *agentLife) alive() error {
	if l.dead.Load() {
		return errDead
	}
	return nil
}

// BootID is that of the present boot.
func (l *agentLife) BootID() (string, error) {
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	return l.host.boot, l.alive()
}

// Check offers the newest release.
func (l *agentLife) Check(ctx context.Context) (host.Offer, error) {
	version, err := l.Version(ctx)
	if newest := l.host.fleet.newest(); newest != version {
		return host.Offer{Available: true, Version: newest}, err
	}
	return host.Offer{}, err
}

// Prepare fetches the newest release.
func (l *agentLife) Prepare(_ context.Context, version string) error {
	newest := l.host.fleet.newest()
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	if version != "" && version != newest {
		return host.ErrOther
	}
	if err := l.alive(); err != nil {
		return err
	}
	l.host.prepared = newest
	return nil
}

// Perform makes the next boot one into what was prepared.
func (l *agentLife) Perform(_ context.Context, version string) error {
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	if l.host.prepared == "" || version != "" && version != l.host.prepared {
		return host.ErrOther
	}
	if err := l.alive(); err != nil {
		return err
	}
	l.host.order = l.host.prepared
	return nil
}

// Rollback is not ordered.
func (l *agentLife) Rollback(context.Context) error { return l.alive() }

// Revert makes the next boot one into what runs.
func (l *agentLife) Revert(context.Context) error {
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	l.host.order = ""
	return l.alive()
}

// Reboot tells the host to reboot. It ends with the process, as it does on a host that goes down.
func (l *agentLife) Reboot(ctx context.Context) error {
	l.host.mu.Lock()
	if err := l.alive(); err != nil {
		l.host.mu.Unlock()
		return err
	}
	if !l.host.rebooting {
		l.host.rebooting = true
		l.host.fleet.background.Go(func() { l.host.reboot(l.host.ctx) })
	}
	l.host.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}
