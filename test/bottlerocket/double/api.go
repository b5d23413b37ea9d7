// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"moult.dev/moult/test/bottlerocket/state"
)

const (
	// socketMode and socketGroup are the rights to the socket, which are all the authentication there is.
	socketMode  = 0o660
	socketGroup = 274
)

// api is the Update API. It keeps the status of updates in memory, so a reboot loses it.
type api struct {
	host
	// lock is held while a command goes on, and while the status is read.
	lock   sync.RWMutex
	status *updateStatus
}

// updateStatus is what GET /updates/status answers.
type updateStatus struct {
	State     string         `json:"update_state"`
	Available []string       `json:"available_updates"`
	Chosen    *image         `json:"chosen_update"`
	Active    *partition     `json:"active_partition"`
	Staging   *partition     `json:"staging_partition"`
	Last      *commandResult `json:"most_recent_command"`
}

type image struct {
	Arch    string `json:"arch"`
	Version string `json:"version"`
	Variant string `json:"variant"`
}

type partition struct {
	Image      image `json:"image"`
	NextToBoot bool  `json:"next_to_boot"`
}

type commandResult struct {
	Type       string `json:"cmd_type"`
	Status     string `json:"cmd_status"`
	Timestamp  string `json:"timestamp"`
	ExitStatus int    `json:"exit_status"`
	Stderr     string `json:"stderr"`
}

// States of an update.
const (
	idle      = "Idle"
	available = "Available"
	staged    = "Staged"
	ready     = "Ready"
)

// serve serves the Update API.
func (a *api) serve() error {
	path := a.Path(state.APISocket)
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
	mux.HandleFunc("GET /os", a.getOS)
	mux.HandleFunc("GET /updates/status", a.getStatus)
	for path, command := range map[string]string{
		"refresh-updates": "refresh", "prepare-update": "prepare", "activate-update": "activate", "deactivate-update": "deactivate",
	} {
		mux.HandleFunc("POST /actions/"+path, func(w http.ResponseWriter, _ *http.Request) { a.begin(w, command) })
	}
	mux.HandleFunc("POST /actions/reboot", a.postReboot)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// listen listens at a socket, in place of one from before.
func listen(path string) (net.Listener, error) {
	_ = os.Remove(path)
	return net.Listen("unix", path)
}

// fail answers with plain text.
func fail(w http.ResponseWriter, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintf(w, format, args...)
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func (a *api) getOS(w http.ResponseWriter, _ *http.Request) {
	disk, err := a.Disk()
	if err != nil {
		fail(w, http.StatusInternalServerError, "Unable to get OS release data: %v", err)
		return
	}
	answer(w, map[string]string{"version_id": disk.Running, "variant_id": state.Variant})
}

func (a *api) getStatus(w http.ResponseWriter, _ *http.Request) {
	if !a.lock.TryRLock() {
		fail(w, http.StatusLocked, "Unable to obtain shared lock for reading update status: Resource temporarily unavailable (os error 11)")
		return
	}
	defer a.lock.RUnlock()
	if a.status == nil {
		fail(w, http.StatusNotFound, "Update status is uninitialized, refresh-updates to initialize it")
		return
	}
	answer(w, a.status)
}

// begin begins a command. Whether it is allowed is known at once. Its result is in the status later.
func (a *api) begin(w http.ResponseWriter, command string) {
	if !a.lock.TryLock() {
		fail(w, http.StatusLocked, "Update lock held")
		return
	}
	if err := a.start(); err != nil {
		a.lock.Unlock()
		fail(w, http.StatusInternalServerError, "Update dispatcher failed")
		return
	}
	from := map[string][]string{
		"refresh": {idle, available, staged, ready}, "prepare": {available, staged}, "activate": {staged}, "deactivate": {ready},
	}
	code, why := 0, ""
	switch s := a.status; {
	case !slices.Contains(from[command], s.State):
		code, why = http.StatusConflict, "Update action not allowed according to update state"
	case command == "prepare" && s.Chosen == nil:
		code, why = http.StatusNotFound, "Previously chosen Update no longer exists"
	}
	if code != 0 {
		a.lock.Unlock()
		fail(w, code, "%s", why)
		return
	}
	go func() {
		defer a.lock.Unlock()
		a.carryOut(command)
	}()
	w.WriteHeader(http.StatusNoContent)
}

// start makes the first status since the boot.
func (a *api) start() error {
	if a.status != nil {
		return nil
	}
	disk, err := a.Disk()
	if err != nil {
		return err
	}
	a.status = &updateStatus{State: idle, Available: []string{}, Active: &partition{imageOf(disk.Running), !disk.Next}}
	return nil
}

func imageOf(version string) image { return image{"x86_64", version, state.Variant} }

// carryOut does the work of a command by updog, and keeps how it ended.
func (a *api) carryOut(command string) {
	var stdout, stderr bytes.Buffer
	s, code := a.status, 0
	switch command {
	case "refresh":
		chosen, err := a.choose("")
		if err = errors.Join(err, a.Note("updog check-update", err)); err != nil {
			code = 1
			stderr.WriteString(err.Error())
			break
		}
		if s.Available, s.Chosen = []string{}, nil; chosen != nil {
			image := imageOf(chosen.Version)
			s.Available, s.Chosen = []string{chosen.Version}, &image
		}
		// What is staged or ready stays so.
		if s.State == idle || s.State == available {
			if s.State = idle; chosen != nil {
				s.State = available
			}
		}
	case "prepare":
		// It does not say what was chosen, and updog chooses by itself.
		if code = a.updog([]string{"update-image"}, &stdout, &stderr); code == 0 {
			s.Staging, s.State = &partition{Image: *s.Chosen}, staged
		}
	case "activate":
		if code = a.updog([]string{"update-apply"}, &stdout, &stderr); code == 0 {
			s.Staging.NextToBoot, s.Active.NextToBoot, s.State = true, false, ready
		}
	case "deactivate":
		if code = a.updog([]string{"update-revert"}, &stdout, &stderr); code == 0 {
			s.Staging.NextToBoot, s.Active.NextToBoot, s.State = false, true, staged
		}
	}
	s.Last = &commandResult{command, "Success", time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"), code, stderr.String()}
	if code != 0 {
		s.Last.Status = "Failed"
	}
}

func (a *api) postReboot(w http.ResponseWriter, r *http.Request) {
	outcome, err := a.order(order{CheckInhibitors: true})
	switch {
	case err != nil:
		fail(w, http.StatusInternalServerError, "Unable to start shutdown: %v", err)
	case outcome.Code != 0:
		fail(w, http.StatusInternalServerError, "Failed to reboot, exit code: %d, stderr: %s", outcome.Code, outcome.Stderr)
	case a.Has(state.RebootUnanswered):
		<-r.Context().Done()
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
