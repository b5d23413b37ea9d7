// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import (
	"errors"
	"os/exec"
	"syscall"
)

var errLinux = errors.New("hosts are Linux machines")

func (place) enter() error { return errLinux }

func group(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}

func killInit(syscall.Signal) error { return errLinux }
