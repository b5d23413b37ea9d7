// SPDX-License-Identifier: Apache-2.0

// Package source is how commands reach the API. It parses object names, and reads and changes objects.
//
//	kinds.go       the kinds, and how a command line names objects
//	verb.go        what all commands have whose argument is an object; names for the shell
//	source.go      which cluster, by kubectl's flags; objects of any kind: read, list, find by name
//	feed.go        reads that watches answer, for commands that follow objects
//	write.go       one change of an object, again after a conflict
//	explain.go     errors, and what cannot be seen, in words
//	rollouts.go    rollouts, nodes and budgets
//	pods.go        pods of ExtendedDaemonSets, and pods that gates select; the operator: its Deployments, agents and version, and where it runs
package source

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/kind/quantity"
)

// Source is the part of the API that commands use.
type Source struct {
	// Client reads and writes custom resources.
	Client dynamic.Interface
	Core   typedcorev1.CoreV1Interface
	// Namespace is that of the command line; empty is all.
	Namespace string
	// Own is where ReadRollouts reads a kind that may not be listed in all namespaces; empty if it reads it nowhere.
	Own string
	// Notes say what could not be read. A read that continues without some objects adds a note.
	Notes []string
	// feed answers reads for a command that follows objects; if nil, reads list.
	feed *Feed
}

// Connect makes clients of the cluster and for the namespace of the command line.
func Connect(cluster Config) (*Source, error) {
	config, namespace, err := cluster.Load()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	return &Source{Client: client, Core: core, Namespace: namespace}, nil
}

// In returns the objects of a kind in a namespace, or in all where it is empty or the kind has none.
func (src *Source) In(namespace string, k *Kind) dynamic.ResourceInterface {
	if !k.Namespaced {
		namespace = ""
	}
	return src.Client.Resource(k.Resource).Namespace(namespace)
}

// Of returns the objects of a kind in the namespace of the command line.
func (src *Source) Of(k *Kind) dynamic.ResourceInterface { return src.In(src.Namespace, k) }

// Lister lists and watches objects: a typed client, or a dynamic one.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Each reads the objects in pages and calls do with each.
func Each[T any, L runtime.Object](ctx context.Context, from Lister[L], o metav1.ListOptions, do func(*T)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return from.List(ctx, o) })
	return pages.EachListItem(ctx, o, func(object runtime.Object) error {
		do(As[T](object))
		return nil
	})
}

// Read returns objects of a kind in the namespace of the command line.
func Read[T any](ctx context.Context, src *Source, k *Kind, o metav1.ListOptions) ([]T, error) {
	return ReadIn[T](ctx, src, src.Namespace, k, o)
}

// ReadIn returns objects of a kind in a namespace, or in all if it is empty.
func ReadIn[T any](ctx context.Context, src *Source, namespace string, k *Kind, o metav1.ListOptions) ([]T, error) {
	return read[T](ctx, src, src.In(namespace, k), o, namespace+"/"+k.Name, func(*T) {})
}

// read lists objects, or takes them from the watch called name. trim removes unneeded fields from each.
func read[T any, L runtime.Object](ctx context.Context, src *Source, from Lister[L], o metav1.ListOptions, name string, trim func(*T)) ([]T, error) {
	all := []T{}
	if src.feed == nil {
		err := Each(ctx, from, o, func(object *T) {
			trim(object)
			all = append(all, *object)
		})
		return all, err
	}
	typed := func(object any) (any, error) {
		if _, isObject := object.(metav1.Object); !isObject {
			return object, nil // A bookmark, or a deleted object.
		}
		t := As[T](object)
		trim(t)
		return t, nil
	}
	found, err := src.feed.objects(ctx, strings.Join([]string{name, o.LabelSelector, o.FieldSelector}, "/"), listWatchOf(from, o), typed)
	for _, object := range found {
		all = append(all, *object.(*T))
	}
	return all, err
}

// listWatchOf lists and watches the objects that the options select.
func listWatchOf[L runtime.Object](from Lister[L], o metav1.ListOptions) listWatch {
	only := func(l metav1.ListOptions) metav1.ListOptions {
		l.LabelSelector, l.FieldSelector = o.LabelSelector, o.FieldSelector
		return l
	}
	return func(attempted func(error)) *cache.ListWatch {
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
				list, err := from.List(ctx, only(l))
				attempted(err)
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, l metav1.ListOptions) (watch.Interface, error) {
				events, err := from.Watch(ctx, only(l))
				attempted(err)
				return events, err
			},
		}
	}
}

