//go:build !linux

package ftp

import "net"

// queued is not known here.
func queued(net.Listener) bool { return false }
