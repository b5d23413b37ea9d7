// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// result of one check.
type checkResult string

const (
	checkOK      checkResult = "OK"
	checkProblem checkResult = "Problem"
	checkUnknown checkResult = "Unknown" // It may not be read, or does not matter for now.
)

// checked is one line of check.
type checked struct {
	Result  checkResult `json:"result"`
	Subject string      `json:"subject"`
	Message string      `json:"message"`
	// Advice says what to do.
	Advice string `json:"advice,omitempty"`
}

// checker makes the checks.
type checker struct {
	src    *source.Source
	now    time.Time
	plugin string
	wanted []*apiextensionsv1.CustomResourceDefinition
	all    []checked
}

func newCheck(c command) *cobra.Command {
	var output flags.Output
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the installation: your rights and the operator's, definitions, policies, agents, the Lease",
		Long: `Check the installation: your rights and the operator's, definitions, policies, agents, the Lease. Each problem has a line that says what to do.
It exits with 1 if there is a problem. What you may not read is unknown, and no problem.`,
		Example: `  kubectl moult check
  kubectl moult check --as=system:serviceaccount:ci:deployer`,
		Args: cobra.NoArgs,
	}
	output.Add(cmd, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		wanted, err := crd.Definitions()
		if err != nil {
			return fmt.Errorf("reading the definitions of this program, %w", err)
		}
		k := &checker{src: src, now: c.clock.Now(), plugin: cmd.Root().Version, wanted: wanted}
		k.run(ctx)
		if output.Structured() {
			err = output.Print(c.Out, struct {
				metav1.TypeMeta `json:",inline"`
				Checks          []checked `json:"checks"`
			}{outputType("Check"), k.all})
		} else {
			err = c.print(drawChecked(k.all))
		}
		problems := len(slices.DeleteFunc(slices.Clone(k.all), func(r checked) bool { return r.Result != checkProblem }))
		if err == nil && problems > 0 {
			err = errors.New(text.Count(problems, "problem") + " found")
		}
		return err
	})
}

func drawChecked(all []checked) (l text.Lines) {
	symbols := map[checkResult]text.Piece{checkOK: text.Green.Of("✓ "), checkProblem: text.Red.Of("✗ "), checkUnknown: text.Yellow.Of("? ")}
	for _, r := range all {
		l.Add(symbols[r.Result], text.Bold.Of(r.Subject), text.Plain.Of(": "+r.Message))
		if r.Advice != "" {
			l.Add(text.Dim.Of("  → " + r.Advice))
		}
	}
	return l
}

func (k *checker) add(result checkResult, subject, message, advice string) {
	k.all = append(k.all, checked{result, subject, message, advice})
}

// unread adds that something could not be read.
func (k *checker) unread(subject string, err error) {
	k.add(checkUnknown, subject, "not known: "+err.Error(), "")
}

func (k *checker) run(ctx context.Context) {
	k.definitions(ctx)
	k.userRights(ctx)
	operators, err := k.src.ReadOperators(ctx)
	switch {
	case err != nil:
		k.unread("operator", err)
	case len(operators) == 0:
		k.add(checkProblem, "operator", "no Deployment has the label app.kubernetes.io/name=moult", "install it, unless it runs outside of the cluster")
	}
	k.src.Namespace = ""
	found, _ := k.src.ReadRollouts(ctx, source.Target{}) // Without the right to list them, fewer rights of the operator are checked.
	for i := range operators {
		k.operator(&operators[i])
		k.lease(ctx, &operators[i])
		k.operatorRights(ctx, &operators[i], &found)
	}
	k.policy(ctx, "moult-controller", len(operators) > 0)
	agents, err := k.src.ReadAgents(ctx)
	if err != nil {
		k.unread("agents", err)
	}
	for i := range agents {
		k.agent(&agents[i])
	}
	k.policy(ctx, "moult-agent", len(agents) > 0 || slices.ContainsFunc(found.NodeRollouts, func(r v1alpha1.NodeRollout) bool { return r.Spec.HostUpdate != nil }))
}

