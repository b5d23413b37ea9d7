// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/aws"
)

// What the plugin says of machines: before, while one fails, and how it is tried again.
func TestReplacementPlugin(t *testing.T) {
	t.Parallel()
	p := newPool(t, "plugin", poolOptions{capacity: 2})
	r := p.newRollout()
	// Long enough to be looked at before it fails. An edit would be a retry.
	r.Spec.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: &metav1.Duration{Duration: patience / 2}}
	r.Spec.Strategy = &v1alpha1.Strategy{Paused: true}
	r.Spec.Drain = &v1alpha1.NodeDrain{Force: true}
	p.setImage(t, newImage)
	createRollout(t, r)
	named, first := "nr/"+p.name, p.nodes(t)[0].Name
	rolloutWithin(t, patience, p.name, "waits", func(s *v1alpha1.NodeRolloutStatus) bool { return len(s.Waiting) == 2 })

	says(t, []string{"status", named}, "NodeRollout plugin", "0 of 2 updated, 2 waiting", "scale set plugin: 2 machines, 2 outdated, image "+newImage, "Paused", "kubectl moult resume "+named)
	says(t, []string{"preview", named}, "a machine is added before another is deleted, surge 1 of each scale set", "scale set plugin: 2 machines, 2 outdated, at most 1 more at once", first)
	says(t, []string{"why", first}, "NodeRollout plugin", "paused: Paused", "kubectl moult resume "+named)

	p.fault(clouds.Fault{Kind: clouds.JoinsSick, Times: 1})
	says(t, []string{"resume", named}, "")
	var turn v1alpha1.MachineTurn
	rolloutWithin(t, patience, p.name, "joins", func(s *v1alpha1.NodeRolloutStatus) bool {
		if len(s.Turns) == 1 && s.Turns[0].ReplacementNode != "" {
			turn = s.Turns[0]
		}
		return turn.Turn != ""
	})
	out, err := moult(t, "why", turn.ReplacementNode)
	if err != nil || !strings.Contains(out, "takes the place of that of node "+turn.Node) && !strings.Contains(out, "there is no") {
		t.Errorf("why %s: %v\n%s", turn.ReplacementNode, err, out)
	}
	rolloutWithin(t, 2*patience, p.name, "has failed", func(s *v1alpha1.NodeRolloutStatus) bool { return len(s.Failed) == 1 && len(s.Turns) == 0 })
	says(t, []string{"status", named}, "✗ "+turn.Node, "ReplacementFailed")
	says(t, []string{"why", turn.Node}, "Failed: ReplacementFailed", "spec.replacement.keepFailedFor", "kubectl moult retry "+turn.Node)
	says(t, []string{"retry", turn.Node}, "is retried: "+named+" (ReplacementFailed)")
	editRollout(t, p.name, patient)
	p.done(t, newImage, 2)
	says(t, []string{"status", named, "--until-complete"}, "Complete")
}

