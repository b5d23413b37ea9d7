// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/config/crd"
	"moult.dev/moult/test/cluster"
)

type customDefinition = apiextensionsv1.CustomResourceDefinition

const aDefinition = "extendeddaemonsetsettings.datadoghq.com"

// TestAPIInstallCRDs: an older definition of this program is updated. One that anybody else manages stays as it is.
func TestAPIInstallCRDs(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	shared := cluster.Shared(t, 0)
	cfg := asOverlay(t, shared, "install-crds")
	if err := installCRDs(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	scheme := newScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(shared.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		manager string
		change  func(*customDefinition)
		ours    bool
	}{
		"ours":    {manager: fieldManager, ours: true},
		"kubectl": {manager: "kubectl"},
		"Helm, adopted": {manager: fieldManager, change: func(d *customDefinition) {
			d.Annotations = map[string]string{"meta.helm.sh/release-name": "eds"}
		}},
		"a label": {manager: fieldManager, change: func(d *customDefinition) {
			d.Labels = map[string]string{"app.kubernetes.io/managed-by": "olm"}
		}},
		"it is not known who": {},
	} {
		t.Run(name, func(t *testing.T) {
			older := createOlder(t, c, test.manager, test.change)
			if err := installCRDs(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			now := &apiextensionsv1.CustomResourceDefinition{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(older), now); err != nil {
				t.Fatal(err)
			}
			if updated := !equality.Semantic.DeepEqual(older.Spec, now.Spec); updated != test.ours {
				t.Errorf("the definition of %s was updated: %t, want %t", test.manager, updated, test.ours)
			}
		})
	}
	// What comes next finds the definitions of this program.
	remove(t.Context(), t, c)
	if err := installCRDs(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// createOlder replaces the definition by an older one of a manager: it has no short names and columns.
func createOlder(t *testing.T, c client.Client, manager string, change func(*customDefinition)) *customDefinition {
	t.Helper()
	remove(t.Context(), t, c)
	all, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Name != aDefinition {
			continue
		}
		d.Spec.Names.Categories = append(d.Spec.Names.Categories, "older")
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].AdditionalPrinterColumns = nil
		}
		if change != nil {
			change(d)
		}
		if err := c.Create(t.Context(), d, client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
		if manager == "" {
			if err := c.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	t.Fatal("there is no definition " + aDefinition)
	return nil
}

func remove(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: aDefinition}}
	err := wait.PollUntilContextCancel(ctx, crdInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Delete(ctx, d)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
}