// definitions compares the CustomResourceDefinitions with those of this version.
func (k *checker) definitions(ctx context.Context) {
	const apply = "apply the CustomResourceDefinitions of version "
	good := 0
	for _, want := range k.wanted {
		have := &apiextensionsv1.CustomResourceDefinition{}
		u, err := k.src.In("", source.Definition).Get(ctx, want.Name, metav1.GetOptions{})
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, have)
		}
		if apierrors.IsNotFound(err) {
			k.add(checkProblem, "definition "+want.Name, "it is not there", apply+k.plugin)
			continue
		}
		if err != nil {
			k.unread("definition "+want.Name, err)
			continue
		}
		if lacks := crd.Missing(want, have, ""); len(lacks) > 0 {
			k.add(checkProblem, "definition "+want.Name, "it is of another version: it lacks "+text.Some(few, lacks, ", "), apply+k.plugin)
			continue
		}
		good++
	}
	if good > 0 {
		k.add(checkOK, "definitions", fmt.Sprintf("%d of %d are of this version", good, len(k.wanted)), "")
	}
}

// userRights checks what the user needs for the commands of this plugin.
func (k *checker) userRights(ctx context.Context) {
	kinds := append(slices.Clone(pausable), source.Node, source.Pod)
	for _, verb := range []string{"list", "patch"} {
		var denied []string
		for _, kind := range kinds {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: k.access(kind, verb, "", k.src.Namespace)}}
			if err := k.src.Review(ctx, source.OwnAccess, review); err != nil {
				k.unread("your rights", err)
				return
			}
			if !review.Status.Allowed && (verb == "list" || kind != source.Pod) {
				denied = append(denied, kind.Resource.Resource)
			}
		}
		all := text.Or(denied)
		switch {
		case len(denied) == 0:
			k.add(checkOK, "your rights", "you may "+verb+" rollouts, budgets and nodes", "")
		case verb == "list":
			k.add(checkProblem, "your rights", "you may not list "+all, "ask for a role that may list and watch these")
		default:
			k.add(checkUnknown, "your rights", "you may not patch "+all, "without that, you can't steer these; ask for it if you have to")
		}
	}
}

func (*checker) access(kind *source.Kind, verb, subresource, namespace string) *authorizationv1.ResourceAttributes {
	if !kind.Namespaced {
		namespace = ""
	}
	r := kind.Resource
	return &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: subresource}
}

// operator checks the Deployment of the operator, and its version.
func (k *checker) operator(d *appsv1.Deployment) {
	subject, is := "operator "+d.Namespace+"/"+d.Name, source.OperatorVersion(d)
	switch differs := skew(k.plugin, is); {
	case d.Status.ReadyReplicas == 0:
		k.add(checkProblem, subject, "no pod of it is ready", "kubectl describe pods -n "+d.Namespace+" -l app.kubernetes.io/name=moult")
	case differs != "":
		k.add(checkProblem, subject, "version "+is+", this plugin is "+k.plugin, differs)
	default:
		k.add(checkOK, subject, fmt.Sprintf("version %s, %d of %d ready", is, d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1)), "")
	}
}

// plansNamespace is where an operator has its Lease and the Jobs of Plans.
func plansNamespace(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE" && e.Value != "" {
				return e.Value
			}
		}
	}
	return source.PlansNamespace
}

// lease checks that a pod of the operator holds its Lease.
func (k *checker) lease(ctx context.Context, d *appsv1.Deployment) {
	name, namespace := d.Spec.Template.Labels[upgradev1.LabelController], plansNamespace(d)
	subject, logs := "lease "+namespace+"/"+name, "see its log: kubectl logs -n "+d.Namespace+" deploy/"+d.Name
	u, err := k.src.In(namespace, source.Lease).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		k.unread(subject, err)
		return
	}
	var spec coordinationv1.LeaseSpec
	if err == nil {
		spec = source.As[coordinationv1.Lease](u).Spec
	}
	holder := ptr.Deref(spec.HolderIdentity, "")
	ends := ptr.Deref(spec.RenewTime, metav1.MicroTime{}).Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second)
	switch {
	case holder == "":
		k.add(checkProblem, subject, "no operator holds it, so nothing is updated", logs)
	case ends.Before(k.now):
		k.add(checkProblem, subject, holder+" has not renewed it in time, so nothing is updated", logs)
	case !strings.HasPrefix(holder, d.Name+"-"):
		k.add(checkProblem, subject, holder+" holds it, which is no pod of "+d.Namespace+"/"+d.Name, "stop the other operator, such as system-upgrade-controller")
	default:
		k.add(checkOK, subject, holder+" holds it", "")
	}
}

