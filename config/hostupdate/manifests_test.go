// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// The pods of agents have the access to the host that docs/operations/security.md lists.
func TestManifests(t *testing.T) {
	type pod struct {
		Account                        string
		Privileged, Root, HostPID, TTY bool
		SELinux                        string
		Group                          int64
		Host                           []string
	}
	want := map[string]pod{
		"moult-agent-update-api": {Account: agentAccount, Group: 274, SELinux: "super_t", Host: []string{"/run/api.sock Socket"}},
		"moult-agent-updog":      {Account: agentAccount, Privileged: true, Root: true, HostPID: true, TTY: true, Host: []string{"/ Directory"}},
		"moult-agent-thar":       {Account: agentAccount, Privileged: true, Root: true, HostPID: true, TTY: true, Host: []string{"/ Directory"}},
		"moult-agent-sentinel":   {Account: agentAccount, Privileged: true, Root: true, HostPID: true},
	}
	got := map[string]pod{}
	var sets []*appsv1.DaemonSet
	for _, name := range []string{"update-api", "updog", "thar", "sentinel"} {
		text, err := os.ReadFile("agents/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		ds := &appsv1.DaemonSet{}
		if err := yaml.UnmarshalStrict(text, ds); err != nil {
			t.Fatalf("%s.yaml: %v", name, err)
		}
		sets = append(sets, ds)
	}
	for _, ds := range sets {
		s := &ds.Spec.Template.Spec
		c := &s.Containers[0]
		p := pod{
			Account: s.ServiceAccountName, HostPID: s.HostPID, TTY: c.TTY, Privileged: ptr.Deref(c.SecurityContext.Privileged, false),
			Root: *s.SecurityContext.RunAsUser == 0, Group: *s.SecurityContext.RunAsGroup,
		}
		if o := s.SecurityContext.SELinuxOptions; o != nil {
			p.SELinux = o.Type
		}
		for _, v := range s.Volumes {
			if v.HostPath != nil {
				mode := ""
				for _, m := range c.VolumeMounts {
					if m.Name == v.Name && m.ReadOnly {
						mode = " ro"
					}
				}
				p.Host = append(p.Host, v.HostPath.Path+" "+string(*v.HostPath.Type)+mode)
			}
		}
		got[ds.Name] = p
		if s.PriorityClassName != "system-node-critical" {
			t.Errorf("%s has the priority class %q", ds.Name, s.PriorityClassName)
		}
		if *s.AutomountServiceAccountToken || !*c.SecurityContext.ReadOnlyRootFilesystem || s.HostNetwork || s.HostIPC || len(s.Containers) != 1 {
			t.Errorf("%s has more than it needs", ds.Name)
		}
		if !p.Privileged && (*c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"})) {
			t.Errorf("%s has more privileges than it needs", ds.Name)
		}
		if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, s.Tolerations); diff != "" {
			t.Errorf("tolerations of %s (-want +got)\n%s", ds.Name, diff)
		}
		for name := range got {
			if other := sets[slices.IndexFunc(sets, func(d *appsv1.DaemonSet) bool { return d.Name == name })]; name != ds.Name &&
				cmp.Equal(other.Spec.Selector, ds.Spec.Selector) {
				t.Errorf("%s and %s select the same pods", name, ds.Name)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got)\n%s", diff)
	}
}