// As converts an object to its type, without managed fields. If the spec does not fit the type, the result has no spec.
func As[T any](object any) *T {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	if typed, ok := object.(*T); ok {
		return typed
	}
	content := object.(*unstructured.Unstructured).Object
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	if whole := new(T); quantity.CheckAll("spec", content["spec"]) == nil && convert(content, whole) == nil {
		return whole
	}
	content, rest := maps.Clone(content), new(T)
	delete(content, "spec")
	_ = convert(content, rest) // A part that can't be read stays empty.
	return rest
}

// GetAs reads an object in its type.
func GetAs[T any](ctx context.Context, src *Source, k *Kind, name string) (*T, error) {
	u, err := src.Get(ctx, k, name)
	if err != nil {
		return nil, err
	}
	return As[T](u), nil
}

// Get reads an object. If it does not exist, the error lists namespaces that have one of that name.
func (src *Source) Get(ctx context.Context, k *Kind, name string) (*unstructured.Unstructured, error) {
	o, err := src.Of(k).Get(ctx, name, metav1.GetOptions{})
	if isObjectNotFound(err) {
		return nil, src.NotFound(ctx, name, k)
	}
	return o, Explain(k, err)
}

// Object is an object with its kind.
type Object struct {
	*unstructured.Unstructured
	Kind *Kind
}

// String is how kubectl names the object.
func (o Object) String() string { return o.Kind.String(o.GetName()) }

// Target names the object.
func (o Object) Target() Target { return Target{o.Kind, o.GetName()} }

// Find reads the object that the command line names. A name without a kind may be of any of these kinds, but no budget's. Find fails if
// several objects have the name. Only Plans must be readable.
func (src *Source) Find(ctx context.Context, named Target, kinds ...*Kind) (Object, error) {
	if len(kinds) == 1 {
		named.Kind = kinds[0]
	}
	if named.Kind != nil {
		o, err := src.Get(ctx, named.Kind, named.Name)
		return Object{o, named.Kind}, err
	}
	var found []Object
	var args []string
	var failed, denied error
	for _, k := range kinds {
		if k == Budget {
			continue
		}
		o, err := src.Of(k).Get(ctx, named.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			found, args = append(found, Object{o, k}), append(args, k.Short(named.Name))
		case !isHidden(err), k == Plan && !isObjectNotFound(err):
			failed = cmp.Or(failed, Explain(k, err))
		case apierrors.IsForbidden(err):
			denied = cmp.Or(denied, Explain(k, err))
		}
	}
	switch {
	case len(found) > 1:
		return Object{}, fmt.Errorf("several objects are named %q: say %s", named.Name, text.Or(args))
	case len(found) == 1:
		return found[0], nil
	case failed != nil:
		return Object{}, failed
	}
	err := src.NotFound(ctx, named.Name, Rollouts...)
	if kinds[0] == Node {
		err = fmt.Errorf("%s %s not found, and %w", Node.Name, named.Name, err)
	}
	if denied != nil {
		err = fmt.Errorf("%w; it may be one that can't be read: %w", err, denied)
	}
	return Object{}, err
}

// Named selects the objects with a name; all if it is empty.
func Named(name string) metav1.ListOptions { return FieldIs(metav1.ObjectNameField, name) }

// FieldIs selects the objects with this value of a field; all if it is empty.
func FieldIs(field, value string) metav1.ListOptions {
	if value == "" {
		return metav1.ListOptions{}
	}
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(field, value).String()}
}

// User returns the name by which the API server knows the user.
func (src *Source) User(ctx context.Context) (string, error) {
	review := &unstructured.Unstructured{Object: map[string]any{}}
	review.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"))
	reviews := src.Client.Resource(authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"))
	answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking the API server for the user's name, %w", err)
	}
	name, _, err := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	return name, err
}

// isHidden reports whether an error says that a kind does not exist or may not be read.
func isHidden(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// Config says which cluster and namespace a command uses.
type Config interface {
	// Load returns the client configuration and the default namespace.
	Load() (*rest.Config, string, error)
}

// Flags are kubectl's flags for the cluster, namespace and user.
type Flags struct{ *genericclioptions.ConfigFlags }

// NewFlags returns the flags at their defaults.
func NewFlags() *Flags {
	return &Flags{genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag()}
}

// Load implements Config.
func (f *Flags) Load() (*rest.Config, string, error) {
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, "", err
	}
	config.QPS, config.Burst = 50, 100 // The API server's own fairness bounds requests as well.
	return config, namespace, nil
}
