// SPDX-License-Identifier: Apache-2.0

package clouds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
)

func TestImageName(t *testing.T) {
	for image, want := range map[string]string{
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/flatcar-7": "flatcar-7",
		"publisher:offer:sku:1.2.3":        "1.2.3",
		"ami-0123":                         "ami-0123",
		"projects/p/global/images/cos-101": "cos-101",
		"":                                 "",
	} {
		if got := clouds.ImageName(image); got != want {
			t.Errorf("the name of %q is %q, want %q", image, got, want)
		}
	}
}

// TestSimulatedHosts lets machines of a set be simulated nodes.
func TestSimulatedHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	c := cluster.New(t, cluster.Options{})
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	hosts := &clouds.HostRegistry{}
	hosts.Use("s", clouds.SimulatedHosts(c))
	w := world(t, clouds.Options{Hosts: hosts})
	testHosts(t, w, client)
}

// TestMachineHosts lets them be real machines.
func TestMachineHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	c := cluster.New(t, cluster.Options{Machines: 1})
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	testHosts(t, world(t, clouds.Options{Hosts: clouds.MachineHosts(c)}), client)
	if got := len(c.Machines()); got != 4 {
		t.Errorf("there are %d machines, want those of the set and one", got)
	}
}

// testHosts makes machines come and go, and expects their Nodes to.
func testHosts(t *testing.T, w *clouds.World, client kubernetes.Interface) {
	if err := w.Edit("s", func(s *clouds.Set) error { s.Image = "path/b"; return nil }); err != nil {
		t.Fatal(err)
	}
	w.Fault(clouds.Fault{Kind: clouds.JoinsSick, Times: 1})
	for _, step := range []struct {
		add, delete string
	}{{add: "sick"}, {add: "well"}, {delete: "sick"}, {delete: "0"}} {
		if step.add != "" {
			if _, _, err := w.Add("s", "z2", []string{step.add}, 1); err != nil {
				t.Fatal(err)
			}
			continue
		}
		wait(t, "the nodes", func() bool { return len(states(t, client)) == 5 })
		task, err := w.Delete("s", []string{step.delete}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(t, task); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"s-0":    "Unknown a z1 v test:///s/0",
		"s-1":    "True a z2 v test:///s/1",
		"s-2":    "True a z1 v test:///s/2",
		"s-sick": "Unknown b z2 v test:///s/sick",
		"s-well": "True b z2 v test:///s/well",
	}
	wait(t, "the nodes", func() bool { return cmp.Equal(want, states(t, client)) || t.Failed() })
}

// states are all Nodes but the cluster's own machine, in short.
func states(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "l"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range list.Items {
		ready := ""
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				ready = string(c.Status)
			}
		}
		all[n.Name] = ready + " " + n.Status.NodeInfo.OSImage + " " + n.Labels[corev1.LabelTopologyZone] + " " + n.Labels["l"] + " " + n.Spec.ProviderID
	}
	return all
}
