// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const (
	// serviceCIDR is the range of service addresses, and serviceIP the first of it, at which pods find the API server.
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1"
)

// auditPolicy records who asked for what, and not the objects themselves.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// apiAddress is where the API server listens: on the bridge if there are machines
// to reach it from, which this machine has an address on too.
func (s *supervisor) apiAddress() string {
	if s.record.Subnet.IsValid() {
		return s.record.Subnet.Addr().Next().String()
	}
	return "127.0.0.1"
}

func (s *supervisor) apiURL() string {
	return fmt.Sprintf("https://%s:%d", s.apiAddress(), s.record.Ports[portAPI])
}

func (s *supervisor) startAPIServer() error {
	address := s.apiAddress()
	err := s.ca.issue("apiserver", identityOf{user: "kube-apiserver", hosts: []string{
		"localhost", "127.0.0.1", address, serviceIP,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}})
	if err != nil {
		return err
	}
	err = s.ca.issue("apiserver-kubelet", identityOf{user: "kube-apiserver-kubelet", group: "system:masters"})
	if err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + loopbackURL(s.record.Ports[portEtcd]),
		"--bind-address=" + address,
		fmt.Sprintf("--secure-port=%d", s.record.Ports[portAPI]),
		"--tls-cert-file=" + s.ca.path("apiserver.crt"),
		"--tls-private-key-file=" + s.ca.path("apiserver.key"),
		"--client-ca-file=" + s.ca.path("ca.crt"),
		"--kubelet-certificate-authority=" + s.ca.path("ca.crt"),
		"--kubelet-client-certificate=" + s.ca.path("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + s.ca.path("apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalDNS,InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + s.ca.path("service-account.pub"),
		"--service-account-signing-key-file=" + s.ca.path("service-account.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=2000",
	}
	if s.record.Subnet.IsValid() {
		args = append(args, "--advertise-address="+address)
	} else {
		// The endpoints of a service must not be on the loopback, and no one uses them.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if s.spec.AuditLog {
		policy := filepath.Join(s.spec.Dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
			return err
		}
		args = append(args,
			"--audit-policy-file="+policy,
			"--audit-log-path="+auditLogPath(s.spec.Dir),
			"--audit-log-maxsize=1000000", // megabytes: one file
		)
	}
	return s.startComponent("kube-apiserver", args...)
}

// waitForAPI returns when the API server says that it is ready.
func (s *supervisor) waitForAPI(ctx context.Context) error {
	cert, err := tls.LoadX509KeyPair(s.ca.path("admin.crt"), s.ca.path("admin.key"))
	if err != nil {
		return err
	}
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{cert},
			RootCAs:      s.ca.pool(),
		}},
	}
	defer client.CloseIdleConnections()
	err = poll(ctx, 50*time.Millisecond, func() (bool, error) {
		if err := s.failed(); err != nil {
			return false, err
		}
		response, err := client.Get(s.apiURL() + "/readyz")
		if err != nil {
			return false, nil // not listening yet
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server, %w", err)
	}
	return nil
}

func auditLogPath(dir string) string { return filepath.Join(dir, "log", "audit.log") }
