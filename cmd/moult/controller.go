// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/controller/budget"
	"moult.dev/moult/internal/controller/daemonset"
	"moult.dev/moult/internal/controller/daemonsetsetting"
	"moult.dev/moult/internal/controller/hostupdate"
	"moult.dev/moult/internal/controller/plan"
	"moult.dev/moult/internal/controller/podtemplate"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/ksmetrics"
	"moult.dev/moult/internal/metrics"
)

// reconcileTimeout ends a reconcile whose API server does not answer.
const reconcileTimeout = 2 * time.Minute

// flushTimeout bounds how long the last Events hold up the end.
const flushTimeout = 5 * time.Second

func newControllerCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the operator, in a Pod or outside of the cluster",
		Long: `Run the operator: in a Pod with its service account, or outside of the cluster with $KUBECONFIG.

Each setting is a flag, and where [$NAME] stands an environment variable too. Those of
system-upgrade-controller have their names and defaults here.`,
		Args: cobra.NoArgs,
	}
	variables := s.bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ignored := variables.load(os.LookupEnv)
		more, fatal := s.complete(variables)
		if len(fatal) > 0 {
			return errors.Join(fatal...)
		}
		if _, ok := os.LookupEnv("GOGC"); !ok {
			debug.SetGCPercent(heapGrowth)
		}
		ignored = append(append(ignored, more...), s.freeAddresses(cmd.Context(), cmd.Flags())...)
		return s.run(cmd.Context(), ignored)
	}
	return cmd
}

