// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/controller/budget"
	"moult.dev/moult/internal/controller/daemonset"
	"moult.dev/moult/internal/controller/daemonsetsetting"
	"moult.dev/moult/internal/controller/definition"
	"moult.dev/moult/internal/controller/hostupdate"
	"moult.dev/moult/internal/controller/notify"
	"moult.dev/moult/internal/controller/plan"
	"moult.dev/moult/internal/controller/replacement"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/ksmetrics"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/outbound"
	"moult.dev/moult/internal/turn"
)

const (
	// reconcileTimeout ends a reconcile whose API server does not answer.
	reconcileTimeout = 2 * time.Minute
	// flushTimeout bounds how long the last Events delay the end.
	flushTimeout = 5 * time.Second
	// syncTimeout bounds how long a probe waits for the caches; a kubelet waits for 1 s.
	syncTimeout = 500 * time.Millisecond
	// heapGrowth is the garbage collector's percentage if $GOGC is not set. Most of the heap is long-lived caches. Go's default, 100, would double it.
	heapGrowth = 70
	// defaultImage is this program's, without a version. Its registry is that of the domain that this module is named after.
	defaultImage = "moult.dev/moult"
)

func newControllerCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the operator, in a Pod or outside of the cluster",
		Long: `Run the operator: in a Pod with its service account, or outside of the cluster with $KUBECONFIG.

Each setting is a flag. The variable [$NAME] sets it too. The variables of system-upgrade-controller have
their names and defaults here.`,
		Args: cobra.NoArgs,
	}
	variables := s.bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ignored, err := variables.load(os.Getenv)
		if err := errors.Join(append(s.complete(variables), err)...); err != nil {
			return err
		}
		if _, ok := os.LookupEnv("GOGC"); !ok {
			debug.SetGCPercent(heapGrowth)
		}
		return s.run(cmd.Context(), ignored)
	}
	return cmd
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(upgradev1.AddToScheme(scheme))
	utilruntime.Must(edsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}

func (s *settings) run(ctx context.Context, ignored []error) error {
	ctrl.SetLogger(zap.New(zap.Level(s.level())))
	metrics.SetBuildInfo(version)
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

// manager sets up the manager.
func (s *settings) manager(ctx context.Context, cfg *rest.Config, clientset kubernetes.Interface, scheme *runtime.Scheme, recorder *events.Recorder) (ctrl.Manager, error) {
	system, err := clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading namespace kube-system, %w", err)
	}
	s.ClusterID = string(system.UID)
	err = s.readPod(ctx, clientset)
	if err == nil && s.installCRDs {
		err = installCRDs(ctx, cfg)
	}
	if err != nil {
		return nil, err
	}
	budgets, err := isServed(cfg, v1alpha1.GroupVersion.WithKind("NodeDisruptionBudget").GroupKind())
	if err != nil {
		return nil, err
	}
	s.noBudgets = !budgets // The operator works without them.
	lease, err := s.lease(cfg)
	if err != nil {
		return nil, err
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options{ByObject: s.cached()},
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
		Metrics:                             s.metricsOptions(),
		HealthProbeBindAddress:              s.probeAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager, %w", err)
	}
	if err := s.setUp(ctx, m, recorder); err != nil {
		return nil, err
	}
	// A standby is ready when it can take over. It fills its caches before it leads.
	isSynced := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), syncTimeout)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not in sync")
		}
		return nil
	}
	return m, errors.Join(m.AddHealthzCheck("ping", healthz.Ping), m.AddReadyzCheck("started", isSynced), m.Add(always(func(ctx context.Context) {
		if m.GetCache().WaitForCacheSync(ctx) {
			recorder.Emit(events.ControllerStarted(s.nodeName, s.Name))
		}
	})))
}

// cached returns the cache options of the controllers that are chosen. Those of other kinds would need their CustomResourceDefinitions.
func (s *settings) cached() map[client.Object]cache.ByObject {
	all := fleet.CacheOptions()
	maps.Copy(all, definition.CacheOptions())
	if s.runs(controllerPlan) {
		maps.Copy(all, plan.CacheOptions(s.Options))
	}
	if s.runs(controllerDaemonSet) {
		maps.Copy(all, daemonset.CacheOptions(s.daemons))
	}
	if s.runs(controllerHostUpdate) || s.runs(controllerReplacement) {
		maps.Copy(all, turn.CacheOptions())
	}
	if !s.noBudgets {
		all[&v1alpha1.NodeDisruptionBudget{}] = cache.ByObject{Transform: cache.TransformStripManagedFields()}
	}
	return all
}

// always is a Runnable that runs also without leadership.
type always func(context.Context)

// Start implements manager.Runnable.
func (f always) Start(ctx context.Context) error { f(ctx); return nil }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (always) NeedLeaderElection() bool { return false }

