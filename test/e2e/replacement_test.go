// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

// The machines of a scale set are replaced when its image changes, one at a time, in each of the clouds alike.
func TestReplacement(t *testing.T) {
	t.Parallel()
	for _, cloud := range []*cloudDouble{azureDouble, awsDouble, gcpDouble} {
		t.Run(cloud.name, func(t *testing.T) {
			t.Parallel()
			replaced(t, cloud)
		})
	}
}

// replaced replaces the machines of a set by others.
func replaced(t *testing.T, cloud *cloudDouble) {
	const capacity = 4
	p := newPool(t, "all-"+cloud.name, poolOptions{cloud: cloud, capacity: capacity})
	serves := deploy(t, "serves-"+cloud.name, capacity, capacity-1)
	journal, pods := newPoolJournal(t, p), newServingJournal(t, serves)
	createRollout(t, p.newRollout())
	p.done(t, oldImage, capacity)
	p.replacedNone(t)

	p.setImage(t, newImage)
	r := p.done(t, newImage, capacity)
	if r.Status.Revision == "" || r.Status.ScaleSets[0].Capacity != capacity || r.Status.ScaleSets[0].Machines != capacity || r.Status.ScaleSets[0].Outdated != 0 {
		t.Errorf("the revision is %q, the scale sets %+v", r.Status.Revision, r.Status.ScaleSets)
	}
	p.replacedOnce(t)
	p.never(t, capacity+1, capacity)
	p.balanced(t)
	journal.check(t, 1)
	available(t, serves, capacity)
	pods.check(t, capacity-1)
	evictions(t, serves)
}

// replacedNone checks that no machine has gone.
func (p *pool) replacedNone(t *testing.T) {
	t.Helper()
	if gone := p.world.Gone(p.full); len(gone) > 0 {
		t.Errorf("%d machines have gone that were not to: %+v", len(gone), gone)
	}
	if now := len(p.world.Machines(p.full)); now != p.capacity {
		t.Errorf("there are %d machines, want %d", now, p.capacity)
	}
}

// balanced checks that zones have as many machines each as can be. Where the cloud chooses the zone of a new machine, by where there are fewest while
// the one that goes is still there, it may be one more.
func (p *pool) balanced(t *testing.T) {
	t.Helper()
	count := map[string]int{}
	for _, zone := range p.zones {
		count[zone] = 0
	}
	for _, m := range p.world.Machines(p.full) {
		count[m.Zone]++
	}
	fewest, most := p.capacity, 0
	for _, n := range count {
		fewest, most = min(fewest, n), max(most, n)
	}
	allowed := 2
	if p.cloudDouble == awsDouble {
		allowed = 1
	}
	if most-fewest > allowed {
		t.Errorf("machines by zone: %v", count)
	}
}

// Three real machines are replaced by three others, as a person would have it done: the image is set by the program, and what runs on them moves.
func TestReplacementOfMachines(t *testing.T) {
	t.Parallel()
	if world.noMachines != nil {
		t.Skipf("no machines: %v", world.noMachines)
	}
	const capacity = 3
	p := newPool(t, "machines", poolOptions{capacity: capacity, hosts: clouds.MachineHosts(world.Cluster)})
	serves := deploy(t, "serves-machines", capacity, capacity-1)
	journal, pods := newPoolJournal(t, p), newServingJournal(t, serves)
	r := p.newRollout()
	r.Spec.Health = &v1alpha1.NodeHealth{MinReadySeconds: 2}
	createRollout(t, r)
	p.done(t, oldImage, capacity)

	if out, err := p.program(t, "set-image", "-imageid", newImage, "--scale-set", p.full); err != nil {
		t.Fatal(err, out)
	}
	p.done(t, newImage, capacity)
	p.replacedOnce(t)
	p.never(t, capacity+1, capacity)
	p.balanced(t)
	journal.check(t, 1)
	available(t, serves, capacity)
	pods.check(t, capacity-1)
	evictions(t, serves)
	for _, m := range p.world.Gone(p.full) {
		if world.Machine(m.NodeName) != nil {
			t.Errorf("the machine %s is there still", m.NodeName)
		}
	}
}

// program runs the operator's program, connected to the pool's cloud.
func (p *pool) program(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), world.program, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, p.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Many machines are replaced a tenth at a time.
func TestReplacementOfTenPercent(t *testing.T) {
	t.Parallel()
	const capacity = 20
	p := newPool(t, "tenth", poolOptions{capacity: capacity})
	journal := newPoolJournal(t, p)
	r := p.newRollout()
	tenth := ptr.To(intstr.FromString("10%"))
	r.Spec.Replacement.Surge, r.Spec.Strategy = tenth, &v1alpha1.Strategy{MaxConcurrent: tenth}
	p.setImage(t, newImage)
	createRollout(t, r)
	rolloutWithin(t, 2*patience, p.name, "two at once", func(s *v1alpha1.NodeRolloutStatus) bool { return len(s.Turns) == 2 })
	p.done(t, newImage, capacity)
	p.replacedOnce(t)
	p.never(t, capacity+2, capacity)
	p.balanced(t)
	journal.check(t, 2)
}

