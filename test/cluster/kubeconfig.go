// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
