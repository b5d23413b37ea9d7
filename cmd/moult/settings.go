// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/controller/daemonset"
	"moult.dev/moult/internal/controller/plan"
)

// settings of `moult controller`. Each is a flag, and most an environment variable too: those of
// system-upgrade-controller under their names. A flag wins over the environment.
type settings struct {
	plan.Options
	daemons daemonset.Options
	// clouds are those whose machines are replaced.
	clouds   *clouds
	ducklett ducklett
	// duckletRollouts are the NodeRollouts that Ducklett's flags ask for, by name; none without them.
	duckletRollouts map[string]kept

	etcdCertificates string

	controllers       string
	watchNamespace    string
	validationMode    string
	affinitySupport   string
	logLevel          string
	debug             bool
	leaderElect       bool
	kubeconfig        string
	master            string
	nodeName          string
	serviceAccount    string
	installCRDs       bool
	metricsAddress    string
	probeAddress      string
	qps               float32
	burst             int
	leaseDuration     time.Duration
	renewDeadline     time.Duration
	retryPeriod       time.Duration
	podReplacement    string
	imagePullPolicy   string
	userDefinedIgnore bool
}

// The controllers that can be chosen from. Budgets are always looked after.
const (
	controllerPlan      = "plan"
	controllerDaemonSet = "extendeddaemonset"
	// controllerHostUpdate carries out NodeRollouts with hostUpdate.
	controllerHostUpdate = "hostupdate"
	// controllerReplacement carries out those with replacement.
	controllerReplacement = "replacement"
)

var allControllers = []string{controllerPlan, controllerDaemonSet, controllerHostUpdate, controllerReplacement}

// runs reports whether a controller is chosen.
func (s *settings) runs(controller string) bool {
	return slices.Contains(strings.Split(s.controllers, ","), controller)
}

// variables binds environment variables to flags.
type variables struct {
	flags *pflag.FlagSet
	names map[string]string // by flag
}

const (
	envController = "SYSTEM_UPGRADE_CONTROLLER_"
	envJob        = "SYSTEM_UPGRADE_JOB_"
)

