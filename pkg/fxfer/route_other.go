//go:build !linux

package fxfer

import "net"

func routeWindows(net.Addr) (initCwnd, initRwnd int64) { return 0, 0 }
