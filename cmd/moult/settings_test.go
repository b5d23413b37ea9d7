// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// hostname is the default of --node-name.
func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// variable is an environment variable, what it sets, and what that is without it.
type variable struct {
	name, flag string
	get        func(*settings) any
	without    any
	value      string
	want       any
	bad        string // a value that can't be used, if there is one
}

// variables of system-upgrade-controller, with its defaults but for three that it has none for or that would be of no use
// here: name and namespace, which it requires, and the image of kubectl, which this program replaces. Then Moult's own.
func allVariables(t *testing.T) []variable {
	return []variable{
		{"SYSTEM_UPGRADE_CONTROLLER_DEBUG", "debug", func(s *settings) any { return s.debug }, false, "true", true, "maybe"},
		{"SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "leader-elect", func(s *settings) any { return s.leaderElect }, false, "1", true, "maybe"},
		{"SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG", "kubeconfig", func(s *settings) any { return s.kubeconfig }, "", "/etc/k", "/etc/k", ""},
		{"SYSTEM_UPGRADE_CONTROLLER_MASTER_URL", "master", func(s *settings) any { return s.master }, "", "https://a", "https://a", ""},
		{"SYSTEM_UPGRADE_CONTROLLER_NAME", "name", func(s *settings) any { return s.Name }, "system-upgrade-controller", "suc", "suc", ""},
		{"SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", "namespace", func(s *settings) any { return s.Namespace }, "system-upgrade", "cattle-system", "cattle-system", ""},
		{"SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "node-name", func(s *settings) any { return s.nodeName }, hostname(t), "n1", "n1", ""},
		{"SYSTEM_UPGRADE_CONTROLLER_THREADS", "threads", func(s *settings) any { return s.Threads }, 2, "5", 5, "many"},
		{"SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS", "job-active-deadline-seconds", func(s *settings) any { return s.Job.ActiveDeadlineSeconds }, int64(600), "900", int64(900), "15m"},
		{"SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX", "job-active-deadline-seconds-max", func(s *settings) any { return s.Job.ActiveDeadlineSecondsMax }, int64(0), "3600", int64(3600), "1h"},
		{"SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "job-backoff-limit", func(s *settings) any { return s.Job.BackoffLimit }, int32(2), "99", int32(99), "99999999999"},
		{"SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE", "job-kubectl-image", func(s *settings) any { return s.Job.KubectlImage }, "", "rancher/kubectl:v1", "rancher/kubectl:v1", ""},
		{"SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS", "job-kubectl-image-windows", func(s *settings) any { return s.Job.KubectlImageWindows }, "", "win:v1", "win:v1", ""},
		{"SYSTEM_UPGRADE_JOB_PRIVILEGED", "job-privileged", func(s *settings) any { return s.Job.Privileged }, true, "false", false, "maybe"},
		{"SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY", "job-image-pull-policy", func(s *settings) any { return s.Job.ImagePullPolicy }, corev1.PullIfNotPresent, "Always", corev1.PullAlways, "Sometimes"},
		{"SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "job-ttl-seconds-after-finish", func(s *settings) any { return s.Job.TTLSecondsAfterFinish }, int32(900), "60", int32(60), "1m"},
		{"SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY", "job-pod-replacement-policy", func(s *settings) any { return s.Job.PodReplacementPolicy }, batchv1.TerminatingOrFailed, "Failed", batchv1.Failed, "Never"},
		{"ALLOW_USER_DEFINED_SECURITY_CONTEXT", "allow-user-defined-security-context", func(s *settings) any { return s.userDefinedIgnore }, true, "false", false, "maybe"},
		{"SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", "plan-polling-interval", func(s *settings) any { return s.PollingInterval }, 15 * time.Minute, "61s", 61 * time.Second, "60s"},
		{"CATTLE_ELECTION_LEASE_DURATION", "leader-election-lease-duration", func(s *settings) any { return s.leaseDuration }, 45 * time.Second, "1m", time.Minute, "60"},
		{"CATTLE_ELECTION_RENEW_DEADLINE", "leader-election-renew-deadline", func(s *settings) any { return s.renewDeadline }, 30 * time.Second, "20s", 20 * time.Second, "20"},
		{"CATTLE_ELECTION_RETRY_PERIOD", "leader-election-retry-period", func(s *settings) any { return s.retryPeriod }, 2 * time.Second, "1s", time.Second, "soon"},

		{"MOULT_ALLOW_LOCAL_ADDRESSES", "allow-local-addresses", func(s *settings) any { return s.allowLocal }, true, "false", false, "maybe"},
		{"SYSTEM_UPGRADE_PLAN_ALLOW_DOWNGRADE", "plan-allow-downgrade", func(s *settings) any { return s.AllowDowngrade }, false, "true", true, "maybe"},
		{"MOULT_IMAGE", "image", func(s *settings) any { return s.Job.Image }, "", "moult:v1", "moult:v1", ""},
		{"MOULT_CONTROLLERS", "controllers", func(s *settings) any { return s.controllers }, "plan,extendeddaemonset,hostupdate,replacement", "plan", "plan", ""},
		{"WATCH_NAMESPACE", "watch-namespace", func(s *settings) any { return strings.Join(slices.Sorted(maps.Keys(s.daemons.Namespaces)), ",") }, "", "a, b", "a,b", ""},
		{"EDS_NODEAFFINITYMATCH_SUPPORT", "eds-node-affinity-match-support", func(s *settings) any { return s.affinitySupport }, "1", "0", "0", ""},
		{"EDS_VALIDATION_MODE", "eds-validation-mode", func(s *settings) any { return string(s.daemons.ValidationMode) }, "auto", "manual", "manual", ""},
		{"EDS_THREADS", "eds-threads", func(s *settings) any { return s.daemons.Threads }, 4, "8", 8, "0"},
		{"AZURE_RESOURCE_MANAGER_ENDPOINT", "azure-endpoint", func(s *settings) any { return s.clouds.azureEndpoint }, "", "http://127.0.0.1:8", "http://127.0.0.1:8", ""},
		{"GCP_COMPUTE_ENDPOINT", "gcp-endpoint", func(s *settings) any { return s.clouds.gcpEndpoint }, "", "https://a", "https://a", ""},
		{"MOULT_ETCD_CERTIFICATES", "etcd-certificates", func(s *settings) any { return s.etcdCertificates }, "/etc/kubernetes/pki/etcd", "/pki", "/pki", ""},
		{"MOULT_INSTALL_CRDS", "install-crds", func(s *settings) any { return s.installCRDs }, true, "false", false, "maybe"},
		{"MOULT_METRICS_BIND_ADDRESS", "metrics-bind-address", func(s *settings) any { return s.metricsAddress }, ":8080", "0", "0", ""},
		{"MOULT_METRICS_SECURE", "metrics-secure", func(s *settings) any { return s.metricsSecure }, false, "true", true, "maybe"},
		{"MOULT_HEALTH_PROBE_BIND_ADDRESS", "health-probe-bind-address", func(s *settings) any { return s.probeAddress }, ":8081", "0", "0", ""},
	}
}

// load reads settings from these arguments and variables.
func load(t *testing.T, args []string, environment map[string]string) (s *settings, problems, fatal []error) {
	t.Helper()
	s = &settings{}
	flags := pflag.NewFlagSet("moult", pflag.ContinueOnError)
	v := s.bind(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	problems, err := v.load(in(environment))
	fatal = s.complete(v)
	if err != nil {
		fatal = append(fatal, err)
	}
	return s, problems, fatal
}

// values are all settings, by flag.
func values(t *testing.T, s *settings) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, v := range allVariables(t) {
		all[v.flag] = v.get(s)
	}
	return all
}

func TestDefaults(t *testing.T) {
	for name, environment := range map[string]map[string]string{
		"an empty environment": {},
		"empty variables": func() map[string]string {
			all := map[string]string{}
			for _, v := range allVariables(t) {
				all[v.name] = ""
			}
			return all
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			s, problems, fatal := load(t, nil, environment)
			if len(problems)+len(fatal) > 0 {
				t.Errorf("got %v, %v", problems, fatal)
			}
			want := map[string]any{}
			for _, v := range allVariables(t) {
				want[v.flag] = v.without
			}
			if diff := cmp.Diff(want, values(t, s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each variable sets what it names, and nothing else. A flag wins over it. An invalid value is logged and ignored, so that the
// operator starts.
func TestVariables(t *testing.T) {
	plain, _, _ := load(t, nil, nil)
	for _, v := range allVariables(t) {
		t.Run(v.name, func(t *testing.T) {
			s, problems, fatal := load(t, nil, map[string]string{v.name: v.value})
			if len(problems)+len(fatal) > 0 {
				t.Errorf("got %v, %v", problems, fatal)
			}
			want := values(t, plain)
			want[v.flag] = v.want
			if diff := cmp.Diff(want, values(t, s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
		t.Run(v.name+" and the flag", func(t *testing.T) {
			other := v.bad // A flag wins, whatever the variable says.
			if other == "" {
				other = "other"
			}
			s, problems, fatal := load(t, []string{"--" + v.flag + "=" + v.value}, map[string]string{v.name: other})
			if len(problems)+len(fatal) > 0 {
				t.Errorf("got %v, %v", problems, fatal)
			}
			if got := v.get(s); got != v.want {
				t.Errorf("got %v, want %v", got, v.want)
			}
		})
		if v.bad == "" {
			continue
		}
		t.Run(v.name+" with a bad value", func(t *testing.T) {
			s, problems, fatal := load(t, nil, map[string]string{v.name: v.bad})
			if len(problems) != 1 || len(fatal) > 0 {
				t.Fatalf("got %v, %v; want one problem", problems, fatal)
			}
			text := problems[0].Error()
			if v.flag != "plan-polling-interval" && !strings.HasPrefix(text, `ignoring $`+v.name+`: "`+v.bad+`" is not a valid value for --`+v.flag+`, `) {
				t.Errorf("got %s", text)
			}
			if diff := cmp.Diff(values(t, plain), values(t, s)); diff != "" {
				t.Errorf("(-default +got):\n%s", diff)
			}
		})
	}
}

// Numbers that can be read and are of no use are no better than words.
func TestVariablesOutOfRange(t *testing.T) {
	plain, _, _ := load(t, nil, nil)
	for name, value := range map[string]string{
		"SYSTEM_UPGRADE_CONTROLLER_THREADS":           "0",
		"SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT":            "-1",
		"SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH": "-1",
	} {
		t.Run(name, func(t *testing.T) {
			s, problems, fatal := load(t, nil, map[string]string{name: value})
			if len(problems) != 1 || len(fatal) > 0 {
				t.Fatalf("got %v, %v; want one problem", problems, fatal)
			}
			if diff := cmp.Diff(values(t, plain), values(t, s)); diff != "" {
				t.Errorf("(-default +got):\n%s", diff)
			}
		})
	}
}

func TestPollingInterval(t *testing.T) {
	for value, ignored := range map[string]bool{"60s": true, "1m": true, "-5m": true, "0": true, "1m1ns": false, "24h": false} {
		s, problems, fatal := load(t, nil, map[string]string{"SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL": value})
		want, err := time.ParseDuration(value)
		if err != nil {
			t.Fatal(err)
		}
		if ignored {
			want = 15 * time.Minute
		}
		if s.PollingInterval != want || (len(problems) == 1) != ignored || len(fatal) > 0 {
			t.Errorf("%s: got %s, %v, %v", value, s.PollingInterval, problems, fatal)
		}
	}
}

// A wrong flag is an error, and so is a wrong validation mode: its default promotes canaries.
func TestBadFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--job-image-pull-policy=Sometimes":  "it must be Always, IfNotPresent or Never",
		"--job-image-pull-policy=":           "it must be Always, IfNotPresent or Never",
		"--job-pod-replacement-policy=Never": "it must be TerminatingOrFailed or Failed",
		"--name= ":                           "it must be a name",
		"--namespace=":                       "it must be a name",
		"--threads=0":                        "it must be 1 or more",
		"--job-backoff-limit=-1":             "it must be 0 or more",
		"--job-ttl-seconds-after-finish=-1":  "it must be 0 or more",
		"--check-period=0":                   "it must be from 1 to 31536000 seconds",
		"--worker-concurrency=-1":            "it must be from 0 to 100 nodes",
		"--cp-concurrency=101":               "it must be from 0 to 100 nodes",
	} {
		flags := pflag.NewFlagSet("moult", pflag.ContinueOnError)
		new(settings).bind(flags)
		name, _, _ := strings.Cut(arg, "=")
		if err := flags.Parse([]string{arg}); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v; want %s", arg, err, want)
		}
	}
	for variable, want := range map[string]string{
		"EDS_VALIDATION_MODE": "it must be auto or manual", "MOULT_CONTROLLERS": "it must be one or more of plan,extendeddaemonset,hostupdate,replacement",
	} {
		_, ignored, fatal := load(t, nil, map[string]string{variable: "none"})
		if len(ignored) > 0 || len(fatal) != 1 || fatal[0].Error() != "reading $"+variable+", "+want {
			t.Errorf("got %v, %v", ignored, fatal)
		}
	}
	if s, _, _ := load(t, nil, map[string]string{"MOULT_CONTROLLERS": "plan, hostupdate"}); !s.runs("hostupdate") || s.runs("replacement") {
		t.Errorf("got %v", s.chosen())
	}
}

// Every variable and every default stands in the help.
func TestHelp(t *testing.T) {
	cmd := newControllerCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for _, v := range allVariables(t) {
		found := false
		for _, line := range lines {
			if !strings.Contains(line, " --"+v.flag+" ") {
				continue
			}
			found = true
			if !strings.Contains(line, "[$"+v.name+"]") {
				t.Errorf("$%s is not in %q", v.name, line)
			}
			without := cmd.Flags().Lookup(v.flag).DefValue
			if without == "" {
				continue // There is none to tell.
			}
			text := "(default " + without + ")"
			if _, quoted := v.without.(string); quoted || v.flag == "job-image-pull-policy" || v.flag == "job-pod-replacement-policy" {
				text = `(default "` + without + `")`
			}
			if strings.Count(line, "(default") != 1 || !strings.Contains(line, text) {
				t.Errorf("%s is not in %q", text, line)
			}
		}
		if !found {
			t.Errorf("--%s is not in the help", v.flag)
		}
	}
	if strings.Contains(out.String(), "service-account") {
		t.Error("the ignored --service-account is in the help")
	}
}

// Each of the peers' flags for more of the log is taken, and the highest counts.
func TestLogLevel(t *testing.T) {
	for args, want := range map[string]zapcore.Level{
		"": 0, "--debug": -1, "--loglevel=debug": -1, "--loglevel=info": 0, "--v=0": 0, "--v=3": -3, "--debug --v=3": -3, "--debug --v=0": -1, "--v=-1": 0,
	} {
		if s, _, fatal := load(t, strings.Fields(args), nil); s.level() != want || len(fatal) > 0 {
			t.Errorf("%s: level %d, %v, want %d", args, s.level(), fatal, want)
		}
	}
}

// The flags and variables of ExtendedDaemonSet's controller that have another name here, or mean nothing.
func TestExtendedDaemonSetFlags(t *testing.T) {
	s, problems, fatal := load(t, []string{
		"--metrics-addr=:9", "--enable-leader-election", "--loglevel=debug", "--logEncoder=json", "--leader-election-resource=leases", "--pprof", "--ddProfilingEnabled",
	}, nil)
	if len(problems)+len(fatal) > 0 || s.metricsAddress != ":9" || !s.leaderElect || s.level() != zapcore.DebugLevel {
		t.Errorf("metrics at %s, leader election %t, level %d, %v, %v", s.metricsAddress, s.leaderElect, s.level(), problems, fatal)
	}
}

// No two flags take the same variable, and none is forgotten here.
func TestVariableNames(t *testing.T) {
	s := &settings{}
	v := s.bind(pflag.NewFlagSet("moult", pflag.ContinueOnError))
	want := map[string]string{}
	for _, known := range allVariables(t) {
		want[known.flag] = known.name
	}
	if diff := cmp.Diff(want, v.names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// system-upgrade-controller's arguments are taken, also those that mean nothing.
func TestServiceAccountIsIgnored(t *testing.T) {
	if _, problems, fatal := load(t, []string{"--service-account=system-upgrade"}, nil); len(problems)+len(fatal) > 0 {
		t.Errorf("got %v, %v", problems, fatal)
	}
}

func TestReadPod(t *testing.T) {
	container := func(name string) corev1.Container { return corev1.Container{Name: name, Image: name + ":v1"} }
	t.Setenv("POD_NAME", "")
	none := &settings{}
	if err := none.readPod(t.Context(), fake.NewClientset()); err != nil || none.Job.Image != "moult.dev/moult:"+version {
		t.Errorf("outside of a Pod the image is %s, %v", none.Job.Image, err)
	}
	t.Setenv("POD_NAME", "p")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "operator"}}
	for want, containers := range map[string][]corev1.Container{
		"moult:v1":    {container("proxy"), container("moult")},
		"operator:v1": {container("operator"), container("proxy")},
	} {
		pod.Spec.Containers = containers
		s := &settings{}
		s.Namespace = "n"
		if err := s.readPod(t.Context(), fake.NewClientset(pod)); err != nil || s.Job.Image != want || s.Reserved.ServiceAccount != "operator" {
			t.Errorf("got %s, %+v, %v, want %s", s.Job.Image, s.Reserved, err, want)
		}
	}
	t.Setenv("POD_NAMESPACE", "n")
	elsewhere := &settings{}
	elsewhere.Namespace, elsewhere.Job.Image = "plans", "chosen:v1"
	err := elsewhere.readPod(t.Context(), fake.NewClientset(pod))
	if err != nil || elsewhere.Job.Image != "chosen:v1" || elsewhere.Reserved.ServiceAccount != "" {
		t.Errorf("got %+v, %v", elsewhere.Options, err)
	}
}
