//go:build !linux

package tcp

import (
	"syscall"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

// infoOf has no figures here.
func infoOf(syscall.RawConn) (stream.Info, bool) { return stream.Info{}, false }