// setUp sets up the fleet, the controller of budgets, and the controllers that are chosen.
func (s *settings) setUp(ctx context.Context, m ctrl.Manager, recorder *events.Recorder) error {
	c := clock.RealClock{}
	cached, err := fleet.NewPodCache(m.GetConfig(), cacheOptions(m))
	if err != nil {
		return fmt.Errorf("making the cache of pods, %w", err)
	}
	// Drains use a client without a cache that never waits, and one that lists the pods of a node.
	live, err := client.New(drain.NeverWait(m.GetConfig()), client.Options{Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	pods, err := typedcorev1.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	f := fleet.New(c, m.GetClient(), cached)
	f.NoBudgets = s.noBudgets
	transport := outbound.NewTransport(s.allowLocal)
	s.Transport = transport
	f.QueryThrough(transport, s.ownNamespace())
	if err := errors.Join(m.Add(cached), f.SetupWithManager(ctx, m), s.checkDefinitions(ctx, m, f)); err != nil {
		return fmt.Errorf("setting up the fleet, %w", err)
	}
	if !s.noBudgets {
		if err := budget.NewController(c, m.GetClient(), f, recorder).SetupWithManager(ctx, m); err != nil {
			return fmt.Errorf("setting up the controller of budgets, %w", err)
		}
	}
	setUps := map[string]func() error{
		controllerPlan: func() error {
			return plan.NewController(c, m.GetClient(), live, pods, f, recorder, s.Options).SetupWithManager(ctx, m)
		},
		controllerDaemonSet: func() error { return s.setUpDaemonSets(ctx, m, c, f, recorder) },
		controllerHostUpdate: func() error {
			o := hostupdate.Options{NodeName: s.nodeName, Threads: s.Threads, RequirePolicy: inPod()}
			return hostupdate.NewController(c, m.GetClient(), live, pods, f, recorder, o).SetupWithManager(ctx, m)
		},
		controllerReplacement: func() error {
			o := replacement.Options{
				NodeName: s.nodeName, Threads: s.Threads, Clouds: s.clouds.of, Plane: controlplane.New(live, controlplane.Certificates(s.etcdCertificates)),
			}
			k := &keeper{client: m.GetClient(), rollouts: s.ducklettRollouts}
			return errors.Join(k.SetupWithManager(m), replacement.NewController(c, m.GetClient(), live, pods, f, recorder, o).SetupWithManager(ctx, m))
		},
	}
	for _, name := range allControllers {
		if !s.runs(name) {
			continue
		}
		if err := setUps[name](); err != nil {
			return fmt.Errorf("setting up the controller %s, %w", name, err)
		}
	}
	o := notify.Options{Namespace: s.ownNamespace(), Kinds: s.rolloutKinds(), Cluster: s.ClusterID, Transport: transport}
	if err := notify.NewController(c, recorder, o).SetupWithManager(ctx, m); err != nil {
		return fmt.Errorf("setting up notifications, %w", err)
	}
	return nil
}

// rolloutKinds returns the kinds of rollouts whose controllers are chosen.
func (s *settings) rolloutKinds() (kinds []string) {
	for _, name := range allControllers {
		if kind := kindsOf[name][0]; s.runs(name) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// setUpDaemonSets sets up the controllers of ExtendedDaemonSets and their settings.
func (s *settings) setUpDaemonSets(ctx context.Context, m ctrl.Manager, c clock.Clock, f *fleet.Fleet, recorder *events.Recorder) error {
	caches, err := daemonset.NewCaches(m.GetConfig(), s.daemons, cacheOptions(m))
	if err != nil {
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
	return errors.Join(
		m.Add(caches.Pods), m.AddMetricsServerExtraHandler("/ksmetrics", ksmetrics.New(m.GetClient(), leads)),
		daemonset.NewController(c, m.GetClient(), m.GetAPIReader(), caches, f, recorder, s.daemons).SetupWithManager(ctx, m),
		daemonsetsetting.NewController(m.GetClient(), recorder).SetupWithManager(ctx, m),
		m.Add(manager.RunnableFunc(func(context.Context) error { metrics.SetLeader(true); return nil })),
	)
}

// cacheOptions returns the options of caches besides the manager's.
func cacheOptions(m ctrl.Manager) cache.Options {
	return cache.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()}
}

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
	cfg.QPS, cfg.Burst = cmp.Or(s.qps, -1), s.burst
	cfg.UserAgent = "moult/" + version
	// Within a cluster compression costs both sides more than it saves.
	cfg.DisableCompression = true
	return cfg, nil
}

// ownNamespace returns the namespace that this runs in. Outside of a Pod it is that of Plans.
func (s *settings) ownNamespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), s.Namespace) }

// readPod reads the Pod that this runs in: Jobs drain with its image, and no Plan in its namespace may use what it has.
func (s *settings) readPod(ctx context.Context, clientset kubernetes.Interface) error {
	name, namespace := os.Getenv("POD_NAME"), s.ownNamespace()
	if name == "" {
		s.Job.Image = cmp.Or(s.Job.Image, defaultImage+":"+version)
		return nil
	}
	pod, err := clientset.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Pod that this runs in, %w", err)
	}
	containers := pod.Spec.Containers
	own := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "moult" })
	s.Job.Image = cmp.Or(s.Job.Image, containers[max(own, 0)].Image)
	if namespace == s.Namespace {
		s.Reserved = plan.NewReserved(&pod.Spec)
	}
	return nil
}

// lease returns the lock that this process holds while it leads. In a Pod the holder is the Pod's name. So a container that restarts after its
// host went down need not wait until its own Lease expires. A Pod never runs two of these containers at once.
func (s *settings) lease(cfg *rest.Config) (resourcelock.Interface, error) {
	if !s.leaderElect {
		return nil, nil
	}
	holder := resourcelock.ResourceLockConfig{Identity: cmp.Or(os.Getenv("POD_NAME"), s.nodeName+"_"+string(uuid.NewUUID()))}
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.Namespace, s.Name, holder, cfg, s.renewDeadline)
}
