//go:build !linux

package session

import (
	"runtime"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

func runDelay() time.Duration { return 0 }

func coresAllowed() int64 { return int64(runtime.NumCPU()) * 1000 }

// HostFacts describes this host. sockBuf is the size of socket buffers that was asked for, in
// bytes.
func HostFacts(name string, sockBuf int64) diagnose.Host {
	return diagnose.Host{Name: name, SockBuf: sockBuf}
}
