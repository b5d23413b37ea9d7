// SPDX-License-Identifier: Apache-2.0

// Package etcd runs real clusters of etcd for tests, set up as kubeadm does: a member for each node, with mutual TLS, that joins as a learner
// and is promoted. Each member is a process of this machine with an address of its own in 127.0.0.0/8, and ports 2379 and 2380 there.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"moult.dev/moult/test/cluster"
)

const (
	// most is how many members there can be in the course of a cluster's life.
	most = 64
	// retry is how long to wait before a member is asked again.
	retry = 200 * time.Millisecond
)

// Cluster is a cluster of etcd. It is safe for concurrent use.
type Cluster struct {
	program, dir string

	mu      sync.Mutex
	members map[string]*member
	used    int
	network [2]byte
}

// member is one, which runs or does not.
type member struct {
	name, host string
	// others is how it is told who else there is, when it starts for the first time.
	others, state string

	// life is held by whoever starts or stops it.
	life   sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	// stopped says that it does not run because it is not to.
	stopped bool
}

// Start starts a cluster with a voter for each name, and ends it with the test.
func Start(t testing.TB, names ...string) *Cluster {
	t.Helper()
	programs, err := cluster.Binaries(t.Context(), os.Stderr, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{program: programs["etcd"], dir: t.TempDir(), members: map[string]*member{}}
	c.network = [2]byte{byte(1 + rand.IntN(250)), byte(rand.IntN(250))}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	for i := range most {
		addresses = append(addresses, c.address(i))
	}
	if err := writeCertificates(c.Certificates(), addresses); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range c.Names() {
			if t.Failed() {
				t.Logf("etcd member %s:\n%s", name, c.tail(name))
			}
			c.Stop(name)
		}
	})
	var initial []string
	for _, name := range names {
		m := c.add(name)
		initial = append(initial, name+"="+m.peer())
	}
	for _, name := range names {
		m := c.member(name)
		m.others, m.state = strings.Join(initial, ","), "new"
		if err := c.Resume(name); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, name := range names {
		if err := c.answers(ctx, name); err != nil {
			t.Fatalf("etcd member %s does not answer: %v", name, err)
		}
	}
	return c
}

// Certificates is the directory with those of the cluster, as kubeadm names them.
func (c *Cluster) Certificates() string { return filepath.Join(c.dir, "pki") }

// Names are those of all members that there ever were, and were not forgotten.
func (c *Cluster) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.members {
		names = append(names, name)
	}
	return names
}

// Host is the address of a member.
func (c *Cluster) Host(name string) string { return c.member(name).host }

// URL is where a member listens to clients.
func (c *Cluster) URL(name string) string { return c.member(name).client() }

// Client speaks to the members of these names. It must be closed.
func (c *Cluster) Client(names ...string) (*clientv3.Client, error) {
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for _, name := range names {
		endpoints = append(endpoints, c.URL(name))
	}
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, Logger: zap.NewNop(), MaxUnaryRetries: 2})
}

// Found makes the first member of a cluster that was started without.
func (c *Cluster) Found(ctx context.Context, name string) error {
	m := c.add(name)
	m.others, m.state = name+"="+m.peer(), "new"
	if err := c.Resume(name); err != nil {
		return err
	}
	return c.answers(ctx, name)
}

// Join makes a member as kubeadm does: it is added as a learner by way of another, started, and promoted once it has caught up.
func (c *Cluster) Join(ctx context.Context, name, via string) error {
	if err := c.JoinAsLearner(ctx, name, via); err != nil {
		return err
	}
	return c.Promote(ctx, name, via)
}

// JoinAsLearner makes a member that does not vote.
func (c *Cluster) JoinAsLearner(ctx context.Context, name, via string) error {
	m := c.add(name)
	err := c.until(ctx, via, func(ctx context.Context, client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		members := list.Members
		// The answer to an earlier try may have been lost.
		if !slices.ContainsFunc(members, m.is) {
			added, err := client.MemberAddAsLearner(ctx, []string{m.peer()})
			if err != nil {
				return err
			}
			members = added.Members
		}
		var all []string
		for _, other := range members {
			called := other.Name
			if m.is(other) {
				called = name
			}
			for _, peer := range other.PeerURLs {
				all = append(all, called+"="+peer)
			}
		}
		m.others, m.state = strings.Join(all, ","), "existing"
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding etcd member %s, %w", name, err)
	}
	return c.Resume(name)
}

// Promote lets a learner vote.
func (c *Cluster) Promote(ctx context.Context, name, via string) error {
	err := c.until(ctx, via, func(ctx context.Context, client *clientv3.Client) error {
		if err := c.restart(name); err != nil {
			return err
		}
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.Name == name && m.IsLearner {
				_, err = client.MemberPromote(ctx, m.ID)
				return err
			}
			if m.Name == name {
				return nil
			}
		}
		return errors.New("it has not started yet")
	})
	if err != nil {
		return fmt.Errorf("promoting etcd member %s, %w", name, err)
	}
	return c.answers(ctx, name)
}

