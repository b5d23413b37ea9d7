// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// The results of a check. Unknown is what may not be read, or what is no problem by itself.
const (
	checkOK      = "OK"
	checkProblem = "Problem"
	checkUnknown = "Unknown"
)

// checked is one line of check. Advice says what to do.
type checked struct {
	Result  string `json:"result"`
	Subject string `json:"subject"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}

// checker makes the checks.
type checker struct {
	src    *source.Source
	now    time.Time
	plugin string // its version
	wanted []*apiextensionsv1.CustomResourceDefinition
	all    []checked
	// failed is the first error that is no lack of rights: then the checks say nothing.
	failed error
}

func newCheck(c command) *cobra.Command {
	var output flags.Output
	cmd := help("check",
		`Check the installation: definitions, your rights and the operator's, its version and Lease, policies and agents.
Each problem has a line that says what to do, and the exit code is 1 then. What you may not read is unknown, and no problem.`,
		`  kubectl moult check
  kubectl moult check --as=system:serviceaccount:ci:deployer`)
	output.Add(cmd, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		wanted, err := crd.Definitions()
		if err != nil {
			return fmt.Errorf("reading the definitions of this program, %w", err)
		}
		k := &checker{src: src, now: c.clock.Now(), plugin: cmd.Root().Version, wanted: wanted}
		if k.run(ctx); k.failed != nil {
			return k.failed
		}
		if output.Structured() {
			err = output.PrintAs(c.Out, "Check", map[string]any{"checks": k.all})
		} else {
			err = c.print(drawChecked(k.all))
		}
		if err == nil && slices.ContainsFunc(k.all, func(r checked) bool { return r.Result == checkProblem }) {
			err = errors.New("there are problems")
		}
		return err
	})
}

func drawChecked(all []checked) (l text.Lines) {
	symbols := map[string]text.Piece{checkOK: text.Green.Of("✓ "), checkProblem: text.Red.Of("✗ "), checkUnknown: text.Yellow.Of("? ")}
	for _, r := range all {
		l.Add(symbols[r.Result], text.Bold.Of(r.Subject), text.Plain.Of(": "+r.Message))
		l.AddWhen(r.Advice != "", text.Dim.Of("  → "+r.Advice))
	}
	return l
}

func (k *checker) run(ctx context.Context) {
	for _, d := range k.wanted {
		k.definition(ctx, d)
	}
	k.userRights(ctx)
	operators, err := source.ReadLabelled[appsv1.Deployment](ctx, k.src, source.Deployment, "moult")
	if err == nil && len(operators) == 0 {
		k.add("operator", nil, noOperator, "install it, unless it runs outside of the cluster")
	}
	agents, errAgents := source.ReadLabelled[appsv1.DaemonSet](ctx, k.src, source.AppsDaemonSet, "moult-agent")
	k.add("operator and agents", cmp.Or(err, errAgents), "", "")
	for _, d := range operators {
		k.operator(&d)
		k.lease(ctx, &d)
		k.operatorRights(ctx, &d)
		k.policy(ctx, "moult-controller")
	}
	for i := range agents {
		k.agent(&agents[i])
	}
	if len(agents) > 0 {
		k.policy(ctx, "moult-agent")
	}
}

// add adds what was found: unknown after an error, a problem if there is advice, and else nothing to complain of. Without a message it adds
// only errors.
func (k *checker) add(subject string, err error, message, advice string) {
	r := checked{checkOK, subject, message, advice}
	switch {
	case err != nil:
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			k.failed = cmp.Or(k.failed, err)
		}
		r = checked{checkUnknown, subject, "not known: " + err.Error(), ""}
	case message == "":
		return
	case advice != "":
		r.Result = checkProblem
	}
	k.all = append(k.all, r)
}

// definition compares a CustomResourceDefinition with that of this version.
func (k *checker) definition(ctx context.Context, want *apiextensionsv1.CustomResourceDefinition) {
	have := &apiextensionsv1.CustomResourceDefinition{}
	subject, apply := "definition "+want.Name, "apply the CustomResourceDefinitions of version "+k.plugin
	u, err := k.src.In("", source.Definition).Get(ctx, want.Name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, have)
	}
	if apierrors.IsNotFound(err) {
		k.add(subject, nil, "it is not there", apply)
	} else if lacks := crd.Missing(want, have, ""); err == nil && len(lacks) > 0 {
		k.add(subject, nil, "it is of another version: it lacks "+text.Some(few, lacks, ", "), apply)
	} else {
		k.add(subject, err, "it is of this version", "")
	}
}

// right is a right that the user or the operator needs.
type right struct {
	verb              string
	kind              *source.Kind
	subresource, name string // Without a name it is the right for all objects.
}

// denied lists those of the rights that the API server denies. subject is who needs them, as a review of this kind names them.
func denied(
	ctx context.Context, src *source.Source, review *source.Kind, subject map[string]any, namespace string, rights []right,
) (all []string, err error) {
	for _, r := range rights {
		of, spec := r.kind.Resource, maps.Clone(subject)
		spec["resourceAttributes"] = map[string]any{
			"namespace": text.When(r.kind.Namespaced, "%s", namespace), "verb": r.verb,
			"group": of.Group, "resource": of.Resource, "subresource": r.subresource, "name": r.name,
		}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(review.Resource.GroupVersion().WithKind(review.Name))
		if u, err = src.In("", review).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		if allowed, _, _ := unstructured.NestedBool(u.Object, "status", "allowed"); !allowed {
			all = append(all, r.verb+" "+text.JoinNonEmpty("/", of.Resource, r.subresource))
		}
	}
	return all, nil
}

// userRights checks what the user needs to see rollouts, and to steer them.
func (k *checker) userRights(ctx context.Context) {
	for _, verb := range []string{"list", "patch"} {
		var rights []right
		for _, kind := range append(slices.Clone(pausable), source.Node) {
			rights = append(rights, right{verb, kind, "", ""})
		}
		lacks, err := denied(ctx, k.src, source.OwnAccess, map[string]any{}, k.src.Namespace, rights)
		switch {
		case len(lacks) == 0:
			k.add("your rights", err, "you may "+verb+" rollouts, budgets and nodes", "")
		case verb == "patch": // Who only looks need not steer.
			k.all = append(k.all, checked{checkUnknown, "your rights", "you may not " + text.Or(lacks) + ", so you can't steer these", ""})
		default:
			k.add("your rights", nil, "you may not "+text.Or(lacks), "ask for a role that may list and watch these")
		}
	}
}

// operator checks the Deployment of the operator, and its version.
func (k *checker) operator(d *appsv1.Deployment) {
	subject, is, advice := "operator "+d.Namespace+"/"+d.Name, source.OperatorVersion(d), ""
	if advice = skew(k.plugin, is); d.Status.ReadyReplicas == 0 {
		advice = "kubectl describe pods -n " + d.Namespace + " -l " + metav1.FormatLabelSelector(d.Spec.Selector)
	}
	k.add(subject, nil, fmt.Sprintf("version %s, %d of %d ready", is, d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1)), advice)
}

// plansNamespace is where an operator has its Lease and the Jobs of Plans.
func plansNamespace(d *appsv1.Deployment) string {
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE" && e.Value != "" {
			return e.Value
		}
	}
	return source.PlansNamespace
}

// lease checks that a pod of the operator holds its Lease.
func (k *checker) lease(ctx context.Context, d *appsv1.Deployment) {
	name, namespace := d.Spec.Template.Labels[upgradev1.LabelController], plansNamespace(d)
	subject, logs := "lease "+namespace+"/"+name, "see its log: kubectl logs -n "+d.Namespace+" deploy/"+d.Name
	u, err := k.src.In(namespace, source.Lease).Get(ctx, name, metav1.GetOptions{})
	var spec coordinationv1.LeaseSpec
	if err == nil {
		spec = source.As[coordinationv1.Lease](u).Spec
	}
	holder := ptr.Deref(spec.HolderIdentity, "")
	ends := ptr.Deref(spec.RenewTime, metav1.MicroTime{}).Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		k.add(subject, err, "", "")
	case holder == "" || ends.Before(k.now):
		k.add(subject, nil, cmp.Or(holder, "its last holder")+" has not renewed it, so nothing is updated", logs)
	case !strings.HasPrefix(holder, d.Name+"-"):
		k.add(subject, nil, holder+" holds it, which is no pod of "+d.Namespace+"/"+d.Name, "stop the other operator, such as system-upgrade-controller")
	default:
		k.add(subject, nil, holder+" holds it", "")
	}
}

// operatorRights checks what the operator needs most. Its roles have more.
func (k *checker) operatorRights(ctx context.Context, d *appsv1.Deployment) {
	rights := []right{
		{"update", source.Lease, "", ""}, {"patch", source.Node, "", ""}, {"create", source.Pod, "eviction", ""}, {"patch", source.Budget, "status", ""},
		{"patch", source.Plan, "status", ""}, {"create", source.Job, "", ""}, {"update", source.DaemonSet, "status", ""}, {"create", source.Pod, "", ""},
		{"patch", source.NodeRollout, "status", ""},
	}
	lacks, err := denied(ctx, k.src, source.Access, accountOf(d), plansNamespace(d), rights)
	message, advice := "it may do what it needs", ""
	if len(lacks) > 0 {
		message, advice = "it may not "+text.Or(lacks), "apply the roles and bindings of version "+source.OperatorVersion(d)
	}
	k.add("rights of "+d.Namespace+"/"+d.Spec.Template.Spec.ServiceAccountName, err, message, advice)
}

// accountOf names the service account of a Deployment, as a review does.
func accountOf(d *appsv1.Deployment) map[string]any {
	return map[string]any{
		"user":   "system:serviceaccount:" + d.Namespace + ":" + cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"),
		"groups": []any{"system:serviceaccounts", "system:serviceaccounts:" + d.Namespace, "system:authenticated"},
	}
}

// policy checks that a policy is there, and that its binding makes it deny.
func (k *checker) policy(ctx context.Context, name string) {
	message, advice := "it does not deny", "apply the policies of this version: without them, a stolen token can change more than it should"
	_, errPolicy := k.src.In("", source.Policy).Get(ctx, name, metav1.GetOptions{})
	u, err := k.src.In("", source.PolicyBinding).Get(ctx, name, metav1.GetOptions{})
	if err = cmp.Or(errPolicy, err); apierrors.IsNotFound(err) {
		message, err = "the ValidatingAdmissionPolicy or its binding is not there", nil
	} else if err == nil {
		spec := source.As[admissionregistrationv1.ValidatingAdmissionPolicyBinding](u).Spec
		if spec.PolicyName == name && slices.Contains(spec.ValidationActions, admissionregistrationv1.Deny) {
			message, advice = "it is in force", ""
		}
	}
	k.add("policy "+name, err, message, advice)
}

// agent checks that the agents of a DaemonSet are ready.
func (k *checker) agent(d *appsv1.DaemonSet) {
	ready, desired, advice := d.Status.NumberReady, d.Status.DesiredNumberScheduled, ""
	if ready < desired {
		advice = "kubectl get pods -n " + d.Namespace + " -o wide -l " + metav1.FormatLabelSelector(d.Spec.Selector)
	}
	k.add("agents "+d.Namespace+"/"+d.Name, nil, fmt.Sprintf("%d of %d ready", ready, desired), advice)
}

// operatorVersion is the version of one Deployment of the operator.
type operatorVersion struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	// Skew says how the versions differ; empty if they work together.
	Skew string `json:"skew,omitempty"`
}

func newVersion(c command) *cobra.Command {
	var output flags.Output
	cmd := help("version",
		`Show the versions of the plugin and of the operator, and whether they work together.
The operator's is the tag of the image of Deployments with the label app.kubernetes.io/name=moult, or their label app.kubernetes.io/version.`,
		`  kubectl moult version
  kubectl moult version -o jsonpath='{.operators[*].version}'`)
	output.Add(cmd, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		plugin, operators := cmd.Root().Version, []operatorVersion{}
		rows := [][]string{{"COMPONENT", "VERSION", "NOTE"}, {"plugin", plugin, ""}}
		found, err := source.ReadLabelled[appsv1.Deployment](ctx, src, source.Deployment, "moult")
		for _, d := range found {
			is := source.OperatorVersion(&d)
			operators = append(operators, operatorVersion{d.Namespace, d.Name, is, skew(plugin, is)})
			rows = append(rows, []string{d.Namespace + "/" + d.Name, is, skew(plugin, is)})
		}
		switch {
		case err != nil:
			fmt.Fprintln(c.ErrOut, "The operator's version is not known:", err)
		case len(found) == 0:
			fmt.Fprintln(c.ErrOut, noOperator)
		}
		if !output.Structured() {
			return c.printTable(rows)
		}
		return output.PrintAs(c.Out, "Version", map[string]any{"plugin": plugin, "operators": operators})
	})
}

const noOperator = "no Deployment has the label app.kubernetes.io/name=moult"

// skew says how the plugin and the operator differ, if they may not work together: more than one minor version. Versions of builds between releases
// are not compared.
func skew(plugin, operator string) string {
	p, errPlugin := version.ParseSemantic(plugin)
	o, errOperator := version.ParseSemantic(operator)
	if errPlugin != nil || errOperator != nil || p.Major()+p.Minor() == 0 || o.Major()+o.Minor() == 0 ||
		p.Major() == o.Major() && p.Minor() <= o.Minor()+1 && o.Minor() <= p.Minor()+1 {
		return ""
	}
	older := "operator"
	if p.LessThan(o) {
		older = "plugin"
	}
	return fmt.Sprintf("the %s is older: use a plugin of v%d.%d, as the operator is", older, o.Major(), o.Minor())
}
