// SPDX-License-Identifier: Apache-2.0

// Package audit reads an API server's audit log, which says what was asked of it by whom, whatever they say themselves.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Event is one request, as far as it matters here.
type Event struct {
	Stage      string    `json:"stage"`
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	Logged     time.Time `json:"stageTimestamp"`

	User User `json:"user"`
	// Impersonated is whom the user asked as, if that is another.
	Impersonated User `json:"impersonatedUser"`
	// Annotations say among others which role has allowed the request.
	Annotations map[string]string `json:"annotations"`

	Object struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`

	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// User is who sent a request.
type User struct {
	Username string `json:"username"`
}

// Watch reports whether the request goes on and on.
func (e *Event) Watch() bool { return e.Verb == "watch" }

// Refused reports whether the API server did not do what it was asked.
func (e *Event) Refused() bool { return e.Response.Code >= http.StatusBadRequest }

// Resource is what the request is about: a resource with its subresource, or a path where that is none.
func (e *Event) Resource() string {
	switch {
	case e.Object.Resource == "":
		return e.RequestURI
	case e.Object.Subresource == "":
		return e.Object.Resource
	default:
		return e.Object.Resource + "/" + e.Object.Subresource
	}
}

// Log is a log that is still being written.
type Log struct {
	file *os.File
	// begun is a line whose end was not written yet when it was read.
	begun []byte
}

// Open opens a log at its beginning.
func Open(path string) (*Log, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log, %w", err)
	}
	return &Log{file: file}, nil
}

// Close ends the reading.
func (l *Log) Close() error { return l.file.Close() }

// Read calls each for every request that has been logged since the last call and whose line contains what it is given,
// in the order of the log: of most requests when they ended, of a watch when it began.
func (l *Log) Read(containing string, each func(*Event)) error {
	reader := bufio.NewReaderSize(l.file, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			l.begun = append(l.begun, line...)
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the audit log, %w", err)
		}
		if len(l.begun) > 0 {
			line = append(l.begun, line...)
			l.begun = nil
		}
		if !bytes.Contains(line, []byte(containing)) {
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("reading the audit log, %w", err)
		}
		if e.Watch() == (e.Stage == "ResponseStarted") {
			each(&e)
		}
	}
}
