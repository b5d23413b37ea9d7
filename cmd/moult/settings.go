// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/controller/daemonset"
	"moult.dev/moult/internal/controller/plan"
)

// settings of `moult controller`. Each is a flag, and most are also an environment variable. system-upgrade-controller's variables keep their
// names. A flag wins over the environment.
type settings struct {
	plan.Options
	daemons daemonset.Options
	// clouds are the clouds whose machines are replaced.
	clouds   *clouds
	ducklett ducklett
	// ducklettRollouts are the NodeRollouts that Ducklett's flags create, by name; none without them.
	ducklettRollouts map[string]*v1alpha1.NodeRolloutSpec

	etcdCertificates                          string
	controllers, watchNamespace               string
	affinitySupport, logLevel                 string
	verbosity                                 int8
	debug, leaderElect, allowLocal            bool
	kubeconfig, master, nodeName              string
	metricsAddress, probeAddress              string
	qps                                       float32
	burst                                     int
	leaseDuration, renewDeadline, retryPeriod time.Duration
	installCRDs, userDefinedIgnore            bool
	// noBudgets is true if the API server does not know NodeDisruptionBudgets.
	noBudgets     bool
	metricsSecure bool
}

// The controllers for --controllers. The controller of budgets always runs.
const (
	controllerPlan        = "plan"
	controllerDaemonSet   = "extendeddaemonset"
	controllerHostUpdate  = "hostupdate"
	controllerReplacement = "replacement"
)

var allControllers = []string{controllerPlan, controllerDaemonSet, controllerHostUpdate, controllerReplacement}

// inPod reports whether this program runs in a Pod.
func inPod() bool {
	_, found := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	return found
}

// runs reports whether a controller is chosen.
func (s *settings) runs(controller string) bool {
	return slices.Contains(s.chosen(), controller)
}

