// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"moult.dev/moult/test/bottlerocket/state"
)

const (
	// socketMode and socketGroup are the rights to the socket, which are all the authentication there is.
	socketMode  = 0o660
	socketGroup = 274
)

// serveAPI serves the Update API.
func (h host) serveAPI() error {
	path := h.Path(state.APISocket)
	listener, err := listen(path)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		err = os.Chown(path, -1, socketGroup)
	}
	if err := errors.Join(err, os.Chmod(path, socketMode)); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /os", h.getOS)
	mux.HandleFunc("GET /updates/status", h.getStatus)
	for path, command := range map[string]string{
		"refresh-updates": "refresh", "prepare-update": "prepare", "activate-update": "activate", "deactivate-update": "deactivate",
	} {
		mux.HandleFunc("POST /actions/"+path, func(w http.ResponseWriter, _ *http.Request) { h.postCommand(w, command) })
	}
	mux.HandleFunc("POST /actions/reboot", h.postReboot)
	server := &http.Server{Handler: h.faulty(mux), ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// listen listens at a socket, in place of one that is there from before.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// faulty is what is wrong with all requests.
func (h host) faulty(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case h.Has(state.APIHangs):
			<-r.Context().Done()
		case h.Has(state.APIDrops):
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// fail answers with plain text.
func fail(w http.ResponseWriter, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintf(w, format, args...)
}

func answer(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, "Unable to serialize response: %v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// getOS says what the host runs: all of it, or the fields that begin with ?prefix=, with or without "os.".
func (h host) getOS(w http.ResponseWriter, r *http.Request) {
	disk, err := h.Disk()
	if err != nil {
		fail(w, http.StatusInternalServerError, "Unable to get OS release data: %v", err)
		return
	}
	image := disk.Running()
	fields := map[string]string{
		"pretty_name": fmt.Sprintf("Bottlerocket OS %s (%s)", image.Version, image.Variant),
		"variant_id":  image.Variant, "version_id": image.Version, "build_id": state.BuildID, "arch": image.Arch,
	}
	if r.URL.Query().Has("prefix") {
		prefix := r.URL.Query().Get("prefix")
		if prefix == "" {
			fail(w, http.StatusBadRequest, "Input 'prefix' cannot be empty")
			return
		}
		if !strings.HasPrefix(prefix, "os") {
			prefix = "os." + prefix
		}
		maps.DeleteFunc(fields, func(name, _ string) bool {
			return !strings.HasPrefix("os.", prefix) && !strings.HasPrefix("os."+name, prefix)
		})
	}
	answer(w, fields)
}

func (h host) getStatus(w http.ResponseWriter, _ *http.Request) {
	lock, err := h.openLock()
	if err != nil {
		fail(w, http.StatusInternalServerError, "Unable to open update lock file: %v", err)
		return
	}
	defer lock.Close()
	if err := h.lock(lock, unix.LOCK_SH); err != nil {
		fail(w, http.StatusLocked, "Unable to obtain shared lock for reading update status: Resource temporarily unavailable (os error 11)")
		return
	}
	status, err := h.readStatus()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fail(w, http.StatusNotFound, "Update status is uninitialized, refresh-updates to initialize it")
	case err != nil, h.Has(state.Status500):
		fail(w, http.StatusInternalServerError, "Update dispatcher failed")
	case h.Has(state.StatusTruncated):
		data, _ := json.Marshal(status)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		answer(w, status)
	}
}

// postCommand has a command begun. Whether it is allowed is known at once, and what comes of it later, in the status.
func (h host) postCommand(w http.ResponseWriter, command string) {
	if h.Has(state.Command500) {
		fail(w, http.StatusInternalServerError, "Update dispatcher failed")
		return
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"thar-be-updates", command}
	err := cmd.Run()
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		fail(w, http.StatusInternalServerError, "Unable to start the update dispatcher: %v ", err)
		return
	}
	switch exit.ExitCode() {
	case codeLockHeld:
		fail(w, http.StatusLocked, "Update lock held")
	case codeDisallowed:
		fail(w, http.StatusConflict, "Update action not allowed according to update state")
	case codeNoUpdate:
		fail(w, http.StatusNotFound, "Previously chosen Update no longer exists")
	case codeNoStaged:
		fail(w, http.StatusNotFound, "No update image applied to staging partition")
	default:
		fail(w, http.StatusInternalServerError, "Update dispatcher failed")
	}
}

func (h host) postReboot(w http.ResponseWriter, r *http.Request) {
	outcome, err := h.order(order{Verb: verbReboot, CheckInhibitors: true})
	switch {
	case err != nil:
		fail(w, http.StatusInternalServerError, "Unable to start shutdown: %v", err)
	case outcome.Code != 0:
		fail(w, http.StatusInternalServerError, "Failed to reboot, exit code: %d, stderr: %s", outcome.Code, outcome.Stderr)
	case h.Has(state.RebootUnanswered):
		<-r.Context().Done()
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