func (s *settings) bind(flags *pflag.FlagSet) *variables {
	v := newVariables(flags)
	hostname, _ := os.Hostname()

	flags.BoolVar(&s.debug, "debug", false, "log what is decided again and again, too")
	v.env("debug", envController+"DEBUG")
	flags.BoolVar(&s.leaderElect, "leader-elect", false, "run only while holding the Lease NAMESPACE/NAME")
	v.env("leader-elect", envController+"LEADER_ELECT")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "path to a kubeconfig; without it $KUBECONFIG, ~/.kube/config, or the service account of the Pod")
	v.env("kubeconfig", envController+"KUBE_CONFIG")
	flags.StringVar(&s.master, "master", "", "URL of the API server, in place of the kubeconfig's")
	v.env("master", envController+"MASTER_URL")
	flags.StringVar(&s.Name, "name", "system-upgrade-controller", "this controller's name: the label upgrade.cattle.io/controller of its Jobs, and its Lease")
	v.env("name", envController+"NAME")
	flags.StringVar(&s.Namespace, "namespace", "system-upgrade", "the namespace whose Plans are carried out")
	v.env("namespace", envController+"NAMESPACE")
	flags.StringVar(&s.nodeName, "node-name", hostname, "the node this runs on, as the source of Events")
	v.env("node-name", envController+"NODE_NAME")
	flags.IntVar(&s.Threads, "threads", 2, "how many Plans are reconciled at once, and how many NodeRollouts")
	v.env("threads", envController+"THREADS")
	flags.StringVar(&s.serviceAccount, "service-account", "", "ignored")
	_ = flags.MarkHidden("service-account")

	flags.Int64Var(&s.Job.ActiveDeadlineSeconds, "job-active-deadline-seconds", 600, "deadline of Jobs whose Plan names none; 0 is no deadline")
	v.env("job-active-deadline-seconds", envJob+"ACTIVE_DEADLINE_SECONDS")
	flags.Int64Var(&s.Job.ActiveDeadlineSecondsMax, "job-active-deadline-seconds-max", 0, "greatest deadline that a Plan gets; 0 is no bound")
	v.env("job-active-deadline-seconds-max", envJob+"ACTIVE_DEADLINE_SECONDS_MAX")
	flags.Int32Var(&s.Job.BackoffLimit, "job-backoff-limit", 2, "how often a Job's failed pod is replaced")
	v.env("job-backoff-limit", envJob+"BACKOFF_LIMIT")
	flags.StringVar(&s.Job.Image, "image", "", "image of this program, which cordons and drains nodes (default: the image of the Pod that this runs in)")
	v.env("image", "MOULT_IMAGE")
	flags.StringVar(&s.Job.KubectlImage, "job-kubectl-image", "", "image with kubectl to cordon and drain nodes with (default: none, this program does it)")
	v.env("job-kubectl-image", envJob+"KUBECTL_IMAGE")
	flags.StringVar(&s.Job.KubectlImageWindows, "job-kubectl-image-windows", "", "image with kubectl to cordon and drain Windows nodes with; without it these wait")
	v.env("job-kubectl-image-windows", envJob+"KUBECTL_IMAGE_WINDOWS")
	flags.BoolVar(&s.Job.Privileged, "job-privileged", true, "run upgrade containers privileged, unless the Plan sets a security context")
	v.env("job-privileged", envJob+"PRIVILEGED")
	flags.StringVar(&s.imagePullPolicy, "job-image-pull-policy", string(corev1.PullIfNotPresent), "image pull policy of Jobs")
	v.env("job-image-pull-policy", envJob+"IMAGE_PULL_POLICY")
	flags.Int32Var(&s.Job.TTLSecondsAfterFinish, "job-ttl-seconds-after-finish", 900, "how long finished Jobs are kept")
	v.env("job-ttl-seconds-after-finish", envJob+"TTL_SECONDS_AFTER_FINISH")
	flags.StringVar(&s.podReplacement, "job-pod-replacement-policy", string(batchv1.TerminatingOrFailed), "when a Job's pod is replaced: TerminatingOrFailed or Failed")
	v.env("job-pod-replacement-policy", envJob+"POD_REPLACEMENT_POLICY")
	flags.BoolVar(&s.userDefinedIgnore, "allow-user-defined-security-context", true, "ignored: a Plan's security context always counts")
	v.env("allow-user-defined-security-context", "ALLOW_USER_DEFINED_SECURITY_CONTEXT")

	flags.DurationVar(&s.PollingInterval, "plan-polling-interval", 15*time.Minute, "how often channels are asked; more than 1m")
	v.env("plan-polling-interval", "SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL")
	flags.BoolVar(&s.AllowDowngrade, "plan-allow-downgrade", false, "follow channels to lower versions")
	v.env("plan-allow-downgrade", "SYSTEM_UPGRADE_PLAN_ALLOW_DOWNGRADE")
	flags.DurationVar(&s.leaseDuration, "leader-election-lease-duration", 45*time.Second, "how long others wait before they take the Lease")
	v.env("leader-election-lease-duration", "CATTLE_ELECTION_LEASE_DURATION")
	flags.DurationVar(&s.renewDeadline, "leader-election-renew-deadline", 30*time.Second, "how long the Lease may stay unrenewed before this one gives up")
	v.env("leader-election-renew-deadline", "CATTLE_ELECTION_RENEW_DEADLINE")
	flags.DurationVar(&s.retryPeriod, "leader-election-retry-period", 2*time.Second, "how often the Lease is tried for")
	v.env("leader-election-retry-period", "CATTLE_ELECTION_RETRY_PERIOD")

	flags.StringVar(&s.controllers, "controllers", strings.Join(allControllers, ","), "which kinds are carried out, with commas")
	v.env("controllers", "MOULT_CONTROLLERS")
	flags.StringVar(&s.watchNamespace, "watch-namespace", "", "the namespaces whose ExtendedDaemonSets are carried out, with commas; empty is all")
	v.env("watch-namespace", "WATCH_NAMESPACE")
	flags.StringVar(&s.validationMode, "eds-validation-mode", string(edsv1.ValidationModeAuto), "validation mode of canaries that name none: auto or manual")
	v.env("eds-validation-mode", "EDS_VALIDATION_MODE")
	flags.StringVar(&s.affinitySupport, "eds-node-affinity-match-support", "1", "1 binds daemon pods to their node by node affinity, anything else by spec.nodeName")
	v.env("eds-node-affinity-match-support", "EDS_NODEAFFINITYMATCH_SUPPORT")
	flags.IntVar(&s.daemons.Threads, "eds-threads", 4, "how many ExtendedDaemonSets are reconciled at once")
	v.env("eds-threads", "EDS_THREADS")

	s.bindLegacy(flags)

	s.clouds = newClouds(os.LookupEnv)
	s.clouds.bind(flags, v)
	flags.StringVar(&s.etcdCertificates, "etcd-certificates", "/etc/kubernetes/pki/etcd", "directory with what etcd is spoken to with, while nodes of the control plane are replaced: ca.crt and healthcheck-client.{crt,key}, server.{crt,key} or tls.{crt,key}")
	v.env("etcd-certificates", "MOULT_ETCD_CERTIFICATES")
	s.ducklett.bind(flags)

	flags.BoolVar(&s.installCRDs, "install-crds", true, "install or update the CustomResourceDefinitions at start")
	v.env("install-crds", "MOULT_INSTALL_CRDS")
	flags.StringVar(&s.metricsAddress, "metrics-bind-address", ":8080", "where /metrics is served; 0 serves none")
	v.env("metrics-bind-address", "MOULT_METRICS_BIND_ADDRESS")
	flags.StringVar(&s.probeAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0 serves none")
	v.env("health-probe-bind-address", "MOULT_HEALTH_PROBE_BIND_ADDRESS")
	flags.Float32Var(&s.qps, "kube-api-qps", 200, "requests a second to the API server")
	flags.IntVar(&s.burst, "kube-api-burst", 400, "requests at once to the API server")
	return v
}

