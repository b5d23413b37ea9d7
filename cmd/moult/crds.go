// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/controller/definition"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/turn"
)

const (
	crdTimeout  = time.Minute
	crdInterval = 200 * time.Millisecond
)

// fieldManager of the definitions that this program installs.
const fieldManager = "moult"

const definitionOfBudgets = "nodedisruptionbudgets.moult.dev"

// kindsOf are the kinds that each controller carries out. Their CustomResourceDefinitions are checked.
var kindsOf = map[string][]string{
	controllerPlan: {"Plan"}, controllerDaemonSet: {"ExtendedDaemonSet", "ExtendedDaemonSetReplicaSet"},
	controllerHostUpdate: {turn.Kind}, controllerReplacement: {turn.Kind},
}

// isServed reports whether discovery shows all these kinds.
func isServed(cfg *rest.Config, kinds ...schema.GroupKind) (bool, error) {
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return false, fmt.Errorf("making a client, %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, c) // A mapper asks only once which groups there are.
	for i := 0; i < len(kinds) && err == nil; i++ {
		_, err = mapper.RESTMapping(kinds[i])
	}
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking which kinds the API server knows, %w", err)
	}
	return true, nil
}

// checkDefinitions makes the manager check the definitions of the controllers that are chosen, and the fleet refuse the kinds that lack a field.
func (s *settings) checkDefinitions(ctx context.Context, m ctrl.Manager, f *fleet.Fleet) error {
	own, err := crd.Definitions()
	if err != nil {
		return fmt.Errorf("reading definitions, %w", err)
	}
	wanted := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, d := range own {
		if slices.ContainsFunc(allControllers, func(c string) bool { return s.runs(c) && slices.Contains(kindsOf[c], d.Spec.Names.Kind) }) {
			wanted[d.Name] = d
		}
	}
	if s.noBudgets {
		ctrl.Log.WithName("setup").Info("there are no budgets, because their definition is not there", "definition", definitionOfBudgets)
		wanted[definitionOfBudgets] = nil
	}
	c := definition.NewController(wanted, f.Changed)
	f.Refused = c.Refused
	return c.SetupWithManager(ctx, m)
}

// installCRDs installs or updates the definitions that this program was built with, and waits until they are served. It
// never changes a definition that others manage.
func installCRDs(ctx context.Context, cfg *rest.Config) error {
	c, err := clientset.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	definitions, err := crd.Definitions()
	if err != nil {
		return fmt.Errorf("reading definitions, %w", err)
	}
	log := ctrl.Log.WithName("setup")
	crds := c.ApiextensionsV1().CustomResourceDefinitions()
	var kinds []schema.GroupKind
	for _, d := range definitions {
		d.APIVersion, d.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
		body, err := yaml.Marshal(d)
		if err != nil {
			return fmt.Errorf("writing definition %s, %w", d.Name, err)
		}
		apply := func(dryRun ...string) (*apiextensionsv1.CustomResourceDefinition, error) {
			return crds.Patch(ctx, d.Name, types.ApplyYAMLPatchType, body,
				metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true), DryRun: dryRun})
		}
		// A definition that is already current is not applied. An apply without changes would still make this program a
		// second owner, which would conflict with the next kubectl apply.
		stored, err := crds.Get(ctx, d.Name, metav1.GetOptions{})
		if other := managerOf(stored); err == nil && other != "" {
			log.Info("a definition is left as it is, because another manages it", "definition", d.Name, "manager", other)
		} else if err == nil {
			var would *apiextensionsv1.CustomResourceDefinition
			if would, err = apply(metav1.DryRunAll); err == nil && !equality.Semantic.DeepEqual(would.Spec, stored.Spec) {
				_, err = apply()
			}
		} else if apierrors.IsNotFound(err) {
			_, err = apply()
		}
		if err != nil {
			return fmt.Errorf("installing definition %s, %w", d.Name, err)
		}
		kinds = append(kinds, schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind})
	}
	err = wait.PollUntilContextTimeout(ctx, crdInterval, crdTimeout, true, func(context.Context) (bool, error) { return isServed(cfg, kinds...) })
	if err != nil {
		return fmt.Errorf("waiting until the definitions are served, %w", err)
	}
	return nil
}

// managerOf returns who manages a definition, if that is not this program alone: a Helm release, a tool that has labelled it, or an owner of
// spec.versions.
func managerOf(d *apiextensionsv1.CustomResourceDefinition) string {
	if name := cmp.Or(d.Annotations["meta.helm.sh/release-name"], d.Labels["app.kubernetes.io/managed-by"]); name != "" {
		return name
	}
	other := "unknown" // Without managed fields it is not known who does.
	for _, f := range d.ManagedFields {
		var owned struct {
			Spec struct {
				Versions json.RawMessage `json:"f:versions"`
			} `json:"f:spec"`
		}
		switch {
		case f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &owned) != nil || owned.Spec.Versions == nil:
		case f.Manager != fieldManager:
			return f.Manager
		default:
			other = ""
		}
	}
	return other
}
