// SPDX-License-Identifier: Apache-2.0

// Package definition finds CustomResourceDefinitions that lack fields of the status, such as those of another operator of the same kinds. The
// API server drops these fields, and with them the operator's memory of a rollout. So the controllers of such a kind do nothing.
//
//	watch      the metadata of CustomResourceDefinitions, at the start and while the operator runs
//	compare    one that has changed with the one that this program was built with
//	refuse     the controllers of the kind ask Refused, and say why on their objects
package definition

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/fleet"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// CacheOptions limits the cache to the names of CustomResourceDefinitions.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&apiextensionsv1.CustomResourceDefinition{}: {Transform: fleet.TrimWorkload}}
}

// Controller knows which CustomResourceDefinitions lack something.
type Controller struct {
	wanted  map[string]*apiextensionsv1.CustomResourceDefinition
	changed func()
	live    client.Reader

	mu sync.RWMutex
	// lacks says what is wrong with a definition, by its name.
	lacks map[string]error
	// came says which definition came after the start.
	came chan error
}

// NewController returns a controller of the definitions in wanted, by name. Those that are nil were not there at the start. When one of these
// comes, all kinds are refused, and the operator ends with an error, so that it starts again. changed is called when
// what is refused may have changed. Of the wanted schemas only
// the status is kept: the others take megabytes.
func NewController(wanted map[string]*apiextensionsv1.CustomResourceDefinition, changed func()) *Controller {
	for _, want := range wanted {
		if want != nil {
			schema := want.Spec.Versions[0].Schema.OpenAPIV3Schema
			maps.DeleteFunc(schema.Properties, func(name string, _ apiextensionsv1.JSONSchemaProps) bool { return name != "status" })
		}
	}
	return &Controller{wanted: wanted, changed: changed, lacks: map[string]error{}, came: make(chan error, 1)}
}

// Refused says why objects of a kind are not carried out, or returns nil. The definitions of kinds whose names begin with this one count too:
// they are of its revisions.
func (c *Controller) Refused(kind string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(c.lacks)) {
		if want := c.wanted[name]; want == nil || strings.HasPrefix(want.Spec.Names.Kind, kind) {
			return c.lacks[name]
		}
	}
	return nil
}

// SetupWithManager compares all definitions now, and makes the manager run this controller, also without leadership. Without the right to
// watch definitions nothing is compared.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	c.live = m.GetAPIReader()
	if err := c.live.List(ctx, &apiextensionsv1.CustomResourceDefinitionList{}, client.Limit(1)); apierrors.IsForbidden(err) {
		log.FromContext(ctx).Error(err, "CustomResourceDefinitions are not checked for fields that the operator needs")
		return nil
	}
	for name := range c.wanted {
		if _, err := c.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			return err
		}
	}
	if err := m.Add(manager.RunnableFunc(c.endWhenOneCame)); err != nil {
		return fmt.Errorf("watching for definitions, %w", err)
	}
	isWanted := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, is := c.wanted[o.GetName()]
		return is
	})
	return ctrl.NewControllerManagedBy(m).
		Named("definition.schema").
		For(&apiextensionsv1.CustomResourceDefinition{}, builder.OnlyMetadata, builder.WithPredicates(isWanted)).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(c)
}

// endWhenOneCame returns an error, which ends the operator, when a definition has come that was not there at the start.
func (c *Controller) endWhenOneCame(ctx context.Context) error {
	select {
	case err := <-c.came:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Reconcile compares one definition.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	name, have := request.Name, &apiextensionsv1.CustomResourceDefinition{}
	if err := c.live.Get(ctx, request.NamespacedName, have); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("reading CustomResourceDefinition %s, %w", name, err))
	}
	lacks := fmt.Errorf("CustomResourceDefinition %s is there, and was not when the operator started: the operator starts again", name)
	if want := c.wanted[name]; want != nil {
		lacks = compare(want, have)
	} else {
		select {
		case c.came <- lacks:
		default: // It is known already.
		}
	}
	c.mu.Lock()
	before := c.lacks[name]
	if c.lacks[name] = lacks; lacks == nil {
		delete(c.lacks, name)
	}
	c.mu.Unlock()
	if fmt.Sprint(before) == fmt.Sprint(lacks) {
		return ctrl.Result{}, nil
	}
	if lacks != nil {
		log.FromContext(ctx).Error(lacks, "objects are not carried out", "definition", name)
	}
	c.changed()
	return ctrl.Result{}, nil
}

// compare says what a definition in the cluster lacks of the status in the definition that this program was built with, or returns nil.
func compare(want, have *apiextensionsv1.CustomResourceDefinition) error {
	lacks := crd.Missing(want, have, "status")
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("CustomResourceDefinition %s lacks %s, so the API server drops what the operator stores there: "+
		"apply config/crd of this version of Moult, and let nothing replace it", want.Name, strings.Join(lacks, ", "))
}