// Resume starts the process of a member, with what it knew before.
func (c *Cluster) Resume(name string) error {
	m := c.member(name)
	m.life.Lock()
	defer m.life.Unlock()
	m.stopped = false
	return c.run(m)
}

// restart starts the process of a member that joins again where it has ended of itself, as a kubelet does: it ends when another
// whom it asks does not know of it yet.
func (c *Cluster) restart(name string) error {
	m := c.member(name)
	m.life.Lock()
	defer m.life.Unlock()
	if m.cmd == nil || m.stopped {
		return nil
	}
	select {
	case <-m.exited:
		return c.run(m)
	default:
		return nil
	}
}

// run starts the process of a member. The caller holds its life.
func (c *Cluster) run(m *member) error {
	log, err := os.OpenFile(c.log(m.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	pki := c.Certificates()
	cmd := exec.Command(c.program,
		"--name="+m.name, "--data-dir="+filepath.Join(c.dir, m.name),
		"--listen-client-urls="+m.client(), "--advertise-client-urls="+m.client(),
		"--listen-peer-urls="+m.peer(), "--initial-advertise-peer-urls="+m.peer(),
		"--initial-cluster="+m.others, "--initial-cluster-state="+m.state,
		"--client-cert-auth=true", "--trusted-ca-file="+filepath.Join(pki, "ca.crt"),
		"--cert-file="+filepath.Join(pki, "server.crt"), "--key-file="+filepath.Join(pki, "server.key"),
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file="+filepath.Join(pki, "ca.crt"),
		"--peer-cert-file="+filepath.Join(pki, "peer.crt"), "--peer-key-file="+filepath.Join(pki, "peer.key"),
		// A busy machine must not make them vote again and again, nor a slow disk hold them up.
		"--heartbeat-interval=300", "--election-timeout=3000", "--unsafe-no-fsync", "--log-level=warn",
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // It ends with the test, however that ends.
	exited, started := make(chan struct{}), make(chan error)
	go func() {
		// The kernel ties the child to the thread that starts it, so that the thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // How it ends is in its log.
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting etcd member %s, %w", m.name, err)
	}
	m.cmd, m.exited = cmd, exited
	return nil
}

// Stop ends the process of a member as a power cut does, and returns when it is gone.
func (c *Cluster) Stop(name string) {
	c.mu.Lock()
	m := c.members[name]
	c.mu.Unlock()
	if m == nil {
		return
	}
	m.life.Lock()
	defer m.life.Unlock()
	m.stopped = true
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // Unless it has ended already.
	<-m.exited
}

// Freeze stops the process of a member without ending it: it takes connections, and does not answer. Thaw lets it go on.
func (c *Cluster) Freeze(name string) error { return c.signal(name, syscall.SIGSTOP) }

// Thaw lets a frozen member go on.
func (c *Cluster) Thaw(name string) error { return c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s os.Signal) error {
	m := c.member(name)
	m.life.Lock()
	defer m.life.Unlock()
	return m.cmd.Process.Signal(s)
}

// add makes place for a member.
func (c *Cluster) add(name string) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &member{name: name, host: c.address(c.used).String()}
	c.used++
	c.members[name] = m
	return m
}

func (c *Cluster) member(name string) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[name]; m != nil {
		return m
	}
	return &member{name: name}
}

func (c *Cluster) address(i int) net.IP { return net.IPv4(127, c.network[0], c.network[1], byte(i+1)) }

func (m *member) client() string { return "https://" + net.JoinHostPort(m.host, "2379") }
func (m *member) peer() string   { return "https://" + net.JoinHostPort(m.host, "2380") }

// is reports whether that is what etcd knows of the member.
func (m *member) is(other *etcdserverpb.Member) bool {
	return slices.Contains(other.PeerURLs, m.peer())
}

func (c *Cluster) log(name string) string { return filepath.Join(c.dir, name+".log") }

// tail is the end of what a member has logged.
func (c *Cluster) tail(name string) []byte {
	all, err := os.ReadFile(c.log(name))
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(all, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-10):], []byte("\n"))
}

func (c *Cluster) tls() (*tls.Config, error) {
	base := filepath.Join(c.Certificates(), "healthcheck-client")
	pair, err := tls.LoadX509KeyPair(base+".crt", base+".key")
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(c.Certificates(), "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// answers waits until a member gives what a quorum agrees on.
func (c *Cluster) answers(ctx context.Context, name string) error {
	return c.until(ctx, name, func(ctx context.Context, client *clientv3.Client) error {
		if err := c.restart(name); err != nil {
			return err
		}
		_, err := client.Get(ctx, "any")
		return err
	})
}

// until tries until it succeeds.
func (c *Cluster) until(ctx context.Context, via string, try func(context.Context, *clientv3.Client) error) error {
	client, err := c.Client(via)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(once, client)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
