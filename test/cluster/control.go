// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// The supervisor is spoken to by HTTP over a socket in the registry:
//
//	GET  /machines             every machine's state
//	POST /machines             MachineOptions: adds one, answers with its state
//	POST /machines/{name}      {"verb": "reboot"}, answers with its new state
//	DELETE /machines/{name}    removes one that was added
//	POST /images               {"paths": [...]}
//	POST /stop                 ends the cluster
//
// A cluster that was started from a shell is controlled so from other processes, and a test controls its own cluster in the same way.

type (
	machineRequest struct {
		Verb string `json:"verb"`
	}
	imagesRequest struct {
		Paths []string `json:"paths"`
	}
)

// MachineState is what a supervisor knows of one machine.
type MachineState struct {
	Name   string `json:"name"`
	IP     string `json:"ip"`
	Zone   string `json:"zone"`
	BootID string `json:"bootID"`
	// PID is that of the machine's first process, as seen from outside, and zero if it is powered off.
	PID int `json:"pid"`
	// Upper is the directory of what the machine has written to its file system.
	Upper string `json:"upper"`
}

func (s *supervisor) serveControl() (io.Closer, error) {
	listener, err := net.Listen("unix", s.registry.socket(s.spec.ID))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	handle(mux, "GET /machines", func(context.Context, *http.Request, struct{}) ([]MachineState, error) {
		return s.machineStates(), nil
	})
	handle(mux, "POST /machines/{name}", func(ctx context.Context, r *http.Request, body machineRequest) (MachineState, error) {
		m, err := s.machine(r.PathValue("name"))
		if err != nil {
			return MachineState{}, err
		}
		return m.do(ctx, body.Verb)
	})
	handle(mux, "POST /machines", func(ctx context.Context, _ *http.Request, body MachineOptions) (MachineState, error) {
		return s.addMachine(ctx, body)
	})
	handle(mux, "DELETE /machines/{name}", func(_ context.Context, r *http.Request, _ struct{}) (struct{}, error) {
		return struct{}{}, s.removeMachine(r.PathValue("name"))
	})
	handle(mux, "POST /images", func(ctx context.Context, _ *http.Request, body imagesRequest) (struct{}, error) {
		s.mu.Lock()
		s.images = append(s.images, body.Paths...)
		s.mu.Unlock()
		return struct{}{}, s.importImages(ctx, body.Paths)
	})
	handle(mux, "POST /stop", func(context.Context, *http.Request, struct{}) (struct{}, error) {
		s.stop(errStopped)
		return struct{}{}, nil
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

// handle serves one kind of request, whose body and answer are JSON.
func handle[In, Out any](mux *http.ServeMux, pattern string, serve func(context.Context, *http.Request, In) (Out, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil && !errors.Is(err, io.EOF) {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := serve(r.Context(), r, in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(out)
	})
}

// controlClient speaks to the supervisor of one cluster.
type controlClient struct{ http *http.Client }

func newControlClient(socket string) controlClient {
	return controlClient{&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// call sends a request and decodes the answer into out, which may be nil.
func (c controlClient) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking the cluster's supervisor, %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(response.Body)
		return errors.New(string(bytes.TrimSpace(message)))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}
