// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOSVersion(t *testing.T) {
	const release = "NAME=Bottlerocket\n# a comment\nVERSION_ID=\"1.20.3\"\nVARIANT_ID=aws-k8s-1.30\n"
	for name, test := range map[string]struct {
		etc, usr, link string
		want, err      string
	}{
		"in etc":            {etc: release, usr: "VERSION_ID=9\n", want: "1.20.3"},
		"in usr":            {usr: release, want: "1.20.3"},
		"a relative link":   {usr: release, link: "../usr/lib/os-release", want: "1.20.3"},
		"an absolute link":  {usr: release, link: "/usr/lib/os-release", want: "1.20.3"},
		"a link out of it":  {usr: release, link: "../../../../etc/os-release", want: "1.20.3"},
		"without quotes":    {etc: "VERSION_ID=0.1.6\n", want: "0.1.6"},
		"in single quotes":  {etc: "VERSION_ID='0.1.6'\n", want: "0.1.6"},
		"twice":             {etc: "VERSION_ID=1\nVERSION_ID=2", want: "2"},
		"no version":        {etc: "NAME=x\n", err: "there is no VERSION_ID in etc/os-release"},
		"neither":           {err: "no such file"},
		"a link to nothing": {link: "../usr/lib/none", err: "reading the host's version"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if test.etc != "" {
				write(t, filepath.Join(root, "etc/os-release"), test.etc)
			}
			if test.usr != "" {
				write(t, filepath.Join(root, "usr/lib/os-release"), test.usr)
			}
			if test.link != "" {
				if err := os.Symlink(test.link, filepath.Join(root, "etc/os-release")); err != nil {
					t.Fatal(err)
				}
			}
			got, err := osVersion(root)
			failing(t, err, test.err)
			if got != test.want {
				t.Errorf("version %q, want %q", got, test.want)
			}
		})
	}
}

func TestBootID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot_id")
	b := boot{file}
	_, err := b.BootID()
	failing(t, err, "reading the boot id, open "+file)
	write(t, file, "\n")
	_, err = b.BootID()
	failing(t, err, "is empty")
	write(t, file, "b1\n")
	if id, err := b.BootID(); id != "b1" || err != nil {
		t.Errorf("id %q, %v", id, err)
	}
}
