// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// The operator ends, and so starts again, when a definition comes that was not there at its start. Any other change does not end it.
func TestEndsWhenADefinitionComes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	known := own(t, "plans")
	late := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	c := NewController(map[string]*apiextensionsv1.CustomResourceDefinition{known.Name: own(t, "plans"), "late": nil}, func() {})
	c.live = fake.NewClientBuilder().WithScheme(scheme).WithObjects(known, late).Build()
	passes := func(name string) {
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	passes(known.Name)
	if err := c.endWhenOneCame(ended); err != nil {
		t.Error(err)
	}
	passes("late")
	passes("late")
	if err := c.endWhenOneCame(t.Context()); err == nil || !strings.Contains(err.Error(), "late is there") {
		t.Error(err)
	}
}
