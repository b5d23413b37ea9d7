// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/clouds/gcp"
)

// Two real machines of a scale set of Azure are replaced by two others, and the pods on them move. A person has set the image by the program.
func TestReplacementOfMachines(t *testing.T) {
	t.Parallel()
	if world.noMachines != nil {
		t.Skipf("no machines: %v", world.noMachines)
	}
	const capacity = 2
	p := newPool(t, "machines", poolOptions{capacity: capacity, hosts: clouds.MachineHosts(world.Cluster)})
	serves := deploy(t, "serves-machines", capacity, capacity-1)
	journal := newPoolJournal(t, p)
	createRollout(t, p.newRollout())
	p.done(t, oldImage, capacity)

	p.program(t, "set-image", "-imageid", newImage, "--scale-set", p.full)
	p.done(t, newImage, capacity)
	p.replacedOnce(t)
	p.never(t, capacity+1, capacity)
	journal.check(t, 1)
	available(t, serves, capacity)
	evictions(t, serves)
	for _, m := range p.world.Gone(p.full) {
		if world.Machine(m.NodeName) != nil {
			t.Errorf("machine %s is still there", m.NodeName)
		}
	}
}

// A paused rollout tells people what it would do. Then each machine of an Auto Scaling group is replaced, and another one comes first.
func TestReplacement(t *testing.T) {
	t.Parallel()
	const capacity = 3
	p := newPool(t, "surge", poolOptions{cloud: awsDouble, capacity: capacity})
	journal := newPoolJournal(t, p)
	r := p.newRollout()
	r.Spec.Strategy = &v1alpha1.Strategy{Paused: true}
	createRollout(t, r)
	p.done(t, oldImage, capacity)

	p.program(t, "set-image", "-imageid", aws.ImageID(newImage), "--scale-set", p.full, "--provider", "aws", "--region", aws.Region)
	rolloutIs(t, p.name, "waits", func(s *v1alpha1.NodeRolloutStatus) bool { return len(s.Waiting) == capacity })
	named, first := "nr/"+p.name, p.nodes(t)[0].Name
	says(t, []string{"status", named}, "0 of 3 updated, 3 waiting", "scale set "+p.name+": 3 machines, 3 outdated", "Paused")
	says(t, []string{"preview", named}, "a machine is added before another is deleted (surge 1 of each scale set", first)
	says(t, []string{"why", first}, "paused: Paused", "kubectl moult resume "+named)
	says(t, []string{"resume", named}, "")

	p.done(t, newImage, capacity)
	p.replacedOnce(t)
	p.never(t, capacity+1, capacity)
	journal.check(t, 1)
	zones := map[string]int{}
	for _, m := range p.world.Machines(p.full) {
		zones[m.Zone]++
	}
	if len(zones) != capacity {
		t.Errorf("machines by zone: %v", zones)
	}
}

// Without surge a machine of a managed instance group goes before another one comes.
func TestReplacementWithoutSurge(t *testing.T) {
	t.Parallel()
	const capacity, template = 2, "workers-v2"
	p := newPool(t, "no-surge", poolOptions{cloud: gcpDouble, capacity: capacity, max: capacity})
	journal := newPoolJournal(t, p)
	r := p.newRollout()
	r.Spec.Replacement.Surge = ptr.To(intstr.FromInt32(0))
	p.program(t, "set-image", "-imageid", template, "--scale-set", p.full, "--provider", "gcp", "--project", gcp.Project)
	createRollout(t, r)
	p.done(t, template, capacity)
	p.replacedOnce(t)
	p.never(t, capacity, capacity-1)
	journal.check(t, 1)
}

// Once a replacement of a new image fails, the scale set gets its previous image, and the machines of the new one are replaced.
func TestReplacementRollsBack(t *testing.T) {
	t.Parallel()
	const capacity = 2
	hosts := &heldHosts{Hosts: clouds.SimulatedHosts(world.Cluster), letGo: make(chan struct{})}
	p := newPool(t, "rollback", poolOptions{capacity: capacity, hosts: hosts})
	r := p.newRollout()
	r.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0))}
	r.Spec.Replacement.Rollback = true
	createRollout(t, r)
	p.done(t, oldImage, capacity)
	p.setImage(t, badImage)
	eventually(t, "a machine is being deleted", func(context.Context) (string, bool) {
		all := p.world.Machines(p.full)
		return fmt.Sprint(all), slices.ContainsFunc(all, func(m clouds.Machine) bool { return m.State == clouds.Deleting })
	})
	p.fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add", Times: 1})
	close(hosts.letGo)
	rolloutIs(t, p.name, "has set the image back", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.ScaleSets) == 1 && s.ScaleSets[0].RolledBack != ""
	})
	p.done(t, oldImage, capacity)
	p.never(t, capacity+1, capacity)
	if set, _ := p.world.Set(p.full); set.Image != oldImage {
		t.Errorf("the image is %s", set.Image)
	}
}

// What is shipped beside config/default goes together with it, and is accepted.
func TestReplacementManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	if config, err = filepath.Rel(dir, config); err != nil {
		t.Fatal(err)
	}
	overlay := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + config + "/default]\n" +
		"components: [" + config + "/install-crds, " + config + "/replacement, " + config + "/replacement/kubeadm, " + config + "/replacement/etcd, " +
		config + "/replacement/ducklett]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := kubectl(t.Context(), "kustomize", dir)
	if err != nil {
		t.Fatal(err, out)
	}
	var found []string
	for document := range strings.SplitSeq(out, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		found = append(found, o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name)
		if o.Kind != "Deployment" || o.Metadata.Name != "moult" {
			continue
		}
		file := filepath.Join(dir, "deployment.yaml")
		if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", file); err != nil {
			t.Error(err, out)
		}
		for _, want := range []string{"--worker-concurrency=6", "name: moult-cloud", "path: /etc/kubernetes/pki/etcd", "key: SubscriptionID",
			"name: MOULT_INSTALL_CRDS\n          value: \"true\""} {
			if !strings.Contains(document, want) {
				t.Errorf("the Deployment has no %q:\n%s", want, document)
			}
		}
	}
	want := []string{"Role kube-system/moult-kubeadm", "RoleBinding kube-system/moult-kubeadm"}
	for _, name := range []string{"moult-ducklett", "moult-replacement", "moult-install-crds"} {
		want = append(want, "ClusterRole /"+name, "ClusterRoleBinding /"+name)
	}
	missing := slices.DeleteFunc(want, func(o string) bool { return slices.Contains(found, o) })
	if diff := gocmp.Diff([]string{}, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	// The operator may change ConfigMap kubeadm-config, which it needs for control planes.
	if out, err := kubectl(t.Context(), "auth", "can-i", "patch", "configmaps/kubeadm-config", "-n", "kube-system", "--as", "system:serviceaccount:"+operators+":moult"); err != nil {
		t.Error(err, out)
	}
}
