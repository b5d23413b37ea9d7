// SPDX-License-Identifier: Apache-2.0

// Package rbac tests the rights that these manifests give to the operator.
package rbac

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const (
	// own is the operator's namespace, and plans that of Plans.
	own         = "moult-system"
	plans       = "system-upgrade"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	kubeadm     = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
	rollout     = "/apis/moult.dev/v1alpha1/noderollouts/r"
)

// thief is a person who has taken over the operator.
type thief struct {
	t      *testing.T
	client kubernetes.Interface
}

// attempt is one request. Nothing is stored.
type attempt struct{ method, path, body string }

func (o *thief) try(a attempt) error {
	r := o.client.CoreV1().RESTClient().Verb(a.method).RequestURI(a.path)
	switch a.method {
	case http.MethodPatch:
		r = r.SetHeader("Content-Type", string(types.StrategicMergePatchType)).Body([]byte(a.body)).Param("dryRun", "All")
	case http.MethodPost, http.MethodPut:
		r = r.SetHeader("Content-Type", "application/json").Body([]byte(a.body)).Param("dryRun", "All")
	case http.MethodDelete:
		r = r.Param("dryRun", "All")
	}
	return r.Do(o.t.Context()).Error()
}

// may checks which attempts are allowed. One at an object that does not exist is: rights are judged before it is looked for.
func (o *thief) may(want bool, attempts ...attempt) {
	o.t.Helper()
	for _, a := range attempts {
		if err := o.try(a); apierrors.IsForbidden(err) == want {
			o.t.Errorf("%s %s %s: want allowed %t, got %v", a.method, a.path, a.body, want, err)
		}
	}
}

