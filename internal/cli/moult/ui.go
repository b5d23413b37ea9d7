// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"moult.dev/moult/internal/cli/source"
)

func newUI(c command) *cobra.Command {
	cmd := help("ui",
		`Show rollouts, nodes and budgets as live web pages.
A web server on this machine's loopback address shows what you may read with your kubeconfig. It ends with Ctrl-C.`,
		`  kubectl moult ui
  kubectl moult ui --port 9000 --browser=false`)
	port := cmd.Flags().Int("port", 8090, "Port on the loopback address; 0 is any free one.")
	browser := cmd.Flags().Bool("browser", true, "Open the page in the browser.")
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		return c.serve(ctx, src, *port, *browser)
	})
}

func (c *command) serve(ctx context.Context, src *source.Source, port int, browser bool) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // It returns at once.
	if err != nil {
		return fmt.Errorf("listening, %w (--port chooses another port)", err)
	}
	pages := NewPages(c.clock, src)
	server := &http.Server{Handler: onlyLocal(listener.Addr().(*net.TCPAddr).Port, pages.Server), ReadHeaderTimeout: 10 * time.Second}
	interrupted := ctx.Err
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()
	defer server.Close()
	group.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serving pages, %w", err))
		}
	})
	address := "http://" + listener.Addr().String() + "/"
	fmt.Fprintf(c.Out, "The page is at %s until Ctrl-C.\n", address)
	if browser {
		open(ctx, address)
	}
	if err = pages.Run(ctx); interrupted() != nil {
		return nil
	}
	return err
}

// onlyLocal refuses requests that name another host: a page of another site may have made them, by a name that it made lead here.
func onlyLocal(port int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, at, err := net.SplitHostPort(r.Host)
		if err != nil || at != strconv.Itoa(port) || host != "localhost" && host != "127.0.0.1" {
			http.Error(w, "Only requests to localhost are answered.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// open opens a page in the browser, if there is one.
func open(ctx context.Context, address string) {
	opener := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if opener == nil {
		opener = []string{"xdg-open"}
	}
	_ = exec.CommandContext(ctx, opener[0], append(opener[1:], address)...).Start() // If it fails, the address was printed.
}