// Machines whose nodes are not ready are replaced like others, and do not keep these from it.
func TestReplacementOfUnreadyNodes(t *testing.T) {
	t.Parallel()
	p := newPool(t, "unready", poolOptions{capacity: 2})
	broken := p.nodes(t)[0].Name
	if err := world.Silence(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	eventually(t, broken+" is not ready", func(context.Context) (string, bool) {
		n := node(t, broken)
		return fmt.Sprint(n.Spec.Taints), slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	})
	p.setImage(t, newImage)
	createRollout(t, p.newRollout())
	p.done(t, newImage, 2)
	p.replacedOnce(t)
}

// TestSetImage sets images by the built program, through each cloud's own protocol.
func TestSetImage(t *testing.T) {
	t.Parallel()
	t.Run("as Ducklett", func(t *testing.T) {
		t.Parallel()
		pools := fourPools(t, "setimage")
		program := filepath.Join(t.TempDir(), "update-azure-image-tags")
		if err := os.Symlink(world.program, program); err != nil {
			t.Fatal(err)
		}
		run := func(args ...string) (string, int) {
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = append([]string{"HOME=" + t.TempDir(), "CLUSTER_NAME=setimage", "ARM_USE_MANAGED_IDENTITY_EXTENSION=true"}, azureDouble.env...)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, code := run("-imageid", newImage, "--dry-run"); code != 0 || strings.Count(out, "WouldChange") != 4 || imagesOf(pools) != strings.Repeat(oldImage+" ", 4) {
			t.Errorf("dry run: %d, %s\n%s", code, imagesOf(pools), out)
		}

		// One that may not be changed: all stay as they are.
		refuses := clouds.Fault{Kind: clouds.Denied, Call: "Update", Set: pools[2].full}
		azureDouble.world.Fault(refuses)
		if out, code := run("-imageid", newImage); code != 1 || imagesOf(pools) != strings.Repeat(oldImage+" ", 4) || strings.Count(out, "PutBack") != 2 || strings.Count(out, "NotChanged") != 2 {
			t.Errorf("denied: %d, %s\n%s", code, imagesOf(pools), out)
		}
		azureDouble.world.ClearFaultsOf(pools[2].full)

		// Answers that are lost, and an etag that is another one by then, are borne.
		for _, kind := range []clouds.FaultKind{clouds.DropAfter, clouds.DropBefore, clouds.Conflict, clouds.Throttled} {
			azureDouble.world.Fault(clouds.Fault{Kind: kind, Call: "Update", Times: 1, Set: pools[1].full})
		}
		if out, code := run("-imageid", newImage); code != 0 || imagesOf(pools) != strings.Repeat(newImage+" ", 4) {
			t.Errorf("%d, %s\n%s", code, imagesOf(pools), out)
		}
		if out, code := run("-imageid", newImage); code != 0 || strings.Count(out, "Unchanged") != 4 {
			t.Errorf("again: %d\n%s", code, out)
		}
		if out, code := run("-imageid", newImage, "--scale-set", "nowhere", "--scale-set", pools[0].full); code != 1 || !strings.Contains(out, "nothing was changed: scale set nowhere") {
			t.Errorf("no such set: %d\n%s", code, out)
		}
	})
	for _, cloud := range []struct {
		*cloudDouble
		image string
		args  []string
	}{
		{azureDouble, "/subscriptions/" + azureDouble.provider.Azure.SubscriptionID + "/resourceGroups/" + azureDouble.provider.Azure.ResourceGroup + "/providers/Microsoft.Compute/images/" + newImage, nil},
		{awsDouble, aws.ImageID(newImage), []string{"--provider", "aws", "--region", aws.Region}},
		{gcpDouble, "workers-v2", []string{"--provider", "gcp", "--project", gcpDouble.project()}},
	} {
		t.Run(cloud.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, "image-"+cloud.name, poolOptions{cloud: cloud.cloudDouble, hosts: clouds.SimulatedHosts(world.Cluster)})
			out, err := p.program(t, append([]string{"set-image", "-imageid", cloud.image, "--scale-set", p.full, "-o", "json"}, cloud.args...)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var report struct {
				ScaleSets []struct{ Name, Outcome, OldImage, NewImage string }
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if s := report.ScaleSets; len(s) != 1 || s[0].Name != p.full || s[0].Outcome != "Changed" || s[0].NewImage != cloud.image || s[0].OldImage == "" {
				t.Errorf("reported %+v", s)
			}
			want := newImage
			if cloud.cloudDouble == gcpDouble {
				want = cloud.image // The name of an instance template has no dots.
			}
			if got := imagesOf([]*pool{p}); got != want+" " {
				t.Errorf("its image is %s", got)
			}
		})
	}
}

// heldHosts do not stop before they are let go.
type heldHosts struct {
	clouds.Hosts
	letGo chan struct{}
}

func (h *heldHosts) Stop(ctx context.Context, m clouds.Machine) error {
	select {
	case <-h.letGo:
	case <-ctx.Done():
	}
	return h.Hosts.Stop(ctx, m)
}

// TestSetImageMidRollout sets another image while a rollout deletes a machine: that is waited for, and then the rollout is to the new one.
func TestSetImageMidRollout(t *testing.T) {
	t.Parallel()
	const capacity, another = 2, "flatcar-stable-1.31.4-v4-0badf00d"
	hosts := &heldHosts{Hosts: clouds.SimulatedHosts(world.Cluster), letGo: make(chan struct{})}
	letGo := sync.OnceFunc(func() { close(hosts.letGo) })
	p := newPool(t, "mid-rollout", poolOptions{capacity: capacity, hosts: hosts})
	t.Cleanup(letGo)
	p.setImage(t, newImage)
	createRollout(t, p.newRollout())
	within(t, 3*patience, "a machine is being deleted", func(context.Context) (string, bool) {
		all := p.world.Machines(p.full)
		return fmt.Sprint(all), slices.ContainsFunc(all, func(m clouds.Machine) bool { return m.State == clouds.Deleting })
	})

	cmd := exec.CommandContext(t.Context(), world.program, "set-image", "-imageid", another, "--scale-set", p.full)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, p.env...)
	var out strings.Builder
	cmd.Stdout = &out
	notes, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(notes); lines.Scan(); {
		_, _ = fmt.Fprintln(&said, lines.Text())
		if strings.Contains(lines.Text(), "waiting until that is over") {
			if got := imagesOf([]*pool{p}); got != newImage+" " {
				t.Errorf("its image is %s before the machine is gone", got)
			}
			letGo()
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "waiting") || !strings.Contains(out.String(), "Changed") {
		t.Errorf("%v\n%s%s", err, &said, &out)
	}
	p.done(t, another, capacity)
}

// project is Google's.
func (c *cloudDouble) project() string { return c.provider.GCP.Project }

// fourPools are the scale sets of a cluster of Ducklett's, in its order.
func fourPools(t *testing.T, cluster string) []*pool {
	t.Helper()
	var all []*pool
	for _, name := range []string{"-cp", "-agent-pool", "-storage-pool", "-telemetry-pool"} {
		all = append(all, newPool(t, cluster+name, poolOptions{}))
	}
	return all
}

// imagesOf are the names of the images that sets make machines of.
func imagesOf(pools []*pool) string {
	all := ""
	for _, p := range pools {
		set, _ := p.world.Set(p.full)
		all += clouds.ImageName(set.Image) + " "
	}
	return all
}

// TestReplacementManifests: what is shipped beside config/default goes together with it, and is accepted.
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
		"components: [" + config + "/replacement, " + config + "/replacement/etcd, " + config + "/replacement/ducklett]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := kubectl(t.Context(), "kustomize", dir)
	if err != nil {
		t.Fatal(err, out)
	}
	found := map[string]bool{}
	for document := range strings.SplitSeq(out, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		found[o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = true
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
		for _, want := range []string{"--worker-concurrency=6", "name: moult-cloud", "path: /etc/kubernetes/pki/etcd", "key: SubscriptionID"} {
			if !strings.Contains(document, want) {
				t.Errorf("the Deployment has no %q:\n%s", want, document)
			}
		}
	}
	var missing []string
	for _, want := range []string{"ClusterRole /moult-ducklett", "ClusterRoleBinding /moult-ducklett", "Role kube-system/moult-controller", "RoleBinding kube-system/moult-controller"} {
		if !found[want] {
			missing = append(missing, want)
		}
	}
	if diff := cmp.Diff([]string(nil), missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	// What it needs of ConfigMap kubeadm-config, it may do in the place where that is.
	if out, err := kubectl(t.Context(), "auth", "can-i", "patch", "configmaps/kubeadm-config", "-n", "kube-system", "--as", "system:serviceaccount:"+namespace+":moult"); err != nil {
		t.Error(err, out)
	}
}