func (s *settings) chosen() []string {
	return strings.FieldsFunc(s.controllers, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// flagVerbosity is a flag of Ducklett's logger.
const flagVerbosity = "v"

// An invalid variable is an error for these flags. The defaults would promote canaries that a person wants to see first, and run controllers beside
// another operator.
const flagValidationMode, flagControllers = "eds-validation-mode", "controllers"

func (s *settings) bind(flags *pflag.FlagSet) *variables {
	const controller, job = "SYSTEM_UPGRADE_CONTROLLER_", "SYSTEM_UPGRADE_JOB_"
	v := newVariables(flags)
	hostname, _ := os.Hostname()
	j := &s.Job
	validationMode := (*string)(&s.daemons.ValidationMode)

	add(v, &s.debug, "debug", false, controller+"DEBUG", "log what is decided again and again, too")
	add(v, &s.leaderElect, "leader-elect", false, controller+"LEADER_ELECT", "run only while holding the Lease NAMESPACE/NAME")
	add(v, &s.kubeconfig, "kubeconfig", "", controller+"KUBE_CONFIG", "path to a kubeconfig; without it $KUBECONFIG, ~/.kube/config, or the service account of the Pod")
	add(v, &s.master, "master", "", controller+"MASTER_URL", "URL of the API server, in place of the kubeconfig's")
	add(v, &s.Name, "name", "system-upgrade-controller", controller+"NAME", "this controller's name: the label upgrade.cattle.io/controller of its Jobs, and its Lease")
	add(v, &s.Namespace, "namespace", "system-upgrade", controller+"NAMESPACE", "the namespace whose Plans are carried out")
	add(v, &s.nodeName, "node-name", hostname, controller+"NODE_NAME", "the node this runs on, as the source of Events")
	add(v, &s.Threads, "threads", 2, controller+"THREADS", "how many Plans are reconciled at once, and how many NodeRollouts; 4 times as many that replace machines: they wait for clouds")

	add(v, &j.ActiveDeadlineSeconds, "job-active-deadline-seconds", 600, job+"ACTIVE_DEADLINE_SECONDS", "deadline of Jobs whose Plan names none; 0 is no deadline")
	add(v, &j.ActiveDeadlineSecondsMax, "job-active-deadline-seconds-max", 0, job+"ACTIVE_DEADLINE_SECONDS_MAX", "greatest deadline that a Plan gets; 0 is no limit")
	add(v, &j.BackoffLimit, "job-backoff-limit", 2, job+"BACKOFF_LIMIT", "how often a Job's failed pod is replaced")
	add(v, &j.Image, "image", "", "MOULT_IMAGE", "image of this program, which cordons and drains nodes (default: the image of the Pod that this runs in)")
	add(v, &j.KubectlImage, "job-kubectl-image", "", job+"KUBECTL_IMAGE", "image with kubectl to cordon and drain nodes with (default: none, this program does it)")
	add(v, &j.KubectlImageWindows, "job-kubectl-image-windows", "", job+"KUBECTL_IMAGE_WINDOWS", "image with kubectl to cordon and drain Windows nodes with; without it these wait")
	add(v, &j.Privileged, "job-privileged", true, job+"PRIVILEGED", "run upgrade containers privileged, unless the Plan sets a security context")
	add(v, (*string)(&j.ImagePullPolicy), "job-image-pull-policy", string(corev1.PullIfNotPresent), job+"IMAGE_PULL_POLICY", "image pull policy of Jobs")
	add(v, &j.TTLSecondsAfterFinish, "job-ttl-seconds-after-finish", 900, job+"TTL_SECONDS_AFTER_FINISH", "how long finished Jobs are kept")
	add(v, (*string)(&j.PodReplacementPolicy), "job-pod-replacement-policy", string(batchv1.TerminatingOrFailed), job+"POD_REPLACEMENT_POLICY", "when a Job's pod is replaced: TerminatingOrFailed or Failed")
	add(v, &s.userDefinedIgnore, "allow-user-defined-security-context", true, "ALLOW_USER_DEFINED_SECURITY_CONTEXT", "ignored: a Plan's security context always counts")

	add(v, &s.PollingInterval, "plan-polling-interval", 15*time.Minute, "SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", "how often channels are read; more than 1m")
	add(v, &s.allowLocal, "allow-local-addresses", !inPod(), "MOULT_ALLOW_LOCAL_ADDRESSES", "let channels and Prometheus be at loopback and link-local addresses, and those of a cloud's metadata; default: only outside of a Pod")
	add(v, &s.AllowDowngrade, "plan-allow-downgrade", false, "SYSTEM_UPGRADE_PLAN_ALLOW_DOWNGRADE", "follow channels to lower versions")
	add(v, &s.leaseDuration, "leader-election-lease-duration", 45*time.Second, "CATTLE_ELECTION_LEASE_DURATION", "how long others wait before they take the Lease")
	add(v, &s.renewDeadline, "leader-election-renew-deadline", 30*time.Second, "CATTLE_ELECTION_RENEW_DEADLINE", "how long the Lease may stay unrenewed before this one stops")
	add(v, &s.retryPeriod, "leader-election-retry-period", 2*time.Second, "CATTLE_ELECTION_RETRY_PERIOD", "how often this one tries to take the Lease")

	add(v, &s.controllers, flagControllers, strings.Join(allControllers, ","), "MOULT_CONTROLLERS", "which controllers run, with commas")
	add(v, &s.watchNamespace, "watch-namespace", "", "WATCH_NAMESPACE", "the namespaces whose ExtendedDaemonSets are carried out, with commas; empty is all")
	add(v, validationMode, flagValidationMode, string(edsv1.ValidationModeAuto), "EDS_VALIDATION_MODE", "validation mode of canaries that name none: auto or manual")
	add(v, &s.affinitySupport, "eds-node-affinity-match-support", "1", "EDS_NODEAFFINITYMATCH_SUPPORT", "1 binds daemon pods to their node by node affinity, anything else by spec.nodeName")
	add(v, &s.daemons.Threads, "eds-threads", 4, "EDS_THREADS", "how many ExtendedDaemonSets are reconciled at once")

	s.clouds = newClouds(os.Getenv)
	s.clouds.bind(v)
	add(v, &s.etcdCertificates, "etcd-certificates", "/etc/kubernetes/pki/etcd", "MOULT_ETCD_CERTIFICATES", "directory with the certificates for etcd, while nodes of the control plane are replaced: ca.crt and healthcheck-client.{crt,key}, server.{crt,key} or tls.{crt,key}")
	s.ducklett.bind(v)

	add(v, &s.installCRDs, "install-crds", true, "MOULT_INSTALL_CRDS", "install CustomResourceDefinitions at start, or update those that no one else manages")
	add(v, &s.metricsAddress, "metrics-bind-address", ":8080", "MOULT_METRICS_BIND_ADDRESS", "where /metrics is served; 0 serves none")
	add(v, &s.metricsSecure, "metrics-secure", inPod(), "MOULT_METRICS_SECURE", "serve metrics by TLS, to those alone who may get them by RBAC; default: only in a Pod")
	add(v, &s.probeAddress, "health-probe-bind-address", ":8081", "MOULT_HEALTH_PROBE_BIND_ADDRESS", "where /healthz and /readyz are served; 0 serves none")
	add(v, &s.qps, "kube-api-qps", 0, "", "most requests a second to the API server; 0 is no limit")
	add(v, &s.burst, "kube-api-burst", 400, "", "most requests at once to the API server, with --kube-api-qps")

	oneOf := func(value *string, of ...string) func() bool {
		return func() bool { return slices.Contains(of, *value) }
	}
	v.require("job-image-pull-policy", "Always, IfNotPresent or Never", oneOf((*string)(&j.ImagePullPolicy), "Always", "IfNotPresent", "Never"))
	v.require("job-pod-replacement-policy", "TerminatingOrFailed or Failed", oneOf((*string)(&j.PodReplacementPolicy), "TerminatingOrFailed", "Failed"))
	v.require(flagValidationMode, "auto or manual", oneOf(validationMode, string(edsv1.ValidationModeAuto), string(edsv1.ValidationModeManual)))
	v.require("plan-polling-interval", "more than 1m", func() bool { return s.PollingInterval > time.Minute })
	v.require("name", "a name", func() bool { return strings.TrimSpace(s.Name) != "" })
	v.require("namespace", "a name", func() bool { return strings.TrimSpace(s.Namespace) != "" })
	v.require("threads", "1 or more", func() bool { return s.Threads >= 1 })
	v.require("eds-threads", "1 or more", func() bool { return s.daemons.Threads >= 1 })
	v.require("job-ttl-seconds-after-finish", "0 or more", func() bool { return j.TTLSecondsAfterFinish >= 0 })
	v.require("job-backoff-limit", "0 or more", func() bool { return j.BackoffLimit >= 0 })
	v.require(flagControllers, "one or more of "+strings.Join(allControllers, ","), func() bool {
		return len(s.chosen()) > 0 && !slices.ContainsFunc(s.chosen(), func(c string) bool { return !slices.Contains(allControllers, c) })
	})

	// Flags of the peers' programs. system-upgrade-controller takes --service-account; the others are those of ExtendedDaemonSet, of the Bottlerocket
	// update operator and Dogswatch, and of Ducklett's logger.
	same := map[string]string{
		"metrics-addr": "metrics-bind-address", "enable-leader-election": "leader-elect", "nodeName": "node-name", flagConcurrency: flagWorkerConcurrency,
	}
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(same[name], name))
	})
	flags.StringVar(&s.logLevel, "loglevel", "info", "debug is --debug")
	_ = flags.MarkHidden("loglevel")
	flags.Int8Var(&s.verbosity, flagVerbosity, 0, "1 is --debug, more is what libraries log")
	_ = flags.MarkHidden(flagVerbosity)
	v.ignore([]string{"service-account", "logEncoder", "leader-election-resource"}, []string{"pprof", "ddProfilingEnabled", flagController, flagAgent, "skip-mitigation"})
	v.ignore(loggerFlags, loggerSwitches)
	return v
}

