//go:build !linux

package tcp

import "net"

// lateReader has nothing to do here.
type lateReader struct{}

func (lateReader) read(tcp *net.TCPConn, p []byte, _ int) (int, error) { return tcp.Read(p) }
