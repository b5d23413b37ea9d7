// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// The images of machines.
const (
	oldImage = "flatcar-stable-1.37.1-v1-0badc0de"
	newImage = "flatcar-stable-1.37.1-v2-0badcafe"
)

// double is a simulated cloud.
type double struct {
	// set is the name of the scale set.
	set   string
	zones []string
	// zonal is true where the operator chooses the zone of a new machine, and not the cloud.
	zonal    bool
	provider v1alpha1.CloudProvider
	identify func(set, zone, id string) (providerID, nodeName string)
	id       func(set string, n int) string
	handler  func(*clouds.World) http.Handler
	env      func(url string) []string
	// changes are the calls that change something.
	changes map[string]bool
}

// page is how many machines are on one page of a list, where the cloud has pages.
const page = 100

var doubles = map[string]double{
	"azure": {
		set: "pool", zones: []string{azure.Location + "-1", azure.Location + "-2", azure.Location + "-3"},
		provider: v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{SubscriptionID: azure.SubscriptionID, ResourceGroup: azure.ResourceGroup}},
		identify: azure.Identify, env: azure.Env,
		handler: func(w *clouds.World) http.Handler { return azure.New(w, azure.Options{Page: page}) },
		changes: map[string]bool{"Update": true, "DeleteInstances": true},
	},
	"aws": {
		set: "pool", zones: []string{aws.Region + "a", aws.Region + "b", aws.Region + "c"}, zonal: true,
		provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: aws.Region}},
		identify: aws.Identify, id: aws.InstanceID, env: aws.Env,
		handler: func(w *clouds.World) http.Handler { return aws.HandlerWithPages(w, page) },
		changes: map[string]bool{
			"LaunchInstances": true, "TerminateInstanceInAutoScalingGroup": true, "UpdateAutoScalingGroup": true,
			"SuspendProcesses": true, "ResumeProcesses": true, "CreateOrUpdateTags": true, "DeleteTags": true, "CreateLaunchTemplateVersion": true,
		},
	},
	"gcp": {
		set: "regions/europe-west3/pool", zones: []string{"europe-west3-a", "europe-west3-b", "europe-west3-c"},
		provider: v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: gcp.Project, Locations: []string{"europe-west3"}}},
		identify: gcp.Identify, id: gcp.ID, env: gcp.Env, handler: gcp.Handler,
		changes: map[string]bool{"createInstances": true, "deleteInstances": true, "patch": true},
	},
}

// replacementRun is the measurement of a NodeRollout over one scale set.
type replacementRun struct {
	*bench
	double
	world *clouds.World
	// atOnce is how many machines are added and replaced at once.
	atOnce  int
	rollout *v1alpha1.NodeRollout
	tally   *nodeTally
	// original are the nodes before the rollout, and journal is how long the world's journal was then.
	original []string
	journal  int
}

func setupReplacement(ctx context.Context, b *bench) (*setup, error) {
	surge := ptr.To(intstr.Parse(b.surge))
	atOnce, err := intstr.GetScaledValueFromIntOrPercent(surge, b.size, true)
	if err != nil {
		return nil, err
	}
	atOnce = min(atOnce, v1alpha1.MaxMachineTurns)
	r := &replacementRun{bench: b, double: doubles[b.cloud], atOnce: atOnce}
	r.tally = newNodeTally(atOnce, 0, stepReleased, stepClaimed, stepCordoned, stepReleased)
	r.world = clouds.New(ctx, clouds.Options{
		Hosts: clouds.SimulatedHosts(r.cluster), CreateTime: seconds(b.machineSeconds), DeleteTime: seconds(b.machineSeconds),
		Identify: r.identify, ID: r.id,
	})
	server := httptest.NewServer(r.handler(r.world))
	b.env = r.double.env(server.URL)
	b.stops = append(b.stops, server.Close, r.world.Wait)
	r.rollout = &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "machines"},
		Spec: v1alpha1.NodeRolloutSpec{
			Strategy: &v1alpha1.Strategy{MaxConcurrent: surge},
			Replacement: &v1alpha1.Replacement{
				Provider: r.provider, ScaleSets: []string{r.set}, Surge: surge, DetectOnly: true,
				CheckPeriod: &metav1.Duration{Duration: seconds(b.checkSeconds)},
			},
		},
	}
	say("creating a scale set of %d machines", b.size)
	if err := r.world.Create(ctx, clouds.Set{Name: r.set, Image: oldImage, Capacity: b.size, Zones: r.zones}); err != nil {
		return nil, err
	}
	return &setup{bare: r.bare, ideal: r.ideal(), subjects: []*subject{r.subject()}}, r.untilReady(ctx)
}

func (r *replacementRun) ideal() time.Duration {
	return inRounds(r.size, r.atOnce, 2*r.machineSeconds)
}

// bare adds a machine for each, waits for its node, drains the old one and deletes it, as many at once as the surge.
func (r *replacementRun) bare(ctx context.Context) (time.Duration, error) {
	machines := r.world.Machines(r.set)
	took, err := r.bareTurns(ctx, r.atOnce, func(ctx context.Context, l *onlooker, i int) error {
		old := machines[i]
		added, _, err := r.world.Add(r.set, old.Zone, nil, 1)
		if err != nil {
			return err
		}
		if err := l.untilNode(ctx, added[0].NodeName, func(n *corev1.Node) bool { return isReady(n) && len(n.Spec.Taints) == 0 }); err != nil {
			return err
		}
		if err := r.drain(ctx, l, old.NodeName); err != nil {
			return err
		}
		if _, err := r.world.Delete(r.set, []string{old.ID}, true); err != nil {
			return err
		}
		// The cloud says no more of a machine that is gone than its Node does.
		if err := l.untilNode(ctx, old.NodeName, func(n *corev1.Node) bool { return !isReady(n) }); err != nil {
			return err
		}
		return r.raw.CoreV1().Nodes().Delete(ctx, old.NodeName, metav1.DeleteOptions{})
	})
	if err != nil {
		return 0, err
	}
	return took, r.untilReady(ctx)
}

