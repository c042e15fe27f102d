//go:build !linux

package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// soundSocket sends datagrams that may not be fragmented. This system has none.
type soundSocket struct{}

func openSound(netip.Addr, int) (*soundSocket, error) {
	return nil, fmt.Errorf("datagrams that may not be fragmented on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func (*soundSocket) port() int                         { return 0 }
func (*soundSocket) Close()                            {}
func (*soundSocket) deadline(time.Time)                {}
func (*soundSocket) send(netip.AddrPort, []byte) error { return errors.ErrUnsupported }
func (*soundSocket) read([]byte) (n int, from netip.AddrPort, err error) {
	return 0, from, errors.ErrUnsupported
}
func (*soundSocket) mtus() (named, device int) { return 0, 0 }
