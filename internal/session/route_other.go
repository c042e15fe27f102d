//go:build !linux

package session

import (
	"net"
)

func routeWindows(net.Addr) (initCwnd, initRwnd int64) { return 0, 0 }