func (r *replacementRun) subject() *subject {
	find := &stage{
		name: stageFind, units: r.size,
		start: func(ctx context.Context) error {
			return errors.Join(r.world.Edit(r.set, func(s *clouds.Set) error { s.Image = newImage; return nil }), r.create(ctx, r.rollout))
		},
		done: func(ctx context.Context, _ *phase) (bool, error) {
			err := r.client.Get(ctx, client.ObjectKeyFromObject(r.rollout), r.rollout)
			sets := r.rollout.Status.ScaleSets
			return len(sets) == 1 && int(sets[0].Outdated) == r.size, err
		},
	}
	update := &stage{
		name: stageUpdate, units: r.size, ideal: r.ideal(), compared: true,
		start: func(ctx context.Context) error {
			return r.client.Patch(ctx, r.rollout, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replacement":{"detectOnly":false}}}`)))
		},
		done: func(ctx context.Context, _ *phase) (bool, error) {
			if r.tally.released() < r.size {
				return false, nil
			}
			updated, err := r.updated(ctx, r.rollout)
			return updated && r.complete(), err
		},
	}
	return &subject{
		name: "replacement", objects: []client.Object{r.rollout}, watches: []watched{r.tally.watch(r.bench)}, progress: r.tally.progress,
		prepare: func(ctx context.Context) error {
			nodes, err := r.nodes(ctx)
			if err != nil {
				return err
			}
			r.original, r.journal = names(nodes), len(r.world.Journal())
			return r.deployForNodes(ctx)
		},
		meters: []*meter{controllerMeter(nil), {name: "cloud", calls: r.world.Calls, changes: r.changes}},
		stages: []*stage{find, update},
		check:  r.check,
		checkIdle: func(p *phase, result *result) {
			if r.idle > 2*seconds(r.checkSeconds) && p.Programs[1].All == 0 {
				result.wrong("the operator asked nothing of the cloud when idle")
			}
		},
	}
}

// complete reports whether all machines are of the new image, with nothing in progress.
func (r *replacementRun) complete() bool {
	is := &r.rollout.Status
	if len(is.Turns) > 0 || len(is.ScaleSets) != 1 || len(is.ScaleSets[0].Operations) > 0 {
		return false
	}
	machines := r.world.Machines(r.set)
	return len(machines) == r.size && !slices.ContainsFunc(machines, func(m clouds.Machine) bool { return clouds.ImageName(m.Image) != newImage })
}

// check checks that each machine was replaced once, with never more machines than the surge allows and never fewer than before.
func (r *replacementRun) check(ctx context.Context, result *result) error {
	set, _ := r.world.Set(r.set)
	end := machinesEnd{size: r.size, surge: r.atOnce, unevenness: 1, zones: map[string]int{}}
	if !r.zonal {
		// A cloud that chooses zones evens out old and new machines together, of which the last old ones are as many as the surge.
		end.unevenness = max(2, r.atOnce/5)
	}
	for _, zone := range set.Zones {
		end.zones[zone] = 0
	}
	machines := map[string]bool{}
	for _, m := range r.world.Machines(r.set) {
		machines[m.NodeName] = true
		end.zones[m.Zone]++
	}
	end.follow(r.set, r.world.Journal()[r.journal:])
	result.add(end.verify()...)
	update := result.stage(stageUpdate)
	r.tally.report(update, r.atOnce)
	update.figure("machines at once, at most", float64(end.most))
	update.figure("machines at once, at least", float64(end.fewest))
	update.figure("nodes claimed at once", float64(r.tally.mostClaimed))
	result.add(r.tally.verify(r.original, nodeState{claims: 1, cordons: 1, deletions: 1})...)
	return r.checkNodes(ctx, result, func(n *corev1.Node) string {
		if !machines[n.Name] {
			return "has no machine"
		}
		return ""
	})
}

// machinesEnd is what has happened in a scale set, and how many machines each zone has in the end.
type machinesEnd struct {
	size, surge, unevenness      int
	added, deleted, fewest, most int
	zones                        map[string]int
}

// follow counts the machines, change by change.
func (e *machinesEnd) follow(set string, journal []clouds.Call) {
	e.fewest, e.most = e.size, e.size
	for _, c := range journal {
		names := strings.Fields(c.Detail)
		if len(names) == 0 || names[0] != set || c.Outcome != "" {
			continue
		}
		switch c.Name {
		case "Add", "Heal":
			e.added += len(names) - 1
		case "Delete", "Kill":
			e.deleted += len(names) - 1
		}
		n := e.size + e.added - e.deleted
		e.fewest, e.most = min(e.fewest, n), max(e.most, n)
	}
}

func (e *machinesEnd) verify() (problems []error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if e.added != e.size || e.deleted != e.size {
		wrong("%d machines were added and %d deleted, and should be %d", e.added, e.deleted, e.size)
	}
	if e.most > e.size+e.surge {
		wrong("there were %d machines at once, and may be %d", e.most, e.size+e.surge)
	}
	if e.fewest < e.size {
		wrong("there were only %d machines", e.fewest)
	}
	counts := slices.Collect(maps.Values(e.zones))
	if slices.Max(counts) > slices.Min(counts)+e.unevenness {
		wrong("the zones have %v machines", e.zones)
	}
	return problems
}
