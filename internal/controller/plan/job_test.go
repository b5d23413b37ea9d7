// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
)

// everything sets every field of a Plan that shapes its Jobs.
func everything(p *upgradev1.Plan) {
	p.Labels = map[string]string{
		"team": "platform", "cattle.io/creator": "norman", "plan.cattle.io/x": "y", "app.kubernetes.io/name": "k3s",
	}
	p.Annotations = map[string]string{
		"note": "hello", "upgrade.cattle.io/digest": "spec.upgrade", "kubectl.kubernetes.io/last-applied-configuration": "{}",
		"field.cattle.io/description": "x", v1alpha1.AnnotationRetry: "2",
	}
	p.Spec = upgradev1.PlanSpec{
		Concurrency:           3,
		JobActiveDeadlineSecs: ptr.To[int64](1234),
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		ServiceAccountName:    "upgrader",
		Channel:               "https://update.k3s.io/v1-release/channels/stable",
		Version:               "v1.31.2+k3s1",
		Secrets: []upgradev1.SecretSpec{
			{Name: "absolute", Path: "/etc/absolute", DefaultMode: ptr.To[int32](0o400)},
			{Name: "relative", Path: "some/where", IgnoreUpdates: true},
			{Name: "with.dots"},
		},
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "db", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](30)},
		},
		Window: &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{"mo"}, StartTime: "22:00", EndTime: "23:00"},
		Prepare: &upgradev1.ContainerSpec{
			Image: "registry.example.com:5000/prepare:v1", Command: []string{"/bin/prepare"}, Args: []string{"prepare", "k3s-server"},
			Env:     []corev1.EnvVar{{Name: "WHO", Value: "prepare"}},
			EnvFrom: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "prepare"}}}},
			Volumes: []upgradev1.VolumeSpec{
				{Name: "only-prepare", Source: "/opt/prepare", Destination: "/prepare"},
				{Name: "both", Source: "/opt/both", Destination: "/both-in-prepare"},
			},
			SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](1000)},
		},
		Upgrade: &upgradev1.ContainerSpec{
			Image: "rancher/k3s-upgrade", Command: []string{"/bin/upgrade"}, Args: []string{"--now", "$(SYSTEM_UPGRADE_NODE_NAME)"},
			Env: []corev1.EnvVar{
				{Name: "WHO", Value: "upgrade"},
				{Name: "SYSTEM_UPGRADE_PLAN_NAME", Value: "not so"},
			},
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}},
			Volumes: []upgradev1.VolumeSpec{
				{Name: "both", Source: "/opt/both", Destination: "/both"},
				{Name: "only-upgrade", Source: "/opt/upgrade", Destination: "/upgrade"},
			},
			SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_BOOT"}}},
		},
		Cordon: true, // Drain wins.
		Drain: &upgradev1.DrainSpec{
			Timeout:                  ptr.To(intstr.FromString("5m")),
			GracePeriod:              ptr.To[int32](30),
			DeleteEmptydirData:       ptr.To(true),
			IgnoreDaemonSets:         ptr.To(true),
			Force:                    true,
			DisableEviction:          true,
			SkipWaitForDeleteTimeout: 60,
			OnTimeout:                "Skip",
			WaitForVolumeDetach:      true,
			ExcludeFromLoadBalancers: ptr.To(true),
			PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x", "csi"}},
			}},
		},
		ImagePullSecrets:   []corev1.LocalObjectReference{{Name: "registry"}, {Name: "mirror"}},
		PostCompleteDelay:  &metav1.Duration{Duration: 20 * time.Minute},
		PriorityClassName:  "system-node-critical",
		PostCompleteLabels: map[string]string{"version": "$(LATEST_VERSION)"},
		Strategy:           &v1alpha1.Strategy{Order: []v1alpha1.Order{{}}},
	}
}

