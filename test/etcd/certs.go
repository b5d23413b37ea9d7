// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// writeCertificates makes an authority, and the pairs that kubeadm makes by it: server and peer for these addresses, and healthcheck-client.
// One pair serves all members.
func writeCertificates(dir string, addresses []net.IP) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template("etcd-ca")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	if err := write(dir, "ca", ca, ca, key, key); err != nil {
		return err
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for name, usage := range map[string][]x509.ExtKeyUsage{"server": both, "peer": both, "healthcheck-client": {x509.ExtKeyUsageClientAuth}} {
		cert := template(name)
		cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, usage
		if name != "healthcheck-client" {
			cert.IPAddresses, cert.DNSNames = addresses, []string{"localhost"}
		}
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := write(dir, name, cert, ca, own, key); err != nil {
			return err
		}
	}
	return nil
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // Never fails.
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

// write signs a certificate, and writes it with its key.
func write(dir, name string, cert, by *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	signed, err := x509.CreateCertificate(rand.Reader, cert, by, key.Public(), signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	base := filepath.Join(dir, name)
	if err := os.WriteFile(base+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(base+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o644)
}
