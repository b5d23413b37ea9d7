// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/rollout"
)

var (
	// now is when the tests look at the world, noon on a Friday. The controller has watched since an hour before.
	now     = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	started = now.Add(-time.Hour)
	update  = flag.Bool("update", false, "write the golden files anew")
)

// The Plan of the tests, what it wants, and what it wanted before.
const (
	namespace = "system-upgrade"
	name      = "k3s"
	uid       = types.UID("5d1c2b3a-1111-4222-8333-944455566677")
	latest    = "v1.31.2-k3s1"
	hash      = "3a4d1b0d4b0a3f6e8e7d9b5c1f2a6e8d7c9b0a1e2d3c4b5a69788776"
	oldHash   = "0000000000000000000000000000000000000000000000000000dead"
	self      = "Plan/" + namespace + "/" + name
)

// ago is a time as the API stores it.
func ago(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)} }

// newPlan makes a Plan that is valid and resolved, selects every node, and neither cordons nor drains.
func newPlan(change ...func(*upgradev1.Plan)) *upgradev1.Plan {
	p := &upgradev1.Plan{
		TypeMeta:   metav1.TypeMeta{APIVersion: "upgrade.cattle.io/v1", Kind: "Plan"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, Generation: 3},
		Spec: upgradev1.PlanSpec{
			Concurrency:  2,
			Version:      "v1.31.2+k3s1",
			NodeSelector: &metav1.LabelSelector{},
			Upgrade:      &upgradev1.ContainerSpec{Image: "rancher/k3s-upgrade"},
		},
		Status: upgradev1.PlanStatus{LatestVersion: latest, LatestHash: hash},
	}
	for _, how := range change {
		how(p)
	}
	return p
}

func drains(p *upgradev1.Plan) { p.Spec.Drain = &upgradev1.DrainSpec{} }

func imageless(p *upgradev1.Plan) { p.Spec.Upgrade.Image = "" }

func soaks(d time.Duration) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) { p.Spec.PostCompleteDelay = &metav1.Duration{Duration: d} }
}

// testOptions are the defaults of the operator.
func testOptions() *Options {
	return &Options{
		Name: "system-upgrade-controller", Namespace: namespace, Threads: 2, ClusterID: "cluster-uid", PollingInterval: 15 * time.Minute,
		Job: plan.JobOptions{
			ActiveDeadlineSeconds: 600, BackoffLimit: 2, Image: "ghcr.io/moult-dev/moult:v1", Privileged: true,
			ImagePullPolicy: corev1.PullIfNotPresent, TTLSecondsAfterFinish: 900, PodReplacementPolicy: batchv1.TerminatingOrFailed,
		},
	}
}

// newNode makes a node of Linux whose hostname is not quite its name.
func newNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	host, _, _ := strings.Cut(name, ".")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7",
		Labels:      map[string]string{corev1.LabelHostname: "host-" + host, corev1.LabelOSStable: "linux"},
		Annotations: map[string]string{},
	}}
	for _, how := range change {
		how(n)
	}
	return n
}

func windows(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "windows" }

func unschedulable(n *corev1.Node) { n.Spec.Unschedulable = true }

// labelled puts the Plan's label on.
func labelled(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[upgradev1.LabelPlanHash(name)] = value }
}

func without(label string) func(*corev1.Node) {
	return func(n *corev1.Node) { delete(n.Labels, label) }
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

// holding puts claims on.
func holding(claims ...v1alpha1.Claim) func(*corev1.Node) {
	text, err := v1alpha1.FormatClaims(claims)
	if err != nil {
		panic(err)
	}
	return annotated(v1alpha1.AnnotationClaims, text)
}

// asked stands for the attempt that the Plan asks for now.
const asked = "asked"

// claimed is the Plan's claim of ten minutes ago, for turn "t1" and what the Plan asks for now.
func claimed(change ...func(*v1alpha1.Claim)) v1alpha1.Claim {
	c := v1alpha1.Claim{Rollout: self, UID: uid, Shared: true, Revision: hash, Attempt: asked, Turn: "t1", Since: ago(10 * time.Minute), KeptSeconds: 900}
	for _, how := range change {
		how(&c)
	}
	return c
}

func broken(c *v1alpha1.Claim) {
	c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Time: ago(5 * time.Minute)}
}

// newTurnJob makes the Job of turn "t1" on a node, as the controller does, and running.
func newTurnJob(p *upgradev1.Plan, n *corev1.Node, change ...func(*batchv1.Job)) *batchv1.Job {
	j := newJob(p, n, "t1", testOptions())
	j.UID, j.CreationTimestamp = types.UID("job-"+n.Name), ago(9*time.Minute)
	for _, how := range change {
		how(j)
	}
	return j
}

// left makes a Job that system-upgrade-controller has left.
func left(j *batchv1.Job) {
	delete(j.Annotations, v1alpha1.AnnotationTurn)
	delete(j.Annotations, v1alpha1.AnnotationTemplate)
	j.Name = "apply-k3s-on-" + j.Labels[upgradev1.LabelNode] + "-with-3a4d1b-0d4b0"
}

func ended(kind batchv1.JobConditionType, at metav1.Time) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		c := batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at}
		if kind != batchv1.JobComplete {
			c.Reason, c.Message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
		}
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}, c)
	}
}

func succeeded(j *batchv1.Job) { ended(batchv1.JobComplete, ago(time.Minute))(j) }

func failed(j *batchv1.Job) { ended(batchv1.JobFailed, ago(time.Minute))(j) }

func deleted(j *batchv1.Job) { j.DeletionTimestamp = ptr.To(ago(time.Second)) }

func ofTurn(turn string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Annotations[v1alpha1.AnnotationTurn] = turn }
}

func forHash(value string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Labels[upgradev1.LabelPlanHash(name)] = value }
}

func ownedBy(owner types.UID) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.OwnerReferences[0].UID = owner }
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it anew:\n%s", path, diff)
	}
}

// snapshotOf is what the caches show of these nodes, with no Jobs.
func snapshotOf(nodes ...*corev1.Node) snapshot {
	s := snapshot{jobs: map[string][]*batchv1.Job{}, pods: map[string][]*corev1.Pod{}}
	s.Objects, s.Nodes = nodes, map[string]*rollout.Node{}
	hostnames := map[string]int{}
	s.SharedHostnames = map[string]bool{}
	for _, n := range nodes {
		s.Nodes[n.Name] = rollout.NewNode(n)
		hostname := n.Labels[corev1.LabelHostname]
		if hostnames[hostname]++; hostnames[hostname] > 1 {
			s.SharedHostnames[hostname] = true
		}
	}
	return s
}