// What a person can do who takes over the operator, with the manifests as they are shipped.
func TestAPIOperatorRights(t *testing.T) {
	c := cluster.Shared(t, 1)
	admin, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: account(own), Groups: groups,
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	o := &thief{t, client}
	apply(t, c, "")
	victim, daemon := pod(t, admin, nil), pod(t, admin, map[string]string{edsv1.LabelName: "agent", "app": "agent"})
	image := func(path string) attempt {
		return attempt{http.MethodPatch, path, `{"spec":{"containers":[{"name":"c","image":"evil"}]}}`}
	}
	eventually(t, "the policy holds", func(context.Context) (string, bool) {
		err := o.try(image(victim))
		return fmt.Sprint(err), apierrors.IsForbidden(err)
	})

	t.Run("pods", func(t *testing.T) {
		o := &thief{t, client}
		o.may(false, image(victim), image(daemon))
		for _, body := range []string{
			`{"metadata":{"labels":{"app":"other"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"finalizers":["example.com/x"]}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`, `{"spec":{"activeDeadlineSeconds":1}}`,
		} {
			o.may(false, attempt{http.MethodPatch, victim, body}, attempt{http.MethodPatch, daemon, body})
		}
		canary := `{"metadata":{"labels":{"` + edsv1.LabelReplicaSetCanary + `":"true"}}}`
		o.may(false, attempt{http.MethodPatch, victim, canary})
		o.may(true, attempt{http.MethodPatch, daemon, canary})
	})
	t.Run("metrics", func(t *testing.T) {
		o := &thief{t, client}
		o.may(true, attempt{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", "{}"},
			attempt{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "{}"})
	})
	t.Run("secrets", func(t *testing.T) {
		o := &thief{t, client}
		const secrets = "/api/v1/namespaces/" + own + "/secrets"
		of := func(name string) attempt { return attempt{http.MethodGet, secrets + name, ""} }
		o.may(true, of("/moult-prometheus"))
		o.may(false, of("/moult-cloud"), of(""), attempt{http.MethodPatch, secrets + "/moult-prometheus", "{}"},
			attempt{http.MethodGet, "/api/v1/namespaces/default/secrets/moult-prometheus", ""})
		const maps, only = "/api/v1/namespaces/" + own + "/configmaps", "?fieldSelector=metadata.name%3Dmoult-notifications"
		o.may(true, of(only), attempt{http.MethodGet, maps + only, ""}, attempt{http.MethodPatch, maps + "/moult-notifications", "{}"},
			attempt{http.MethodPost, maps, `{"metadata":{"name":"moult-notifications"}}`})
		o.may(false, of("/moult-notifications"), attempt{http.MethodPatch, secrets + "/moult-notifications", "{}"},
			attempt{http.MethodGet, maps, ""}, attempt{http.MethodPatch, maps + "/default-controller-env", "{}"},
			attempt{http.MethodDelete, maps + "/moult-notifications", ""})
	})
	t.Run("definitions", func(t *testing.T) {
		o := &thief{t, client}
		foreign := attempt{http.MethodPatch, definitions + "certificates.cert-manager.io", "{}"}
		own := attempt{http.MethodPatch, definitions + "plans.upgrade.cattle.io", "{}"}
		create := attempt{http.MethodPost, strings.TrimSuffix(definitions, "/"), "{}"}
		o.may(true, attempt{http.MethodGet, own.path, ""})
		o.may(false, foreign, own, create, attempt{http.MethodDelete, own.path, ""})
		apply(t, c, "install-crds")
		eventually(t, "the component counts", func(context.Context) (string, bool) {
			err := o.try(own)
			return fmt.Sprint(err), !apierrors.IsForbidden(err)
		})
		o.may(true, own, create)
		o.may(false, foreign, attempt{http.MethodDelete, own.path, ""})
	})
	t.Run("replacement", func(t *testing.T) {
		o := &thief{t, client}
		version, node := attempt{http.MethodPatch, kubeadm, "{}"}, attempt{http.MethodDelete, "/api/v1/nodes/none", ""}
		create := attempt{http.MethodPost, strings.TrimSuffix(rollout, "/r"), "{}"}
		o.may(false, version, node, attempt{http.MethodGet, kubeadm, ""}, attempt{http.MethodPatch, rollout, "{}"}, create)
		apply(t, c, "replacement")
		eventually(t, "the component counts", func(context.Context) (string, bool) {
			err := o.try(node)
			return fmt.Sprint(err), !apierrors.IsForbidden(err)
		})
		o.may(true, node, attempt{http.MethodPatch, rollout, "{}"})
		o.may(false, version, create)
		apply(t, c, "replacement/ducklett")
		eventually(t, "the component counts", func(context.Context) (string, bool) {
			err := o.try(create)
			return fmt.Sprint(err), !apierrors.IsForbidden(err)
		})
		o.may(true, create)
		o.may(false, attempt{http.MethodDelete, rollout, ""}, version)
		apply(t, c, "replacement/kubeadm")
		eventually(t, "the component counts", func(context.Context) (string, bool) {
			err := o.try(version)
			return fmt.Sprint(err), !apierrors.IsForbidden(err)
		})
	})
}

// groups are those of every service account.
var groups = []string{"system:serviceaccounts", "system:authenticated"}

// account is the name of the operator's service account in a namespace.
func account(namespace string) string { return "system:serviceaccount:" + namespace + ":moult" }

// apply applies config/rbac with a component, or without one, until the test ends.
func apply(t *testing.T, c *cluster.Cluster, component string) {
	t.Helper()
	overlay := "resources: [CONFIG/namespace, CONFIG/rbac]\n"
	if component != "" {
		overlay += "components: [CONFIG/" + component + "]\n"
	}
	kustomize(t, c, overlay)
}

// kustomize applies an overlay, where CONFIG is the path of config. What is not in a namespace and has a meaning for other tests is deleted when the
// test ends.
func kustomize(t *testing.T, c *cluster.Cluster, overlay string) {
	t.Helper()
	dir := t.TempDir()
	config, err := filepath.Abs("..")
	if err == nil {
		config, err = filepath.Rel(dir, config)
	}
	if err != nil {
		t.Fatal(err)
	}
	overlay = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + strings.ReplaceAll(overlay, "CONFIG", config)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "--server-side", "-k", dir)
	t.Cleanup(func() {
		kubectl(t, c, "delete", "--ignore-not-found", "clusterrolebinding/moult-controller", "clusterrolebinding/moult-replacement",
			"clusterrolebinding/moult-install-crds", "validatingadmissionpolicybinding/moult-controller", "validatingadmissionpolicy/moult-controller")
	})
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) {
	t.Helper()
	programs, err := cluster.Binaries(context.WithoutCancel(t.Context()), os.Stderr, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), programs["kubectl"], append(args, "--kubeconfig", c.Kubeconfig())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
}

// pod creates a pod, and returns its path.
func pod(t *testing.T, admin kubernetes.Interface, labels map[string]string) string {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rights-", Labels: labels},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "c", Image: "good"}}},
	}
	var made *corev1.Pod
	eventually(t, "a pod can be created", func(ctx context.Context) (string, bool) {
		var err error
		made, err = admin.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, p, metav1.CreateOptions{})
		return fmt.Sprint(err), err == nil
	})
	t.Cleanup(func() {
		_ = admin.CoreV1().Pods(made.Namespace).Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{})
	})
	return "/api/v1/namespaces/" + made.Namespace + "/pods/" + made.Name
}

// eventually waits for something that must come.
func eventually(t *testing.T, what string, holds func(context.Context) (string, bool)) {
	t.Helper()
	seen := ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (ok bool, _ error) {
		seen, ok = holds(ctx)
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: %s", what, seen)
	}
}
