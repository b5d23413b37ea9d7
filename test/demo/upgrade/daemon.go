// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"
)

// report is what the daemon says of itself.
type report struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// service starts the daemon whenever it does not run, from the files that are current then.
func service(ctx context.Context) error {
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, current, "daemon")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		fmt.Println("the daemon ended:", cmd.Run())
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// daemon says which version runs, and then has nothing to do.
func daemon(ctx context.Context) error {
	version, _, err := own()
	if err != nil {
		return err
	}
	text, err := json.Marshal(report{PID: os.Getpid(), Version: version})
	if err != nil {
		return err
	}
	if err := os.WriteFile(running+".partial", text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(running+".partial", running); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// goodbye is how long the workload takes to end.
const goodbye = 2 * time.Second

// serve answers HTTP until it is asked to end, and a little longer.
func serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			hostname, _ := os.Hostname()
			_, _ = io.WriteString(connection, "HTTP/1.0 200 OK\r\n\r\n"+hostname+"\n")
			_ = connection.Close()
		}
	}()
	<-ctx.Done()
	time.Sleep(goodbye)
	return listener.Close()
}
