// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
)

// Kind is one kind of object that commands act on.
type Kind struct {
	// Name is the kind, as in a manifest.
	Name     string
	Resource schema.GroupVersionResource
	// Namespaced is true when its objects are in namespaces.
	Namespaced bool
	// shorts are short names, for use before the slash like the kind and the resource. Messages use the first.
	shorts []string
}

// The kinds. An ExtendedDaemonSetReplicaSet is a revision of an ExtendedDaemonSet.
var (
	Plan        = newKind("Plan", upgradev1.GroupVersion, true, "plan")
	DaemonSet   = newKind("ExtendedDaemonSet", edsv1.GroupVersion, true, "eds")
	NodeRollout = newKind("NodeRollout", v1alpha1.GroupVersion, false, "nr")
	Budget      = newKind("NodeDisruptionBudget", v1alpha1.GroupVersion, false, "ndb")
	Node        = newKind("Node", corev1.SchemeGroupVersion, false, "node", "no")
	Pod         = newKind("Pod", corev1.SchemeGroupVersion, true, "pod")
	PodBudget   = newKind("PodDisruptionBudget", policyv1.SchemeGroupVersion, true, "pdb")
	ReplicaSet  = newKind("ExtendedDaemonSetReplicaSet", edsv1.GroupVersion, true, "ers")
	Setting     = newKind("ExtendedDaemonsetSetting", edsv1.GroupVersion, true, "extendeddaemonsetsetting")
)

// The kinds of an installation.
var (
	Deployment    = newKind("Deployment", appsv1.SchemeGroupVersion, true, "deploy")
	AppsDaemonSet = newKind("DaemonSet", appsv1.SchemeGroupVersion, true, "ds")
	Job           = newKind("Job", batchv1.SchemeGroupVersion, true, "job")
	Secret        = newKind("Secret", corev1.SchemeGroupVersion, true, "secret")
	Lease         = newKind("Lease", coordinationv1.SchemeGroupVersion, true, "lease")
	Definition    = newKind("CustomResourceDefinition", apiextensionsv1.SchemeGroupVersion, false, "crd")
	Policy        = newKind("ValidatingAdmissionPolicy", admissionregistrationv1.SchemeGroupVersion, false, "vap")
	PolicyBinding = newKind("ValidatingAdmissionPolicyBinding", admissionregistrationv1.SchemeGroupVersion, false, "vapbinding")
	Access        = newKind("SubjectAccessReview", authorizationv1.SchemeGroupVersion, false, "access")
	OwnAccess     = newKind("SelfSubjectAccessReview", authorizationv1.SchemeGroupVersion, false, "ownaccess")
)

// Rollouts are the kinds of rollouts. A name without a kind is that of a rollout of any kind.
var Rollouts = []*Kind{Plan, DaemonSet, NodeRollout}

func newKind(name string, of schema.GroupVersion, namespaced bool, shorts ...string) *Kind {
	resource, _ := meta.UnsafeGuessKindToResource(of.WithKind(name))
	return &Kind{Name: name, Resource: resource, Namespaced: namespaced, shorts: shorts}
}

func (k *Kind) singular() string { return strings.ToLower(k.Name) }

// Short names an object of the kind on a command line: "nr/NAME".
func (k *Kind) Short(name string) string { return k.shorts[0] + "/" + name }

// String is how kubectl names an object of the kind: "plan.upgrade.cattle.io/NAME".
func (k *Kind) String(name string) string {
	return schema.GroupResource{Group: k.Resource.Group, Resource: k.singular()}.String() + "/" + name
}

// hasName reports whether text names the kind: plan, plans, plan.upgrade.cattle.io, plans.v1.upgrade.cattle.io.
func (k *Kind) hasName(text string) bool {
	word, group, hasGroup := strings.Cut(strings.ToLower(text), ".")
	if word != k.singular() && word != k.Resource.Resource && !slices.Contains(k.shorts, word) {
		return false
	}
	return !hasGroup || group == k.Resource.Group || group == k.Resource.Version+"."+k.Resource.Group
}

// KindOf returns the kind of a rollout by its name.
func KindOf(name string) *Kind {
	return Rollouts[slices.IndexFunc(Rollouts, func(k *Kind) bool { return k.Name == name })]
}

// Arg names a rollout on a command line: NAME for a Plan, kind/NAME for others, and the namespace if there is one.
func Arg(kind, namespace, name string) string {
	for _, k := range Rollouts[1:] {
		if k.Name == kind {
			name = k.Short(name)
		}
	}
	return name + text.When(namespace != "", " -n %s", namespace)
}

// Target is an object that a command line names.
type Target struct {
	// Kind of the object; nil when the command line does not name it.
	Kind *Kind
	Name string
}

// Parse reads NAME, kind/NAME or kind.group/NAME. The kind must be in of.
func Parse(arg string, of ...*Kind) (Target, error) {
	kind, name, hasKind := strings.Cut(arg, "/")
	if !hasKind {
		kind, name = "", arg
	}
	var kinds, words []string
	for _, k := range of {
		kinds, words = append(kinds, k.Name), append(words, k.singular())
	}
	if name == "" || strings.Contains(name, "/") {
		return Target{}, fmt.Errorf("%q names no %s", arg, text.Or(kinds))
	}
	if !hasKind {
		return Target{Name: name}, nil
	}
	i := slices.IndexFunc(of, func(k *Kind) bool { return k.hasName(kind) })
	if i < 0 {
		return Target{}, fmt.Errorf("%q names no %s: the word before the slash must be %s", arg, text.Or(kinds), text.Or(words))
	}
	return Target{of[i], name}, nil
}