// Without surge a machine goes before the next one comes.
func TestReplacementWithoutSurge(t *testing.T) {
	t.Parallel()
	const capacity = 3
	p := newPool(t, "no-surge", poolOptions{capacity: capacity, max: capacity})
	journal := newPoolJournal(t, p)
	r := p.newRollout()
	r.Spec.Replacement.Surge = ptr.To(intstr.FromInt32(0))
	p.setImage(t, newImage)
	createRollout(t, r)
	p.done(t, newImage, capacity)
	p.replacedOnce(t)
	p.never(t, capacity, capacity-1)
	p.balanced(t)
	journal.check(t, 1)
}

// A rollout that only detects shows what is outdated, and touches nothing. Nor is a node touched that is opted out.
func TestReplacementDetectsOnly(t *testing.T) {
	t.Parallel()
	const capacity = 2
	p := newPool(t, "detects", poolOptions{capacity: capacity})
	r := p.newRollout()
	r.Spec.Replacement.DetectOnly = true
	createRollout(t, r)
	p.done(t, oldImage, capacity)
	p.setImage(t, newImage)
	seen := rolloutWithin(t, 2*patience, p.name, "shows outdated machines", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.ScaleSets) == 1 && s.ScaleSets[0].Outdated == capacity &&
			len(s.Waiting) == capacity && s.Waiting[0].Reason == v1alpha1.ReasonDetectOnly
	})
	if len(seen.Status.Turns) > 0 {
		t.Errorf("turns: %+v", seen.Status.Turns)
	}
	out := p.nodes(t)[0].Name
	optOut := v1alpha1.LabelNodeRollout(p.name)
	patchNode(t, out, map[string]any{"metadata": map[string]any{"labels": map[string]any{optOut: v1alpha1.LabelNodeRolloutDisabled}}})
	rolloutWithin(t, patience, p.name, "leaves one out", func(s *v1alpha1.NodeRolloutStatus) bool { return s.Counts.Total == 1 })
	p.replacedNone(t)
	p.settled(t, oldImage, capacity)

	editRollout(t, p.name, func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.DetectOnly = false })
	rolloutWithin(t, 3*patience, p.name, "done with the other", func(s *v1alpha1.NodeRolloutStatus) bool {
		return ready(s) && s.Counts.Total == 1 && s.Counts.Updated == 1 && len(s.Turns) == 0
	})
	if n := node(t, out); n.Status.NodeInfo.OSImage != oldImage || leftovers(n) != "" {
		t.Errorf("%s, which is opted out, runs %s, and %s", n.Name, n.Status.NodeInfo.OSImage, leftovers(n))
	}
	patchNode(t, out, map[string]any{"metadata": map[string]any{"labels": map[string]any{optOut: nil}}})
	p.done(t, newImage, capacity)
	p.replacedOnce(t)
}

// An image that changes again in the middle of a rollout is what machines are replaced by from then on, and each old one only once.
func TestReplacementImageChangesAgain(t *testing.T) {
	t.Parallel()
	const capacity = 3
	const last = "flatcar-stable-1.31.4-v4-0badf00d"
	p := newPool(t, "again", poolOptions{capacity: capacity})
	journal := newPoolJournal(t, p)
	createRollout(t, p.newRollout())
	p.setImage(t, newImage)
	rolloutWithin(t, 3*patience, p.name, "has replaced one", func(*v1alpha1.NodeRolloutStatus) bool { return len(p.world.Gone(p.full)) > 0 })
	p.setImage(t, last)
	p.done(t, last, capacity)
	p.never(t, capacity+1, capacity)
	journal.check(t, 1)
	gone := map[string]bool{}
	for _, m := range p.world.Gone(p.full) {
		gone[m.ID] = true
		if m.Image == last {
			t.Errorf("%s was of the last image", m.ID)
		}
	}
	for _, id := range p.original {
		if !gone[id] {
			t.Errorf("%s is there still", id)
		}
	}
}

// Once replacements of a new image fail, the scale set gets the one back that it had, and machines of the failed one go.
func TestReplacementRollsBack(t *testing.T) {
	t.Parallel()
	const capacity = 3
	p := newPool(t, "rollback", poolOptions{capacity: capacity})
	r := p.newRollout()
	r.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0))}
	r.Spec.Replacement.Rollback = true
	createRollout(t, r)
	p.done(t, oldImage, capacity)
	p.setImage(t, badImage)
	rolloutWithin(t, 3*patience, p.name, "has replaced one", func(*v1alpha1.NodeRolloutStatus) bool { return len(p.world.Gone(p.full)) > 0 })
	p.fault(clouds.Fault{Kind: clouds.JoinsSick})
	editRollout(t, p.name, impatient)
	rolloutWithin(t, 3*patience, p.name, "has put the image back", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.ScaleSets) == 1 && s.ScaleSets[0].RolledBack != ""
	})
	p.world.ClearFaultsOf(p.full)
	editRollout(t, p.name, patient)
	within(t, 2*patience, "the scale set has its image back", func(context.Context) (string, bool) {
		set, _ := p.world.Set(p.full)
		return set.Image, set.Image == oldImage
	})
	within(t, 4*patience, "no machine is of the failed image", func(context.Context) (string, bool) {
		images := map[string]int{}
		for _, m := range p.world.Machines(p.full) {
			images[m.Image+" "+m.State]++
		}
		return fmt.Sprint(images), len(images) == 1 && images[oldImage+" "+clouds.Running] == capacity
	})
	p.done(t, oldImage, capacity)
}

