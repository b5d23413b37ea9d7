// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/clouds/gcp"
)

// flavour is a cloud, with scale sets of one kind.
type flavour struct {
	name     string
	provider v1alpha1.CloudProvider
	zones    []string
	settings map[string]string
	identify func(set, zone, id string) (providerID, nodeName string)
	id       func(set string, n int) string
	handler  func(*clouds.World) http.Handler
	env      func(url string) []string
	// set is the scale set of that name, as the cloud names it.
	set func(name string) string
}

// flavours are all clouds, with the usual scale set of each.
func flavours() []flavour {
	unchanged := func(name string) string { return name }
	return []flavour{
		{
			name: "azure", provider: v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{Credential: v1alpha1.AzureCredentialManaged}},
			zones: []string{"westeurope-1", "westeurope-2", "westeurope-3"}, identify: azure.Identify,
			handler: azure.Handler, env: azure.Env, set: unchanged,
		},
		{
			name: "aws", provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}},
			zones: []string{"eu-central-1a", "eu-central-1b", "eu-central-1c"}, identify: aws.Identify, id: aws.InstanceID,
			handler: aws.Handler, env: aws.Env, set: unchanged,
		},
		{
			name: "gcp", provider: v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: gcp.Project}},
			zones: []string{"europe-west1-b", "europe-west1-c", "europe-west1-d"}, identify: gcp.Identify, id: gcp.ID,
			handler: gcp.Handler, env: gcp.Env, set: func(name string) string { return "regions/europe-west1/" + name },
		},
	}
}

// allFlavours are all kinds of scale sets that are handled differently.
func allFlavours() []flavour {
	all := flavours()
	for _, f := range flavours() {
		f.name += "-other"
		switch {
		case f.provider.Azure != nil:
			f.settings, f.identify = map[string]string{"mode": "Flexible"}, azure.IdentifyFlexible
		case f.provider.AWS != nil:
			f.settings = map[string]string{"policy": "spot"}
		case f.provider.GCP != nil:
			f.zones = f.zones[:1]
			f.set = func(name string) string { return "zones/" + f.zones[0] + "/" + name }
		}
		all = append(all, f)
	}
	return all
}

// pool is a scale set, and the rollout that replaces its machines.
type pool struct {
	*harness
	flavour
	world *clouds.World
	// id is the scale set's name in the world.
	id, rollout     string
	machines, surge int
	// images counts those so far, but for the first.
	images int
}

// newPool makes a scale set whose machines are simulated nodes. Its world ends with the context.
func newPool(h *harness, f flavour, rollout string, machines, surge int) *pool {
	return &pool{harness: h, flavour: f, id: f.set("chaos"), rollout: rollout, machines: machines, surge: surge}
}

