//go:build !linux

package engine

import "syscall"

// limitSilence does nothing here: only Linux has the option. TCP keep-alives
// find a dead peer on connections that have nothing to send.
func limitSilence(syscall.RawConn) error { return nil }
