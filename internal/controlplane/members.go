// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Member is one member of etcd.
type Member struct {
	// ID is etcd's own.
	ID uint64
	// Name is the node's name if kubeadm made it. It is empty until the member has started for the first time.
	Name string
	// Peers and Clients are the URLs that other members, and clients, reach it at.
	Peers, Clients []string
	// Learner is true until the member may vote.
	Learner bool
	// Leader is true for the member that leads.
	Leader bool
	// Problem says what is wrong with the member; empty when it is healthy.
	Problem string
}

// String is the member's name in messages.
func (m *Member) String() string {
	if m.Name != "" {
		return m.Name
	}
	return m.address()
}

func (m *Member) address() string {
	return fmt.Sprintf("%x at %s", m.ID, strings.Join(m.Peers, ","))
}

// listensAt reports whether a URL is one of those for clients.
func (m *Member) listensAt(client string) bool { return slices.Contains(m.Clients, client) }

// unhealthy says why the member is not a healthy voter, or returns "".
func (m *Member) unhealthy() string {
	switch {
	case m.Name == "":
		return "has not started yet"
	case m.Problem != "":
		return m.Problem
	case m.Learner:
		return "is a learner, and does not vote yet"
	}
	return ""
}

// identity is what identifies a node's member: the node's name, its addresses, and the client URLs of its etcd pod.
type identity struct {
	node           string
	hosts, clients []string
}

// memberIn finds the node's member: by its name, else by the address of its peer URL, else by its client URL. Nil: the node has none.
func (i identity) memberIn(members []*Member) (*Member, error) {
	for _, matches := range []func(*Member) bool{
		func(m *Member) bool { return m.Name == i.node },
		func(m *Member) bool { return slices.ContainsFunc(m.Peers, i.hasAddress) },
		func(m *Member) bool { return slices.ContainsFunc(i.clients, m.listensAt) },
	} {
		var found *Member
		var addresses []string
		for _, m := range members {
			if matches(m) {
				found, addresses = m, append(addresses, m.address())
			}
		}
		if len(addresses) > 1 {
			return nil, fmt.Errorf("%d members of etcd could be that of node %s (%s): remove those that are not",
				len(addresses), i.node, strings.Join(addresses, ", "))
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, nil //nolint:nilnil // The node has none.
}

// hasAddress reports whether a peer URL has one of the node's addresses.
func (i identity) hasAddress(peer string) bool {
	u, err := url.Parse(peer)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return slices.ContainsFunc(i.hosts, func(host string) bool {
		return strings.EqualFold(host, u.Hostname()) || ip != nil && ip.Equal(net.ParseIP(host))
	})
}

// callTimeout bounds the calls to a member in one step.
const callTimeout = 4 * time.Second

// Connector connects to members of etcd.
type Connector interface {
	// Connect prepares calls to the member that listens at a URL. It need not reach the member yet.
	Connect(endpoint string) (Conn, error)
}

// Conn is what a Plane needs of etcd's client.
type Conn interface {
	MemberList(ctx context.Context, options ...clientv3.OpOption) (*clientv3.MemberListResponse, error)
	Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error)
	Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error)
	AlarmList(ctx context.Context) (*clientv3.AlarmResponse, error)
	MoveLeader(ctx context.Context, to uint64) (*clientv3.MoveLeaderResponse, error)
	MemberRemove(ctx context.Context, id uint64) (*clientv3.MemberRemoveResponse, error)
	Close() error
}

// Certificates is a directory with the certificates for etcd: ca.crt, and the first pair of clientPairs that exists.
// The files are read for each connection: they may be renewed at any time.
type Certificates string

// clientPairs are names of a client's certificate and key, without .crt and .key: kubeadm's client pair, the pair that Ducklett used, and the pair of a Secret
// of type kubernetes.io/tls.
var clientPairs = []string{"healthcheck-client", "server", "tls"}

// Connect implements Connector. For http:// it reads no certificates.
func (c Certificates) Connect(endpoint string) (Conn, error) {
	config := clientv3.Config{
		Endpoints: []string{endpoint},
		Logger:    zap.NewNop(),
		// The caller observes etcd again, and tries again.
		MaxUnaryRetries: 2,
		DialOptions:     []grpc.DialOption{grpc.WithNoProxy(), grpc.WithChainUnaryInterceptor(failFast)},
	}
	if !strings.HasPrefix(endpoint, "http://") {
		var err error
		if config.TLS, err = c.tls(); err != nil {
			return nil, fmt.Errorf("reading the certificates for etcd, %w", err)
		}
	}
	return clientv3.New(config)
}

// tls reads the certificates as etcdctl does.
func (c Certificates) tls() (*tls.Config, error) {
	dir := string(c)
	for _, name := range clientPairs {
		base := filepath.Join(dir, name)
		if _, err := os.Stat(base + ".crt"); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return transport.TLSInfo{TrustedCAFile: filepath.Join(dir, "ca.crt"), CertFile: base + ".crt", KeyFile: base + ".key"}.ClientConfig()
	}
	return nil, fmt.Errorf("%s holds none of the pairs .crt and .key of %s", dir, strings.Join(clientPairs, ", "))
}

// failFast makes a call fail with the reason why the connection can't be made. By default etcd's client waits, and reports only the timeout.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// shorten makes an error of etcd's client readable.
func shorten(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", callTimeout)
	}
	if s, ok := status.FromError(err); ok && err != nil && s.Message() != "" {
		return errors.New(strings.Trim(strings.TrimPrefix(s.Message(), "connection error: desc = "), `"`))
	}
	return err
}