// env names the variable that a flag's value is taken from, and says so in its help.
func (v *variables) env(flag, name string) {
	v.names[flag] = name
	f := v.flags.Lookup(flag)
	f.Usage += " [$" + name + "]"
	if f.DefValue == "false" || f.DefValue == "0" {
		f.Usage += " (default " + f.DefValue + ")" // Such defaults are not printed otherwise.
	}
}

func newVariables(flags *pflag.FlagSet) *variables {
	return &variables{flags: flags, names: map[string]string{}}
}

// load takes from the environment what no flag says. A value that can't be used is reported, and the default stays, as in
// system-upgrade-controller: a controller that does not start helps nobody.
func (v *variables) load(lookup func(string) (string, bool)) (problems []error) {
	v.flags.VisitAll(func(f *pflag.Flag) {
		name := v.names[f.Name]
		value, ok := lookup(name)
		if name == "" || f.Changed || !ok || value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			_ = f.Value.Set(f.DefValue)
			problems = append(problems, fmt.Errorf("ignoring $%s: %q is not a valid value for --%s, %w", name, value, f.Name, err))
		}
	})
	return problems
}

// freeAddresses turns off what can't be served because somebody else has the default address, as a second operator on one
// machine does. An address that somebody chose is another matter: there it is an error.
func (s *settings) freeAddresses(ctx context.Context, flags *pflag.FlagSet) (problems []error) {
	for flag, address := range map[string]*string{"metrics-bind-address": &s.metricsAddress, "health-probe-bind-address": &s.probeAddress} {
		if *address != flags.Lookup(flag).DefValue {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
		if err != nil {
			problems = append(problems, fmt.Errorf("ignoring the default of --%s, %w", flag, err))
			*address = "0"
			continue
		}
		_ = listener.Close()
	}
	return problems
}

// complete checks what flags alone can't. A bad flag is an error; of a bad variable the default takes the place, as load says.
func (s *settings) complete(v *variables) (problems, fatal []error) {
	filled := func(text string) bool { return strings.TrimSpace(text) != "" }
	for _, rule := range []struct {
		flag  string
		holds bool
		want  string
	}{
		{"job-image-pull-policy", slices.Contains([]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, corev1.PullPolicy(s.imagePullPolicy)), "Always, IfNotPresent or Never"},
		{"job-pod-replacement-policy", slices.Contains([]batchv1.PodReplacementPolicy{batchv1.TerminatingOrFailed, batchv1.Failed}, batchv1.PodReplacementPolicy(s.podReplacement)), "TerminatingOrFailed or Failed"},
		{"plan-polling-interval", s.PollingInterval > time.Minute, "more than 1m"},
		{"name", filled(s.Name), "a name"},
		{"namespace", filled(s.Namespace), "a name"},
		{"threads", s.Threads >= 1, "1 or more"},
		{"eds-threads", s.daemons.Threads >= 1, "1 or more"},
		{"eds-validation-mode", slices.Contains([]edsv1.ValidationMode{edsv1.ValidationModeAuto, edsv1.ValidationModeManual}, edsv1.ValidationMode(s.validationMode)), "auto or manual"},
		{"controllers", !slices.ContainsFunc(strings.Split(s.controllers, ","), func(c string) bool { return !slices.Contains(allControllers, c) }), "one or more of " + strings.Join(allControllers, ",")},
		{"job-ttl-seconds-after-finish", s.Job.TTLSecondsAfterFinish >= 0, "0 or more"},
		{"job-backoff-limit", s.Job.BackoffLimit >= 0, "0 or more"},
	} {
		if rule.holds {
			continue
		}
		f := v.flags.Lookup(rule.flag)
		if f.Changed || f.Name == "eds-validation-mode" { // Of this the default promotes what somebody wants to see first.
			fatal = append(fatal, fmt.Errorf("--%s must be %s, not %q", f.Name, rule.want, f.Value.String()))
			continue
		}
		problems = append(problems, fmt.Errorf("ignoring $%s: %q is not a valid value for --%s, it must be %s", v.names[f.Name], f.Value.String(), f.Name, rule.want))
		if err := f.Value.Set(f.DefValue); err != nil {
			fatal = append(fatal, err)
		}
	}
	s.Job.ImagePullPolicy = corev1.PullPolicy(s.imagePullPolicy)
	s.Job.PodReplacementPolicy = batchv1.PodReplacementPolicy(s.podReplacement)
	s.debug = s.debug || s.logLevel == "debug"
	s.daemons.ValidationMode, s.daemons.NodeName = edsv1.ValidationMode(s.validationMode), s.affinitySupport != "1"
	for name := range strings.SplitSeq(s.watchNamespace, ",") {
		if name = strings.TrimSpace(name); name != "" {
			s.daemons.Namespaces = append(s.daemons.Namespaces, name)
		}
	}
	fatal = append(fatal, s.clouds.check()...)
	if s.ducklett.asked(v.flags) {
		var err error
		if s.duckletRollouts, err = s.ducklett.rollouts(s.clouds.lookup); err != nil {
			fatal = append(fatal, err)
		}
		if !s.runs(controllerReplacement) {
			fatal = append(fatal, fmt.Errorf("--%s need %s among --controllers", strings.Join(duckletFlags, ", --"), controllerReplacement))
		}
	}
	return problems, fatal
}

// bindLegacy takes the flags of ExtendedDaemonSet's controller: those that mean what one here does, and those that mean nothing
// here.
func (s *settings) bindLegacy(flags *pflag.FlagSet) {
	same := map[string]pflag.NormalizedName{"metrics-addr": "metrics-bind-address", "enable-leader-election": "leader-elect"}
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if here, ok := same[name]; ok {
			return here
		}
		return pflag.NormalizedName(name)
	})
	flags.StringVar(&s.logLevel, "loglevel", "info", "debug is --debug")
	var text string
	var is bool
	flags.StringVar(&text, "logEncoder", "json", "ignored")
	flags.StringVar(&text, "leader-election-resource", "leases", "ignored")
	flags.BoolVar(&is, "pprof", false, "ignored")
	flags.BoolVar(&is, "ddProfilingEnabled", false, "ignored")
	for _, name := range []string{"loglevel", "logEncoder", "leader-election-resource", "pprof", "ddProfilingEnabled"} {
		_ = flags.MarkHidden(name)
	}
}