// operatorRights checks what the operator needs most for the rollouts that there are. The role of config/rbac has more.
func (k *checker) operatorRights(ctx context.Context, d *appsv1.Deployment, found *source.Found) {
	account := d.Namespace + ":" + cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
	subject, plans := "rights of "+strings.Replace(account, ":", "/", 1), plansNamespace(d)
	needs := []*authorizationv1.ResourceAttributes{k.access(source.Lease, "update", "", plans), k.access(source.Node, "patch", "", ""), k.access(source.Budget, "patch", "status", "")}
	if len(found.Plans) > 0 {
		needs = append(needs, k.access(source.Plan, "patch", "status", plans), k.access(source.Job, "create", "", plans))
	}
	if len(found.DaemonSets) > 0 {
		needs = append(needs, k.access(source.DaemonSet, "patch", "status", ""), k.access(source.Pod, "create", "", ""), k.access(source.Pod, "delete", "", ""))
	}
	if len(found.NodeRollouts) > 0 {
		needs = append(needs, k.access(source.NodeRollout, "patch", "status", ""))
	}
	if len(found.Plans)+len(found.NodeRollouts) > 0 {
		needs = append(needs, k.access(source.Pod, "create", "eviction", ""))
	}
	if slices.ContainsFunc(found.NodeRollouts, func(r v1alpha1.NodeRollout) bool { return r.Spec.Replacement != nil }) {
		needs = append(needs, k.access(source.Node, "delete", "", ""))
	}
	var denied []string
	for _, of := range needs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + d.Namespace, "system:authenticated"}, ResourceAttributes: of,
		}}
		if err := k.src.Review(ctx, source.Access, review); err != nil {
			k.unread(subject, err)
			return
		}
		if !review.Status.Allowed {
			denied = append(denied, of.Verb+" "+text.JoinNonEmpty("/", of.Resource, of.Subresource))
		}
	}
	if len(denied) > 0 {
		k.add(checkProblem, subject, "it may not "+text.Or(denied), "apply the roles and bindings of version "+source.OperatorVersion(d))
		return
	}
	k.add(checkOK, subject, "it may do what the rollouts in the cluster need", "")
}

// policy checks that a policy is there, and that its binding makes it deny. One that is not needed may be missing.
func (k *checker) policy(ctx context.Context, name string, needed bool) {
	subject := "policy " + name
	_, errPolicy := k.src.In("", source.Policy).Get(ctx, name, metav1.GetOptions{})
	u, errBinding := k.src.In("", source.PolicyBinding).Get(ctx, name, metav1.GetOptions{})
	message := "its binding does not make it deny"
	switch err := cmp.Or(errPolicy, errBinding); {
	case apierrors.IsNotFound(err) && !needed:
		return
	case apierrors.IsNotFound(err):
		message = "the ValidatingAdmissionPolicy or its binding is not there"
	case err != nil:
		k.unread(subject, err)
		return
	default:
		if spec := source.As[admissionv1.ValidatingAdmissionPolicyBinding](u).Spec; spec.PolicyName == name && slices.Contains(spec.ValidationActions, admissionv1.Deny) {
			k.add(checkOK, subject, "it is in force", "")
			return
		}
	}
	k.add(checkProblem, subject, message, "apply the policies of this version: without them, a stolen token can change more than it should")
}

// agent checks that the agents of a DaemonSet are ready.
func (k *checker) agent(d *appsv1.DaemonSet) {
	subject, message := "agents "+d.Namespace+"/"+d.Name, fmt.Sprintf("%d of %d ready", d.Status.NumberReady, d.Status.DesiredNumberScheduled)
	if d.Status.NumberReady < d.Status.DesiredNumberScheduled {
		k.add(checkProblem, subject, message, "kubectl get pods -n "+d.Namespace+" -o wide -l "+metav1.FormatLabelSelector(d.Spec.Selector))
		return
	}
	k.add(checkOK, subject, message, "")
}
