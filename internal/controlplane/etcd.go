// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// DefaultCertificates is the directory in which kubeadm keeps the certificates of etcd.
const DefaultCertificates = "/etc/kubernetes/pki/etcd"

// callTimeout bounds a call to a member.
const callTimeout = 4 * time.Second

// Certificates is a directory with the certificates for etcd: ca.crt, and the first pair of clientPairs that exists. Empty is DefaultCertificates.
// The files are read for each connection: they may be renewed at any time.
type Certificates string

// clientPairs are names of a client's certificate and key, without .crt and .key: kubeadm's own for clients, the one that Ducklett used, and that of
// a Secret of type kubernetes.io/tls.
var clientPairs = []string{"healthcheck-client", "server", "tls"}

// Connect prepares to speak to the member at that URL. For http:// it reads no certificates.
func (c Certificates) Connect(endpoint string) (Conn, error) {
	config := clientv3.Config{
		Endpoints: []string{endpoint},
		Logger:    zap.NewNop(),
		// The caller tries again, after it has observed etcd again.
		MaxUnaryRetries: 2,
		DialOptions:     []grpc.DialOption{grpc.WithNoProxy(), grpc.WithChainUnaryInterceptor(failFast)},
	}
	if !strings.HasPrefix(endpoint, "http://") {
		var err error
		if config.TLS, err = c.tls(); err != nil {
			return nil, fmt.Errorf("reading the certificates for etcd, %w", err)
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	return &conn{endpoint: endpoint, client: client}, nil
}

// tls reads the certificates as etcdctl does.
func (c Certificates) tls() (*tls.Config, error) {
	dir := cmp.Or(string(c), DefaultCertificates)
	for _, name := range clientPairs {
		base := filepath.Join(dir, name)
		if _, err := os.Stat(base + ".crt"); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return transport.TLSInfo{TrustedCAFile: filepath.Join(dir, "ca.crt"), CertFile: base + ".crt", KeyFile: base + ".key"}.ClientConfig()
	}
	return nil, fmt.Errorf("%s holds none of the pairs .crt and .key of %s", dir, strings.Join(clientPairs, ", "))
}

// conn is a connection to a real member.
type conn struct {
	endpoint string
	client   *clientv3.Client
}

// failFast makes a call fail with the reason why the connection can't be made. By default etcd's client waits, and says only that time is over.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// call makes one call with a timeout, and shortens its error.
func call[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := do(ctx)
	if err == nil {
		return answer, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return answer, fmt.Errorf("no answer within %s", callTimeout)
	}
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		text := strings.TrimPrefix(s.Message(), "connection error: desc = ")
		return answer, errors.New(strings.Trim(text, `"`))
	}
	return answer, err
}

// Members implements Conn.
func (c *conn) Members(ctx context.Context) (uint64, []Member, error) {
	list, err := call(ctx, func(ctx context.Context) (*clientv3.MemberListResponse, error) { return c.client.MemberList(ctx) })
	if err != nil {
		return 0, nil, err
	}
	var members []Member
	for _, m := range list.Members {
		members = append(members, Member{ID: m.ID, Name: m.Name, Peers: m.PeerURLs, Clients: m.ClientURLs, Learner: m.IsLearner})
	}
	return list.Header.ClusterId, members, nil
}

// Status implements Conn. It leaves out alarms, which etcd lists for all members there.
func (c *conn) Status(ctx context.Context) (Status, error) {
	is, err := call(ctx, func(ctx context.Context) (*clientv3.StatusResponse, error) { return c.client.Status(ctx, c.endpoint) })
	if err != nil {
		return Status{}, err
	}
	s := Status{Member: is.Header.MemberId, Leader: is.Leader}
	for _, e := range is.Errors {
		if !strings.Contains(e, "alarm:") {
			s.Errors = append(s.Errors, e)
		}
	}
	return s, nil
}

// Read implements Conn. The key need not exist. That the client may not read it was decided by a quorum as well.
func (c *conn) Read(ctx context.Context) error {
	_, err := call(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		answer, err := c.client.Get(ctx, "health")
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			err = nil
		}
		return answer, err
	})
	return err
}

// Alarms implements Conn.
func (c *conn) Alarms(ctx context.Context) (map[uint64][]string, error) {
	list, err := call(ctx, func(ctx context.Context) (*clientv3.AlarmResponse, error) { return c.client.AlarmList(ctx) })
	if err != nil {
		return nil, err
	}
	alarms := map[uint64][]string{}
	for _, a := range list.Alarms {
		alarms[a.MemberID] = append(alarms[a.MemberID], a.Alarm.String())
	}
	return alarms, nil
}

// MoveLeader implements Conn.
func (c *conn) MoveLeader(ctx context.Context, to uint64) error {
	_, err := call(ctx, func(ctx context.Context) (*clientv3.MoveLeaderResponse, error) { return c.client.MoveLeader(ctx, to) })
	return err
}

// Remove implements Conn.
func (c *conn) Remove(ctx context.Context, id uint64) error {
	_, err := call(ctx, func(ctx context.Context) (*clientv3.MemberRemoveResponse, error) {
		answer, err := c.client.MemberRemove(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			err = nil
		}
		return answer, err
	})
	return err
}

// Close implements Conn.
func (c *conn) Close() error { return c.client.Close() }