// An image of which the cloud makes no machine at all is taken back as well, before any machine has gone.
func TestReplacementRollsBackUnmade(t *testing.T) {
	t.Parallel()
	tests := newTogether(t, 2)
	for call, cloud := range map[string]*cloudDouble{"LaunchInstances": awsDouble, "createInstances": gcpDouble} {
		tests.run(cloud.name, func(t *testing.T) {
			p := newPool(t, "unmade-"+cloud.name, poolOptions{cloud: cloud, capacity: 2})
			r := p.newRollout()
			r.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0))}
			r.Spec.Replacement.Rollback = true
			impatient(r)
			createRollout(t, r)
			p.done(t, oldImage, p.capacity)
			p.fault(clouds.Fault{Kind: clouds.Invalid, Call: call})
			p.setImage(t, badImage)
			rolloutWithin(t, 3*patience, p.name, "has put the image back", func(s *v1alpha1.NodeRolloutStatus) bool {
				return len(s.ScaleSets) == 1 && s.ScaleSets[0].RolledBack != ""
			})
			p.done(t, oldImage, p.capacity)
			if set, _ := p.world.Set(p.full); set.Image != oldImage {
				t.Errorf("the scale set makes machines of %s", set.Image)
			}
			if gone := p.world.Gone(p.full); len(gone) > 0 {
				t.Errorf("%d machines have gone", len(gone))
			}
		})
	}
	tests.wait()
}

// A NodeRollout that is deleted in the middle of a turn leaves nothing behind: no machine more than before, and no node cordoned.
func TestReplacementIsDeleted(t *testing.T) {
	t.Parallel()
	tests := newTogether(t, 3)
	for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineDraining, v1alpha1.MachineDeleting} {
		tests.run(string(phase), func(t *testing.T) {
			const capacity = 2
			p := newPool(t, "deleted-"+string(phase[0]|0x20)+string(phase[1:]), poolOptions{capacity: capacity})
			switch phase {
			case v1alpha1.MachineAdding, v1alpha1.MachineDeleting:
				p.fault(clouds.Fault{Kind: clouds.Slow})
			case v1alpha1.MachineJoining:
				p.fault(clouds.Fault{Kind: clouds.JoinsSick, Times: 1})
			case v1alpha1.MachineDraining:
				deploy(t, p.name, capacity, capacity) // no pod of it can be evicted
			}
			r := p.newRollout()
			p.setImage(t, newImage)
			createRollout(t, r)
			rolloutWithin(t, 3*patience, p.name, "is "+string(phase), func(s *v1alpha1.NodeRolloutStatus) bool {
				return slices.ContainsFunc(s.Turns, func(t v1alpha1.MachineTurn) bool { return t.Phase == phase })
			})
			if err := world.Delete(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			p.world.ClearFaultsOf(p.full)
			within(t, 3*patience, "the NodeRollout goes", func(ctx context.Context) (string, bool) { return gone(ctx, p.name) })
			within(t, patience, "nothing is left", func(context.Context) (string, bool) {
				set, _ := p.world.Set(p.full)
				machines, nodes := p.world.Machines(p.full), p.nodes(t)
				for _, n := range nodes {
					if why := leftovers(&n); why != "" {
						return n.Name + " " + why, false
					}
				}
				return fmt.Sprintf("capacity %d, %d machines, %d nodes", set.Capacity, len(machines), len(nodes)),
					set.Capacity == capacity && len(machines) == capacity && len(nodes) == capacity
			})
		})
	}
	tests.wait()
}

// A Node that somebody deletes early, as cloud controllers do, does not stop its turn.
func TestReplacementNodeIsDeletedEarly(t *testing.T) {
	t.Parallel()
	const capacity = 2
	p := newPool(t, "early", poolOptions{capacity: capacity})
	p.fault(clouds.Fault{Kind: clouds.Slow, Call: "Delete"})
	p.setImage(t, newImage)
	createRollout(t, p.newRollout())
	var first string
	rolloutWithin(t, 3*patience, p.name, "deletes a machine", func(s *v1alpha1.NodeRolloutStatus) bool {
		for _, turn := range s.Turns {
			if turn.Phase == v1alpha1.MachineDeleting {
				first = turn.Node
			}
		}
		return first != ""
	})
	if err := client.IgnoreNotFound(world.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: first}})); err != nil {
		t.Fatal(err)
	}
	p.done(t, newImage, capacity)
	p.replacedOnce(t)
	p.never(t, capacity+1, capacity)
}