// heapGrowth is by how many percent the heap may grow until it is cleared of what nobody uses, where $GOGC does not say. Most of
// it are caches, which stay: for Go's own 100 as much again would be kept free.
const heapGrowth = 70

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(upgradev1.AddToScheme(scheme))
	utilruntime.Must(edsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

func (s *settings) run(ctx context.Context, ignored []error) error {
	level := zapcore.InfoLevel
	if s.debug {
		level = zapcore.DebugLevel
	}
	ctrl.SetLogger(zap.New(zap.Level(level)))
	log := ctrl.Log.WithName("setup")
	for _, err := range ignored {
		log.Error(err, "a setting is ignored")
	}
	cfg, err := s.restConfig()
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	scheme := newScheme()
	recorder := events.NewRecorder(ctx, clock.RealClock{}, clientset.CoreV1().Events(""), scheme, s.Name, s.nodeName)
	defer func() {
		// What has happened is told, also when this ends.
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		recorder.Shutdown(flush)
	}()
	recorder.Emit(events.ControllerStarting(s.nodeName, s.Name))

	m, err := s.manager(ctx, cfg, clientset, scheme, recorder)
	if err != nil {
		recorder.Emit(events.ControllerStartFailed(s.nodeName, s.Name, err))
		return err
	}
	log.Info("starting", "version", version, "name", s.Name, "namespace", s.Namespace, "image", s.Job.Image)
	return m.Start(ctx)
}

// manager sets up everything that runs.
func (s *settings) manager(ctx context.Context, cfg *rest.Config, clientset kubernetes.Interface, scheme *runtime.Scheme, recorder *events.Recorder) (ctrl.Manager, error) {
	system, err := clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading namespace kube-system, %w", err)
	}
	s.ClusterID = string(system.UID)
	if err := s.findImage(ctx, clientset); err != nil {
		return nil, err
	}
	if s.installCRDs {
		if err := installCRDs(ctx, cfg); err != nil {
			return nil, err
		}
	}
	lease, err := s.lease(cfg)
	if err != nil {
		return nil, err
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{ByObject: cached(
			plan.CacheOptions(s.Options), fleet.CacheOptions(), daemonset.CacheOptions(s.daemons), podtemplate.CacheOptions(s.daemons.Namespaces...), hostupdate.CacheOptions(),
		)},
		Client: client.Options{Cache: &client.CacheOptions{
			Unstructured:                    true,
			EnableReadYourWritesConsistency: ptr.To(true),
		}},
		Controller:                          config.Controller{ReconciliationTimeout: reconcileTimeout},
		LeaderElection:                      s.leaderElect,
		LeaderElectionResourceLockInterface: lease,
		LeaderElectionID:                    s.Name,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &s.leaseDuration,
		RenewDeadline:                       &s.renewDeadline,
		RetryPeriod:                         &s.retryPeriod,
		Metrics:                             metricsserver.Options{BindAddress: s.metricsAddress},
		HealthProbeBindAddress:              s.probeAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager, %w", err)
	}
	f, err := newFleet(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("setting up the fleet, %w", err)
	}
	if err := s.carryOut(ctx, m, f, recorder); err != nil {
		return nil, err
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	// A standby is ready when it could take over: it holds no caches before.
	synced := make(chan struct{})
	if err := m.AddReadyzCheck("started", func(*http.Request) error {
		select {
		case <-synced:
			return nil
		default:
			return errors.New("caches are not in sync")
		}
	}); err != nil {
		return nil, err
	}
	return m, m.Add(started{synced: synced, run: func(ctx context.Context) {
		if m.GetCache().WaitForCacheSync(ctx) {
			close(synced)
			recorder.Emit(events.ControllerStarted(s.nodeName, s.Name))
		}
	}})
}

// carryOut sets up the controllers that are chosen.
func (s *settings) carryOut(ctx context.Context, m ctrl.Manager, f *fleet.Fleet, recorder *events.Recorder) error {
	if err := budget.NewController(clock.RealClock{}, m.GetClient(), f, recorder).SetupWithManager(ctx, m); err != nil {
		return fmt.Errorf("setting up the controller of budgets, %w", err)
	}
	s.NodeName = s.nodeName
	if s.runs(controllerPlan) {
		if err := plan.NewController(clock.RealClock{}, m.GetClient(), f, recorder, s.Options).SetupWithManager(ctx, m); err != nil {
			return fmt.Errorf("setting up the controller of Plans, %w", err)
		}
	}
	if s.runs(controllerDaemonSet) {
		if err := s.daemonSets(ctx, m, f, recorder); err != nil {
			return fmt.Errorf("setting up the controllers of ExtendedDaemonSets, %w", err)
		}
	}
	if s.runs(controllerHostUpdate) {
		if err := s.hostUpdates(ctx, m, f, recorder); err != nil {
			return fmt.Errorf("setting up the controller of NodeRollouts, %w", err)
		}
	}
	if s.runs(controllerReplacement) {
		if err := s.replacements(ctx, m, f, recorder); err != nil {
			return fmt.Errorf("setting up the controller of NodeRollouts with replacement, %w", err)
		}
	}
	return nil
}

// hostUpdates sets up what looks after NodeRollouts with hostUpdate.
func (s *settings) hostUpdates(ctx context.Context, m ctrl.Manager, f *fleet.Fleet, recorder *events.Recorder) error {
	cfg := drain.NeverWait(m.GetConfig())
	live, err := client.New(cfg, client.Options{Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	pods, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	o := hostupdate.Options{NodeName: s.nodeName, Threads: s.Threads}
	return hostupdate.NewController(clock.RealClock{}, m.GetClient(), live, pods.CoreV1(), f, recorder, o).SetupWithManager(ctx, m)
}

// daemonSets sets up what looks after ExtendedDaemonSets and their kin.
func (s *settings) daemonSets(ctx context.Context, m ctrl.Manager, f *fleet.Fleet, recorder *events.Recorder) error {
	caches, err := daemonset.NewCaches(m.GetConfig(), s.daemons, cache.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return err
	}
	if err := errors.Join(m.Add(caches.Pods), m.Add(caches.Legacy)); err != nil {
		return err
	}
	leads := func() bool {
		select {
		case <-m.Elected():
			return true
		default:
			return false
		}
	}
	if err := m.AddMetricsServerExtraHandler("/ksmetrics", ksmetrics.New(m.GetClient(), leads)); err != nil {
		return err
	}
	return errors.Join(
		daemonset.NewController(clock.RealClock{}, m.GetClient(), m.GetAPIReader(), caches, f, recorder, s.daemons).SetupWithManager(ctx, m),
		daemonsetsetting.NewController(m.GetClient(), recorder).SetupWithManager(ctx, m),
		podtemplate.NewController(m.GetClient(), m.GetAPIReader(), recorder).SetupWithManager(ctx, m),
		m.Add(started{run: func(ctx context.Context) { leading(ctx, m) }}),
	)
}

// leading tells the metrics once this process leads.
func leading(ctx context.Context, m ctrl.Manager) {
	select {
	case <-ctx.Done():
	case <-m.Elected():
		metrics.SetLeader(true)
	}
}

// newFleet sets up what the decisions of all controllers share.
func newFleet(ctx context.Context, m ctrl.Manager) (*fleet.Fleet, error) {
	pods, err := fleet.NewPodCache(m.GetConfig(), cache.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	if err := m.Add(pods); err != nil {
		return nil, err
	}
	f := fleet.New(clock.RealClock{}, m.GetClient(), pods)
	return f, errors.Join(f.Watch(ctx, m.GetCache()), f.SetupWithManager(ctx, m))
}

// cached puts together what controllers want to have cached of which objects.
func cached(all ...map[client.Object]cache.ByObject) map[client.Object]cache.ByObject {
	joined := map[client.Object]cache.ByObject{}
	for _, some := range all {
		maps.Copy(joined, some)
	}
	return joined
}

// started runs once the manager has, whether it leads or not.
type started struct {
	synced chan struct{}
	run    func(context.Context)
}

func (s started) Start(ctx context.Context) error { s.run(ctx); return nil }

func (started) NeedLeaderElection() bool { return false }

// restConfig finds the API server: by kubeconfig or, in a Pod, by the service account.
func (s *settings) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = s.master
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server (is $KUBECONFIG set?), %w", err)
	}
	cfg.QPS, cfg.Burst = s.qps, s.burst
	cfg.UserAgent = "moult/" + version
	// As other controllers do within a cluster: to pack and unpack what is watched costs both sides more than to send it.
	cfg.DisableCompression = true
	return cfg, nil
}

// findImage looks up the image of the Pod that this runs in, so that the Jobs' drain is never of another version.
func (s *settings) findImage(ctx context.Context, clientset kubernetes.Interface) error {
	if s.Job.Image != "" {
		return nil
	}
	if name := os.Getenv("POD_NAME"); name != "" {
		pod, err := clientset.CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("looking up the image of this Pod, %w", err)
		}
		s.Job.Image = imageOf(pod)
		return nil
	}
	s.Job.Image = defaultImage + ":" + version
	return nil
}

const defaultImage = "ghcr.io/moult-dev/moult"

func imageOf(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == "moult" {
			return pod.Spec.Containers[i].Image
		}
	}
	return pod.Spec.Containers[0].Image
}
