//go:build !linux

package gateway

import (
	"errors"
	"syscall"
)

// canWatchHalves says that the end of a client's side is taken for the end of
// the client here: only for Linux is it known how to tell them apart.
const canWatchHalves = false

func waitForReset(syscall.RawConn) error { return errors.ErrUnsupported }

func askOften(syscall.RawConn) {}
