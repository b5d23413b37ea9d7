// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://c.example"}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: one, context: {cluster: c, user: u, namespace: fleet}}
- {name: two, context: {cluster: c, user: u}}
current-context: one
`

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args      []string
		namespace string
		server    string
	}{
		"the context's":  {namespace: "fleet", server: "https://c.example"},
		"another":        {args: []string{"--context=two"}, namespace: "default", server: "https://c.example"},
		"flags win":      {args: []string{"-n", "x", "-s", "https://d.example"}, namespace: "x", server: "https://d.example"},
		"a good extra":   {args: []string{"--as=u", "--as-user-extra", "k=v"}, namespace: "fleet", server: "https://c.example"},
		"of kubectl too": {args: []string{"--cache-dir=/tmp/x", "--request-timeout=3s"}, namespace: "fleet", server: "https://c.example"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := NewFlags()
			set := pflag.NewFlagSet("moult", pflag.ContinueOnError)
			flags.AddFlags(set)
			if err := set.Parse(append(tc.args, "--kubeconfig", path)); err != nil {
				t.Fatal(err)
			}
			config, namespace, err := flags.Load()
			if err != nil {
				t.Fatal(err)
			}
			if extra := config.Impersonate.Extra["k"]; len(extra) > 1 {
				t.Errorf("the user extra is there more than once: %q", extra)
			}
			if namespace != tc.namespace || config.Host != tc.server {
				t.Errorf("%s at %s, want %s at %s", namespace, config.Host, tc.namespace, tc.server)
			}
		})
	}
}
