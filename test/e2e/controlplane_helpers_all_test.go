// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/etcd"
)

// kubeadmHosts play machines of a control plane that kubeadm made: the node is a simulated one, and its member of etcd is real. It joins after the
// node is ready, as a learner, and is promoted.
type kubeadmHosts struct {
	clouds.Hosts
	*etcd.Cluster
	t *testing.T

	mu sync.Mutex
	// members are the nodes whose member votes.
	members []string
}

// newKubeadmHosts makes an etcd without members, and gives the operator the certificates for it.
func newKubeadmHosts(t *testing.T) *kubeadmHosts {
	t.Helper()
	h := &kubeadmHosts{Hosts: clouds.SimulatedHosts(world.Cluster), Cluster: etcd.Start(t), t: t}
	pki := filepath.Join(world.dir, "etcd-pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "server.crt", "server.key"} {
		raw, err := os.ReadFile(filepath.Join(h.Certificates(), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(pki, name), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(pki); err != nil {
			t.Error(err)
		}
	})
	return h
}

// Start lets the node come, and then does what `kubeadm join --control-plane` does.
func (h *kubeadmHosts) Start(ctx context.Context, m clouds.Machine) error {
	m.Labels = maps.Clone(m.Labels)
	m.Labels["node-role.kubernetes.io/control-plane"] = ""
	if err := h.startNode(ctx, m); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if len(h.members) == 0 {
		err = errors.Join(h.Found(ctx, m.NodeName), h.pod(ctx, m.NodeName))
	} else {
		via := h.members[len(h.members)-1]
		if err = h.JoinAsLearner(ctx, m.NodeName, via); err == nil {
			if err = h.pod(ctx, m.NodeName); err == nil {
				err = h.Promote(ctx, m.NodeName, via)
			}
		}
	}
	if err != nil {
		return err
	}
	h.members = append(h.members, m.NodeName)
	return nil
}

// startNode lets the node come. A machine whose start fails once has failed for good.
func (h *kubeadmHosts) startNode(ctx context.Context, m clouds.Machine) error {
	again := false
	return persistently(ctx, func(ctx context.Context) error {
		err := h.Hosts.Start(ctx, m)
		if again && apierrors.IsAlreadyExists(err) {
			return nil
		}
		again = true
		return err
	})
}

// Stop ends the member with its machine.
func (h *kubeadmHosts) Stop(ctx context.Context, m clouds.Machine) error {
	h.mu.Lock()
	h.members = slices.DeleteFunc(h.members, func(name string) bool { return name == m.NodeName })
	h.mu.Unlock()
	h.Cluster.Stop(m.NodeName)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "etcd-" + m.NodeName}}
	return errors.Join(
		persistently(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(world.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		}),
		persistently(ctx, func(ctx context.Context) error { return h.Hosts.Stop(ctx, m) }),
	)
}

// pod makes the mirror of the static pod that etcd runs in.
func (h *kubeadmHosts) pod(ctx context.Context, node string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "etcd-" + node,
			Labels: map[string]string{"component": "etcd", "tier": "control-plane"},
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey:                      "0badcafe",
				"kubernetes.io/config.source":                      "file",
				"kubeadm.kubernetes.io/etcd.advertise-client-urls": h.URL(node),
			},
		},
		Spec: corev1.PodSpec{
			NodeName:    node,
			HostNetwork: true,
			Containers:  []corev1.Container{{Name: "etcd", Image: "registry.k8s.io/etcd:3.7.0-0"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	return persistently(ctx, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(world.Create(ctx, pod))
	})
}

// clusterConfig is what kubeadm keeps of the cluster, with what people and later versions may have added.
const clusterConfig = "apiServer:\n  extraArgs:\n  - name: audit-log-path\n    value: \"/var/log/audit\"\napiVersion: kubeadm.k8s.io/v1beta4\n" +
	"kind: ClusterConfiguration\nkubernetesVersion: v%s  # of all nodes\nunknownToUs: {a:   1}\n"

// makeKubeadmConfig makes ConfigMap kubeadm-config until the test ends.
func makeKubeadmConfig(t *testing.T, version string) {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": fmt.Sprintf(clusterConfig, version)},
	}
	if err := world.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.Delete(context.WithoutCancel(t.Context()), cm); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func readKubeadmConfig(ctx context.Context) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	return cm, world.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, cm)
}

// etcdUser writes and reads all along, each time through another member, as long as the test does not end it.
type etcdUser struct {
	hosts *kubeadmHosts
	stop  context.CancelFunc
	ended chan struct{}

	// done is how often it wrote and read, again how often it had to turn to another member, and failed what no one answered, or answered wrongly.
	done, again int
	failed      []error
	// fewest and most are how many voters it saw, and learners how many learners at once.
	fewest, most, learners int
	// through counts by member.
	through map[string]int
}

// newEtcdUser begins to use etcd.
func newEtcdUser(t *testing.T, h *kubeadmHosts) *etcdUser {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	u := &etcdUser{hosts: h, stop: stop, ended: make(chan struct{}), fewest: 1000, through: map[string]int{}}
	go u.use(ctx)
	t.Cleanup(u.end)
	return u
}

// end ends it, and waits until it has.
func (u *etcdUser) end() {
	u.stop()
	<-u.ended
}

func (u *etcdUser) use(ctx context.Context) {
	defer close(u.ended)
	clients := map[string]*clientv3.Client{}
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	u.hosts.mu.Lock()
	members := slices.Clone(u.hosts.members)
	u.hosts.mu.Unlock()
	// call asks one member after the other.
	next := 0
	call := func(do func(context.Context, *clientv3.Client) error) {
		var errs []error
		for deadline := time.Now().Add(patience / 2); ; u.again++ {
			name := members[next%len(members)]
			next++
			c, err := clients[name], error(nil)
			if c == nil {
				if c, err = u.hosts.Client(name); err == nil {
					clients[name] = c
				}
			}
			if err == nil {
				// A member that is gone does not say so. Before all of those that were there at first are, another is asked.
				once, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
				err = do(once, c)
				cancel()
			}
			if err == nil {
				u.through[name]++
				return
			}
			if errs = append(errs, fmt.Errorf("%s, %w", name, err)); time.Now().After(deadline) {
				u.failed = append(u.failed, errors.Join(errs...))
				return
			}
		}
	}
	for i := 0; ctx.Err() == nil; i++ {
		want := strconv.Itoa(i)
		call(func(ctx context.Context, c *clientv3.Client) error {
			if i == 0 || len(u.failed) > 0 {
				_, err := c.Put(ctx, "written", want)
				return err
			}
			// What no one answered may be done later, and must not undo what came after it. Where it was done already this does
			// nothing, and what is read tells.
			before := clientv3.Compare(clientv3.Value("written"), "=", strconv.Itoa(i-1))
			_, err := c.Txn(ctx).If(before).Then(clientv3.OpPut("written", want)).Commit()
			return err
		})
		call(func(ctx context.Context, c *clientv3.Client) error {
			got, err := c.Get(ctx, "written")
			if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want) {
				u.failed = append(u.failed, fmt.Errorf("read %v, want %s", got.Kvs, want))
			}
			return err
		})
		call(func(ctx context.Context, c *clientv3.Client) error {
			list, err := c.MemberList(ctx)
			if err != nil {
				return err
			}
			members = members[:0]
			learners := 0
			for _, m := range list.Members {
				if m.IsLearner {
					learners++
				} else {
					members = append(members, m.Name)
				}
			}
			u.fewest, u.most, u.learners = min(u.fewest, len(members)), max(u.most, len(members)), max(u.learners, learners)
			return nil
		})
		u.done++
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