// level returns the lowest level that is logged. In zap it is the negative of a verbosity, and --debug is the verbosity 1.
func (s *settings) level() zapcore.Level {
	verbosity := max(s.verbosity, 0)
	if s.debug || s.logLevel == "debug" {
		verbosity = max(verbosity, 1)
	}
	return -zapcore.Level(verbosity)
}

// complete checks settings against each other, and derives others.
func (s *settings) complete(v *variables) (problems []error) {
	s.NodeName = s.nodeName
	s.daemons.NodeName = s.affinitySupport != "1"
	if namespaces := strings.FieldsFunc(s.watchNamespace, func(r rune) bool { return r == ',' || r == ' ' }); len(namespaces) > 0 {
		s.daemons.Namespaces = map[string]cache.Config{}
		for _, name := range namespaces {
			s.daemons.Namespaces[name] = cache.Config{}
		}
	}
	if v.flags.Changed(flagAgent) {
		problems = append(problems, errors.New("the agent is a program of its own: moult-agent -agent -nodeName NODE, or moult-agent run --node-name NODE"))
	}
	if s.ducklett.isUsed(v.flags) {
		var err error
		if s.ducklettRollouts, err = s.ducklett.rollouts(s.clouds.getenv); err != nil {
			problems = append(problems, err)
		}
		if !s.runs(controllerReplacement) {
			problems = append(problems, fmt.Errorf("--%s need %s among --controllers", strings.Join(ducklettFlags, ", --"), controllerReplacement))
		}
	}
	return problems
}
