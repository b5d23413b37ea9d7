// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"moult.dev/moult/internal/cli/moult"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/dashboard"
)

// dashboardCommand is one call of moult dashboard.
type dashboardCommand struct {
	address, certFile, keyFile string
}

func newDashboardCommand() *cobra.Command {
	c := &dashboardCommand{}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve web pages about rollouts to those who may list them",
		Long: `Serve web pages about rollouts to those who may list them.

Each request needs a token of the cluster: as a bearer token, for example from a proxy that authenticates users, or from the login page. Who may
list all rollouts, budgets and nodes sees everything. Others see the rollouts that they may list. Nothing can be changed.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&c.address, "bind-address", ":8443", "Address to serve on.")
	cmd.Flags().StringVar(&c.certFile, "tls-cert-file", "", "File with the certificate. It is read again when it changes. Empty means a self-signed one.")
	cmd.Flags().StringVar(&c.keyFile, "tls-private-key-file", "", "File with the certificate's key.")
	cmd.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	return cmd
}

// inCluster is where the program runs, or the cluster of KUBECONFIG.
type inCluster struct{ config *rest.Config }

func (c inCluster) Load() (*rest.Config, string, error) { return c.config, metav1.NamespaceAll, nil }

func (c *dashboardCommand) run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster, %w", err)
	}
	src, err := source.Connect(inCluster{config})
	if err != nil {
		return err
	}
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	door, err := newAccess(config, connection)
	if err != nil {
		return err
	}
	certificate, err := c.certificate(ctx)
	if err != nil {
		return err
	}
	pages := moult.NewPages(clock.RealClock{}, src)
	pages.WithoutLogs()
	server := &http.Server{
		Addr: c.address, Handler: door.guard(pages.Server), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
	return pages.Serve(ctx, server, func() error { return server.ListenAndServeTLS("", "") })
}

// certificate returns what finds the certificate of a connection.
func (c *dashboardCommand) certificate(ctx context.Context) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.certFile != "" {
		watcher, err := certwatcher.New(c.certFile, c.keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate, %w", err)
		}
		go func() { _ = watcher.Start(ctx) }() // It ends with the context.
		return watcher.GetCertificate, nil
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("moult-dashboard", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("making a certificate, %w", err)
	}
	made, err := tls.X509KeyPair(certPEM, keyPEM)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &made, nil }, err
}

// cookie holds the token of a viewer who logged in by the page.
const cookie = "moult-token"

//go:embed login.html
var loginFile string

// loginPage asks for a token, and refusedPage says besides that the one that was sent is not accepted.
var loginPage, refusedPage = loginWith(""), loginWith(`<p role="alert">The token was refused, or the cluster can't check it now. ` +
	"It may be mistyped, expired, or made for another audience.</p>\n")

func loginWith(reason string) []byte {
	return []byte(strings.Replace(loginFile, "<!--reason-->", reason, 1))
}

// guard lets in whom the API server knows. Others get the login page.
func (a *access) guard(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		setCookie(w, r, r.PostFormValue("token"), 0)
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) { setCookie(w, r, "", -1) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		token, err := r.Cookie(cookie)
		loggedIn := err == nil && r.Header.Get("Authorization") == ""
		if loggedIn {
			r.Header.Set("Authorization", "Bearer "+token.Value)
		}
		viewer, err := a.user(r)
		if err != nil && !errors.Is(err, errRefused) {
			ctrl.Log.WithName("dashboard").Info("a token can't be checked", "error", err.Error())
			w.Header().Set("Refresh", "5") // Browsers load the page again.
			http.Error(w, "The API server can't be asked who you are. Try again in a moment.", http.StatusServiceUnavailable)
			return
		}
		if viewer == nil {
			w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			page := loginPage
			if err != nil && r.Header.Get("Authorization") != "" {
				page = refusedPage
				ctrl.Log.WithName("dashboard").Info("a token was refused", "error", err.Error())
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(page)
			return
		}
		next.ServeHTTP(w, dashboard.ForViewer(r, func(kind, namespace string) bool {
			return a.mayList(r.Context(), viewer, resources[kind], namespace)
		}, loggedIn))
	})
	return mux
}

// setCookie keeps the token in the browser, or removes it with a negative age, and goes to the first page.
func setCookie(w http.ResponseWriter, r *http.Request, token string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: token, MaxAge: age, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// resources are those of the kinds that the pages show.
var resources = map[string]schema.GroupVersionResource{
	source.Plan.Name: source.Plan.Resource, source.DaemonSet.Name: source.DaemonSet.Resource, source.NodeRollout.Name: source.NodeRollout.Resource,
	source.Budget.Name: source.Budget.Resource, source.Node.Name: source.Node.Resource,
}

// mayList asks the API server. A failure is a refusal.
func (a *access) mayList(ctx context.Context, viewer *authenticationv1.UserInfo, of schema.GroupVersionResource, namespace string) bool {
	allowed, err := a.allows(ctx, viewer, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: "list", Group: of.Group, Version: of.Version, Resource: of.Resource, Namespace: namespace,
	}})
	return err == nil && allowed
}