// The goldens are checked field by field against what system-upgrade-controller was seen to make. What differs is meant to:
// the Job's name, Moult's two annotations, parallelism 1 from the start, the names of volumes whose secret has dots, the
// volumes of prepare, and by default the image that cordons and drains, with the argument that it has beyond kubectl's.
func TestNewJob(t *testing.T) {
	kubectl := testOptions()
	kubectl.Job.KubectlImage = "rancher/kubectl:v1.30.3"
	others := testOptions()
	others.Name = "suc"
	others.Job = plan.JobOptions{
		BackoffLimit: 99, Image: "moult:v2", KubectlImageWindows: "rancher/kubectl-windows:v1", ImagePullPolicy: corev1.PullAlways,
		TTLSecondsAfterFinish: 60, PodReplacementPolicy: batchv1.Failed,
	}
	for name, tc := range map[string]struct {
		plan    *upgradev1.Plan
		node    *corev1.Node
		options *Options
	}{
		"minimal":    {newPlan(), newNode("node-1"), testOptions()},
		"everything": {newPlan(everything), newNode("node-1.example.com"), testOptions()},
		"exclusive":  {newPlan(func(p *upgradev1.Plan) { p.Spec.Exclusive = true }), newNode("node-1"), testOptions()},
		"cordon": {newPlan(func(p *upgradev1.Plan) {
			p.Spec.Cordon = true
			p.Spec.Upgrade.Volumes = []upgradev1.VolumeSpec{{Name: "data", Source: "/var/lib/data", Destination: "/data"}}
		}), newNode("node-1"), testOptions()},
		"drain":   {newPlan(drains), newNode("node-1"), testOptions()},
		"kubectl": {newPlan(drains), newNode("node-1"), kubectl},
		"windows": {newPlan(drains, func(p *upgradev1.Plan) { p.Spec.Prepare = &upgradev1.ContainerSpec{Image: "prepare"} }), newNode("win-1", windows), others},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.plan.DeepCopy()
			j := newJob(tc.plan, tc.node, "t1", tc.options)
			j.TypeMeta = metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}
			text, err := yaml.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "job-"+name+".yaml", string(text))
			if diff := cmp.Diff(before, tc.plan); diff != "" {
				t.Errorf("changed the Plan:\n%s", diff)
			}
		})
	}
}

// What the Job and its pod template hold must not be one and the same map: the API machinery of tests would not notice.
func TestNewJobSharesNothing(t *testing.T) {
	p := newPlan(everything)
	j := newJob(p, newNode("node-1"), "t1", testOptions())
	j.Labels["x"], j.Annotations["x"] = "y", "y"
	if j.Spec.Template.Labels["x"] != "" || j.Spec.Template.Annotations["x"] != "" || p.Labels["x"] != "" || p.Annotations["x"] != "" {
		t.Error("maps are shared")
	}
}

func TestJobName(t *testing.T) {
	long := strings.Repeat("x", 63)
	var names []string
	for _, tc := range []struct{ plan, node, hash, turn string }{
		{"k3s", "a.x", hash, "t1"},
		{"k3s", "a.y", hash, "t1"},
		{"k3s", "a", hash, "t1"},
		{"k3s", "a-x", hash, "t1"},
		{"k3s", "a.x", oldHash, "t1"},
		{"k3s", "a.x", hash, "t2"},
		{"k3s.b", "a", hash, "t1"},
		{"k3s-b", "a", hash, "t1"},
		{"k", "3s-on-a", hash, "t1"},
		{long, "a", hash, "t1"},
		{long, "b", hash, "t1"},
		{"k3s", long + "." + long + ".a", hash, "t1"},
		{"k3s", long + "." + long + ".b", hash, "t1"},
		{strings.Repeat("y", 41), ".a", hash, "t1"}, // Cut where only dashes are left.
		{strings.Repeat("y", 45), "a", hash, "t1"},
		{"p", "a", "", ""},
	} {
		p := newPlan()
		p.Name, p.Status.LatestHash = tc.plan, tc.hash
		got := jobName(p, tc.node, tc.turn)
		// A pod's name is made of it, and a label holds it.
		if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
			t.Errorf("%+v: %q is no name: %v", tc, got, problems)
		}
		if !strings.HasPrefix(got, "apply-"+tc.plan[:1]) {
			t.Errorf("%+v: %q does not say what it is", tc, got)
		}
		if got != jobName(p, tc.node, tc.turn) {
			t.Errorf("%+v: another name each time", tc)
		}
		names = append(names, got)
	}
	seen := map[string]int{}
	for i, name := range names {
		if j, ok := seen[name]; ok {
			t.Errorf("%d and %d have the same name %s", i, j, name)
		}
		seen[name] = i
	}
	p := newPlan()
	if got, want := jobName(p, "node-1.example.com", "t1"), "apply-k3s-on-node-1-example-com-with-3a4d1b0d4b0a3f6-"; !strings.HasPrefix(got, want[:52]) {
		t.Errorf("got %s, want %s…", got, want)
	}
}

