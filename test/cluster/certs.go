// SPDX-License-Identifier: Apache-2.0

package cluster

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

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs every certificate of one cluster. Its files are
//
//	ca.crt ca.key                      the authority itself
//	service-account.pub .key           what signs and checks service-account tokens
//	<name>.crt <name>.key              one pair for each client and server
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// identityOf says who a certificate speaks for: as a client, by common name and organization, which Kubernetes reads as user and group; as
// a server, by the names and addresses it may be reached at.
type identityOf struct {
	user, group string
	hosts       []string
}

func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "moult-test-cluster"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := a.write("ca", der, key); err != nil {
		return nil, err
	}
	return a, a.writeServiceAccountKey()
}

// path returns the file of the authority's directory with that name.
func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue writes <name>.crt and <name>.key.
func (a *authority) issue(name string, who identityOf) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: who.user},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if who.group != "" {
		template.Subject.Organization = []string{who.group}
	}
	for _, host := range who.hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return a.write(name, der, key)
}

func (a *authority) write(name string, cert []byte, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(a.path(name+".key"), "PRIVATE KEY", der); err != nil {
		return err
	}
	return writePEM(a.path(name+".crt"), "CERTIFICATE", cert)
}

func (a *authority) writeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// The controller manager wants the older encoding.
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(a.path("service-account.key"), "EC PRIVATE KEY", private); err != nil {
		return err
	}
	return writePEM(a.path("service-account.pub"), "PUBLIC KEY", public)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeKubeconfig issues a client certificate and writes a kubeconfig around it that stands alone.
func (a *authority) writeKubeconfig(path, server, name string, who identityOf) error {
	if err := a.issue(name, who); err != nil {
		return err
	}
	ca, err := os.ReadFile(a.path("ca.crt"))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(a.path(name + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.path(name + ".key"))
	if err != nil {
		return err
	}
	const entry = "moult"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	return clientcmd.WriteToFile(*config, path)
}
