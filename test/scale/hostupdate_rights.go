// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"moult.dev/moult/test/cluster"
)

// agentAccount is the service account of agents in the shipped manifests.
const agentAccount = "moult-agent"

// rights are the kinds of the shipped manifests that say who may do what.
var rights = sets.New(
	"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
)

// grantRights applies what the shipped manifests say of rights, and nothing else of them.
func (b *bench) grantRights(ctx context.Context) error {
	kubectl, err := cluster.Binaries(ctx, os.Stderr, "kubectl")
	if err != nil {
		return err
	}
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "moult.dev/moult").Output()
	if err != nil {
		return fmt.Errorf("looking for the checkout, %w", err)
	}
	cmd := exec.CommandContext(ctx, kubectl["kubectl"], "kustomize", filepath.Join(strings.TrimSpace(string(module)), "config", "default"))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("putting the manifests together, %w\n%s", err, errOut.Bytes())
	}
	decoder := yaml.NewYAMLOrJSONDecoder(&out, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the manifests, %w", err)
		}
		if !rights.Has(object.GetKind()) {
			continue
		}
		if err := b.plans.Create(ctx, object); err != nil {
			return fmt.Errorf("making %s %s, %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// tokens are the agents', each bound to its node, as the token of a pod there is.
func (b *bench) tokens(ctx context.Context, nodes []corev1.Node) (map[string]string, error) {
	var mu sync.Mutex
	tokens := make(map[string]string, len(nodes))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range nodes {
		n := &nodes[i]
		group.Go(func() error {
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: ptr.To(int64((24 * time.Hour).Seconds())),
				BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
			}}
			token, err := b.raw.CoreV1().ServiceAccounts(namespace).CreateToken(groupCtx, agentAccount, request, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking for a token for %s, %w", n.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			tokens[n.Name] = token.Status.Token
			return nil
		})
	}
	return tokens, group.Wait()
}

// untilBounded returns when an agent may change its own node, and no other: the API server learns of policies one after
// the other.
func (b *bench) untilBounded(ctx context.Context, token, own, other string) error {
	config := rest.AnonymousClientConfig(b.cluster.Config())
	config.UserAgent, config.BearerToken = "scale", token
	raw, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	try := func(ctx context.Context, node string) error {
		patch := []byte(`{"metadata":{"annotations":{"moult.dev/host-version":"0.0.0"}}}`)
		_, err := raw.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	var said error
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if said = try(ctx, own); said != nil {
			return false, nil
		}
		if other == own {
			return true, nil
		}
		said = try(ctx, other)
		return apierrors.IsForbidden(said) || apierrors.IsInvalid(said), nil
	})
	if err != nil {
		return fmt.Errorf("waiting until an agent may change its own node and no other, %w: %w", err, said)
	}
	return nil
}

// label makes all nodes ones of hosts, which run the old release.
func (b *bench) label(ctx context.Context) ([]corev1.Node, error) {
	list, err := b.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range list.Items {
		n := &list.Items[i]
		group.Go(func() error {
			nodes := b.raw.CoreV1().Nodes()
			status := fmt.Appendf(nil, `{"status":{"nodeInfo":{"osImage":%q}}}`, osImage(oldRelease))
			if _, err := nodes.Patch(groupCtx, n.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
				return fmt.Errorf("making %s a host, %w", n.Name, err)
			}
			label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, hostProtocol.InterfaceLabel, hostInterface)
			if _, err := nodes.Patch(groupCtx, n.Name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("labelling %s, %w", n.Name, err)
			}
			return nil
		})
	}
	return list.Items, group.Wait()
}