func TestDeadline(t *testing.T) {
	secs := ptr.To[int64]
	for name, tc := range map[string]struct {
		plan         *int64
		usual, limit int64
		want         *int64
	}{
		"the default":                          {nil, 600, 0, secs(600)},
		"the Plan's":                           {secs(30), 600, 0, secs(30)},
		"the Plan's, longer than the default":  {secs(9000), 600, 0, secs(9000)},
		"negative is the default":              {secs(-1), 600, 0, secs(600)},
		"0 is none":                            {secs(0), 600, 0, nil},
		"no default":                           {nil, 0, 0, nil},
		"a negative default is none":           {nil, -5, 0, nil},
		"no default, and negative":             {secs(-1), 0, 0, nil},
		"no default, the Plan's":               {secs(30), 0, 0, secs(30)},
		"below the maximum":                    {secs(30), 600, 900, secs(30)},
		"at the maximum":                       {secs(900), 600, 900, secs(900)},
		"above the maximum":                    {secs(901), 600, 900, secs(900)},
		"0 becomes the maximum":                {secs(0), 600, 900, secs(900)},
		"no default becomes the maximum":       {nil, 0, 900, secs(900)},
		"a default above the maximum":          {nil, 1200, 900, secs(900)},
		"negative, a default above":            {secs(-7), 1200, 900, secs(900)},
		"a default below the maximum":          {nil, 600, 900, secs(600)},
		"a negative maximum bounds nothing":    {secs(9000), 600, -1, secs(9000)},
		"a negative maximum, and no deadline":  {secs(0), 600, -1, nil},
		"the greatest there is":                {secs(math.MaxInt64), 600, 0, secs(math.MaxInt64)},
		"the greatest there is, at the bounds": {secs(math.MaxInt64), 600, 900, secs(900)},
	} {
		p := newPlan(func(p *upgradev1.Plan) { p.Spec.JobActiveDeadlineSecs = tc.plan })
		o := &plan.JobOptions{ActiveDeadlineSeconds: tc.usual, ActiveDeadlineSecondsMax: tc.limit}
		if diff := cmp.Diff(tc.want, deadline(p, o)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A Job is kept at least a minute longer than its node keeps its slot.
func TestJobTTL(t *testing.T) {
	for name, tc := range map[string]struct {
		usual int32
		delay *metav1.Duration
		want  int32
	}{
		"the default":                       {900, nil, 900},
		"no delay":                          {900, &metav1.Duration{}, 900},
		"a delay below the default":         {900, &metav1.Duration{Duration: 839 * time.Second}, 900},
		"a delay a minute below it":         {900, &metav1.Duration{Duration: 840 * time.Second}, 900},
		"a delay that is a second too long": {900, &metav1.Duration{Duration: 841 * time.Second}, 901},
		"a delay above the default":         {900, &metav1.Duration{Duration: time.Hour}, 3660},
		"no delay and a short default":      {0, nil, 60},
		"a delay and a short default":       {0, &metav1.Duration{Duration: time.Second}, 61},
		"a delay of years":                  {900, &metav1.Duration{Duration: 100 * 365 * 24 * time.Hour}, math.MaxInt32},
	} {
		delayed := newPlan(func(p *upgradev1.Plan) { p.Spec.PostCompleteDelay = tc.delay })
		soaked := newPlan(func(p *upgradev1.Plan) { p.Spec.Strategy = &v1alpha1.Strategy{Soak: tc.delay} })
		o := &plan.JobOptions{TTLSecondsAfterFinish: tc.usual}
		if got, soak := o.TTL(delayed), o.TTL(soaked); got != tc.want || soak != tc.want {
			t.Errorf("%s: got %d, and %d with a soak, want %d", name, got, soak, tc.want)
		}
	}
}

// The template identifies what shapes a Job: whatever else changes interrupts nothing.
func TestTemplateDigest(t *testing.T) {
	base := newPlan(everything)
	for name, tc := range map[string]struct {
		change func(*upgradev1.Plan)
		other  bool
	}{
		"nothing":             {func(*upgradev1.Plan) {}, false},
		"concurrency":         {func(p *upgradev1.Plan) { p.Spec.Concurrency++ }, false},
		"node selector":       {func(p *upgradev1.Plan) { p.Spec.NodeSelector = nil }, false},
		"window":              {func(p *upgradev1.Plan) { p.Spec.Window = nil }, false},
		"channel":             {func(p *upgradev1.Plan) { p.Spec.Channel = "" }, false},
		"version, not munged": {func(p *upgradev1.Plan) { p.Spec.Version = "v1.31.2-k3s1" }, false},
		"allow downgrade":     {func(p *upgradev1.Plan) { p.Spec.AllowDowngrade = true }, false},
		"strategy":            {func(p *upgradev1.Plan) { p.Spec.Strategy = nil }, false},
		"delay":               {func(p *upgradev1.Plan) { p.Spec.PostCompleteDelay = nil }, false},
		"labels at the end":   {func(p *upgradev1.Plan) { p.Spec.PostCompleteLabels = nil }, false},
		"a retry":             {func(p *upgradev1.Plan) { p.Annotations[v1alpha1.AnnotationRetry] = "3" }, false},
		"the digest":          {func(p *upgradev1.Plan) { p.Annotations[upgradev1.AnnotationDigest] = "" }, false},
		"kubectl's own":       {func(p *upgradev1.Plan) { p.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{1}" }, false},
		"generation":          {func(p *upgradev1.Plan) { p.Generation++ }, false},
		"resolved version":    {func(p *upgradev1.Plan) { p.Status.LatestVersion = "v2" }, true},
		"hash":                {func(p *upgradev1.Plan) { p.Status.LatestHash = oldHash }, true},
		"label":               {func(p *upgradev1.Plan) { p.Labels["team"] = "x" }, true},
		"annotation":          {func(p *upgradev1.Plan) { p.Annotations["note"] = "x" }, true},
		"deadline":            {func(p *upgradev1.Plan) { p.Spec.JobActiveDeadlineSecs = nil }, false},
		"service account":     {func(p *upgradev1.Plan) { p.Spec.ServiceAccountName = "x" }, true},
		"secret":              {func(p *upgradev1.Plan) { p.Spec.Secrets[1].Path = "/x" }, true},
		"toleration":          {func(p *upgradev1.Plan) { p.Spec.Tolerations = nil }, true},
		"exclusive":           {func(p *upgradev1.Plan) { p.Spec.Exclusive = true }, true},
		"prepare":             {func(p *upgradev1.Plan) { p.Spec.Prepare.Args = nil }, true},
		"upgrade":             {func(p *upgradev1.Plan) { p.Spec.Upgrade.Env[0].Value = "x" }, true},
		"drain":               {func(p *upgradev1.Plan) { p.Spec.Drain.Force = false }, true},
		"end of the drain":    {func(p *upgradev1.Plan) { p.Spec.Drain.OnTimeout = "Force" }, true},
		"volumes of the pods": {func(p *upgradev1.Plan) { p.Spec.Drain.WaitForVolumeDetach = false }, true},
		"load balancers":      {func(p *upgradev1.Plan) { p.Spec.Drain.ExcludeFromLoadBalancers = ptr.To(false) }, true},
		"cordon":              {func(p *upgradev1.Plan) { p.Spec.Cordon = false }, true},
		"pull secrets":        {func(p *upgradev1.Plan) { p.Spec.ImagePullSecrets = nil }, true},
		"priority":            {func(p *upgradev1.Plan) { p.Spec.PriorityClassName = "" }, true},
	} {
		p := base.DeepCopy()
		tc.change(p)
		if other := plan.TemplateDigest(p) != plan.TemplateDigest(base); other != tc.other {
			t.Errorf("%s: another template: %v", name, other)
		}
	}
}
