// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// The three nodes of a control plane are replaced, one at a time although more are allowed, and etcd answers all along. A sick member stops it.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	const capacity = 3
	const image = "flatcar-stable-1.32.0-v2-0badcafe"
	makeKubeadmConfig(t, "1.31.4")
	h := newKubeadmHosts(t)
	p := newPool(t, "kubeadm", poolOptions{capacity: capacity, hosts: h})
	journal := newPoolJournal(t, p)
	r := p.newRollout()
	many := ptr.To(intstr.FromInt32(capacity))
	r.Spec.Strategy = &v1alpha1.Strategy{MaxConcurrent: many}
	r.Spec.Replacement.Surge = many
	r.Spec.Replacement.ControlPlane = &v1alpha1.ControlPlane{}
	r.Spec.Replacement.KubernetesVersionFromImage = true
	createRollout(t, r)
	p.done(t, oldImage, capacity)
	p.replacedNone(t)

	sick := p.nodes(t)[1].Name
	if err := h.Freeze(sick); err != nil {
		t.Fatal(err)
	}
	p.setImage(t, image)
	rolloutIs(t, p.name, "waits for a sick member of etcd", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.Turns) == 0 && slices.ContainsFunc(s.Waiting, func(u v1alpha1.UnitStatus) bool {
			return u.Reason == v1alpha1.ReasonEtcdUnhealthy && strings.Contains(u.Message, "etcd member "+sick+" does not answer")
		})
	})
	p.replacedNone(t)
	if err := h.Thaw(sick); err != nil {
		t.Fatal(err)
	}

	user := newEtcdUser(t, h)
	p.done(t, image, capacity)
	user.end()
	p.replacedOnce(t)
	p.never(t, capacity+1, capacity)
	journal.check(t, 1)
	for _, err := range user.failed {
		t.Errorf("etcd failed: %v", err)
	}
	if user.done < 50 || user.fewest < capacity || user.most != capacity+1 || user.learners > 1 {
		t.Errorf("used etcd %d times, with %d to %d voters and up to %d learners", user.done, user.fewest, user.most, user.learners)
	}
	t.Logf("wrote and read %d times, turned to another member %d times, through %v", user.done, user.again, user.through)

	var names []string
	for _, n := range p.nodes(t) {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	votersAre(t, h, names)
	eventually(t, "what kubeadm keeps", func(ctx context.Context) (string, bool) {
		cm, err := readKubeadmConfig(ctx)
		if err != nil {
			return err.Error(), false
		}
		diff := gocmp.Diff(fmt.Sprintf(clusterConfig, "1.32.0"), cm.Data["ClusterConfiguration"])
		return "ClusterConfiguration (-want +got)\n" + diff, diff == ""
	})
}

// votersAre waits until etcd has these members, all of them voters.
func votersAre(t *testing.T, h *kubeadmHosts, names []string) {
	t.Helper()
	c, err := h.Client(names...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "the members of etcd", func(ctx context.Context) (string, bool) {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err.Error(), false
		}
		var voters []string
		for _, m := range list.Members {
			if !m.IsLearner {
				voters = append(voters, m.Name)
			}
		}
		slices.Sort(voters)
		diff := gocmp.Diff(names, voters)
		return diff, diff == "" && len(list.Members) == len(names)
	})
}