func (p *pool) begin(ctx context.Context, hosts clouds.Hosts) {
	p.t.Helper()
	p.world = clouds.New(ctx, clouds.Options{
		Hosts: hosts, CreateTime: 300 * time.Millisecond, DeleteTime: 300 * time.Millisecond, Identify: p.identify, ID: p.flavour.id,
	})
	err := p.world.Create(ctx, clouds.Set{
		Name: p.id, Image: image(0), Capacity: p.machines, Zones: p.zones, Settings: p.settings, Labels: map[string]string{labelPool: p.rollout},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.background.Go(func() {
		for ctx.Err() == nil {
			if set, _ := p.world.Set(p.id); set.Capacity > p.machines+p.surge || set.Capacity < p.machines {
				p.t.Errorf("%s: the scale set is to have %d machines, want from %d to %d", p.flavour.name, set.Capacity, p.machines, p.machines+p.surge)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	p.background.Go(func() {
		<-ctx.Done()
		p.world.Wait()
	})
}

func image(n int) string { return fmt.Sprintf("image-%d", n) }

// publish gives the scale set another image.
func (p *pool) publish() error {
	p.images++
	return p.world.Edit(p.id, func(s *clouds.Set) error {
		s.Image = image(p.images)
		return nil
	})
}

func (p *pool) newRollout(atOnce int) *v1alpha1.NodeRollout {
	return &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: p.rollout},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelPool: p.rollout}},
			Strategy: &v1alpha1.Strategy{
				MaxConcurrent: ptr.To(intstr.FromInt(atOnce)),
				Retries:       &v1alpha1.Retries{Limit: 100, Backoff: &metav1.Duration{Duration: 2 * time.Second}, MaxBackoff: &metav1.Duration{Duration: 4 * time.Second}},
			},
			Replacement: &v1alpha1.Replacement{Provider: p.provider, Surge: ptr.To(intstr.FromInt(p.surge)), CheckPeriod: &metav1.Duration{Duration: time.Second}},
		},
	}
}

// missing says what is missing until all machines are of the newest image and nothing is under way.
func (p *pool) missing() string {
	set, _ := p.world.Set(p.id)
	machines := p.world.Machines(p.id)
	for _, m := range machines {
		if m.State != clouds.Running || m.Model != set.Model {
			return fmt.Sprintf("of %d machines, machine %s is %s, and of %s", len(machines), m.ID, m.State, m.Image)
		}
	}
	maps.DeleteFunc(set.Settings, func(_, value string) bool { return value == "" })
	r := find[*v1alpha1.NodeRollout](p.journal, p.rollout)
	switch {
	case !maps.Equal(set.Settings, p.settings):
		return fmt.Sprintf("the scale set has the settings %v", set.Settings)
	case r == nil:
		return "there is no rollout"
	case len(r.Status.Turns) > 0:
		return fmt.Sprintf("%d machines are in a turn", len(r.Status.Turns))
	case !strings.HasPrefix(r.Status.Revision, set.Image+"@"):
		return "the revision is " + r.Status.Revision
	case len(r.Status.ScaleSets) != 1 || len(r.Status.ScaleSets[0].Operations) > 0:
		return "operations are under way"
	case r.Status.Counts == nil || int(r.Status.Counts.Updated) != p.machines || int(r.Status.Counts.Total) != p.machines:
		return fmt.Sprintf("of %d nodes %+v", p.machines, r.Status.Counts)
	case !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady):
		return "the rollout is not Ready"
	}
	return p.leaked()
}

// leaked says which machine is too many, and which node is not as it must be while no machine is in a turn.
func (p *pool) leaked() (missing string) {
	machines := p.world.Machines(p.id)
	if set, _ := p.world.Set(p.id); set.Capacity != p.machines || len(machines) != p.machines {
		return fmt.Sprintf("there are %d machines, and the capacity is %d", len(machines), set.Capacity)
	}
	nodes := 0
	p.journal.see(func(latest map[string]client.Object) {
		for _, o := range latest {
			n, ok := o.(*corev1.Node)
			if !ok || n.Labels[labelPool] != p.rollout {
				continue
			}
			nodes++
			if left := leftOn(n); left != "" {
				missing = fmt.Sprintf("node %s has %s", n.Name, left)
			}
			if !slices.ContainsFunc(machines, func(m clouds.Machine) bool { return m.NodeName == n.Name && m.ProviderID == n.Spec.ProviderID }) {
				missing = fmt.Sprintf("the machine of node %s is gone", n.Name)
			}
		}
	})
	if nodes != len(machines) {
		return fmt.Sprintf("%d machines have %d nodes", len(machines), nodes)
	}
	return missing
}

// checkMade expects that no more machines were made of an image than there are places. An image that was not replaced
// before its time has exactly as many.
func (p *pool) checkMade() {
	p.t.Helper()
	made := map[string]int{}
	for _, m := range slices.Concat(p.world.Machines(p.id), p.world.Gone(p.id)) {
		made[clouds.ImageName(m.Image)]++
	}
	for image, n := range made {
		if n > p.machines {
			p.t.Errorf("%s: %d machines were made of %s, for %d places", p.flavour.name, n, image, p.machines)
		}
	}
	if n := made[image(p.images)]; n != p.machines {
		p.t.Errorf("%s: %d machines are of the last image, want %d", p.flavour.name, n, p.machines)
	}
}

// story is what happened in the cloud of late, and the state of the rollout.
func (p *pool) story() string {
	const most = 40
	var text strings.Builder
	calls := p.world.Journal()
	for _, call := range calls[max(0, len(calls)-most):] {
		fmt.Fprintf(&text, "%s %s %s %s\n", call.Time.Format("15:04:05.000"), call.Name, call.Detail, call.Outcome)
	}
	if r := find[*v1alpha1.NodeRollout](p.journal, p.rollout); r != nil {
		status, err := json.Marshal(r.Status)
		fmt.Fprintln(&text, string(status), err)
	}
	return text.String()
}
