//go:build !linux

package tcp

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
)

// prepare refuses settings that this system does not have. Sizes are set on the connected socket.
func prepare(_ syscall.RawConn, cfg Config) error {
	if cfg.SockBuf < 0 {
		return fmt.Errorf("socket buffer of %d bytes", cfg.SockBuf)
	}
	if !cfg.automatic() {
		return setCongestion(nil, cfg.Congestion)
	}
	return nil
}

// ClampSegments does nothing here.
func ClampSegments(syscall.RawConn, int) {}

func setPacing(*net.TCPConn, float64) {}

func setLowWater(*net.TCPConn, int) {}

func setReadLowWater(*net.TCPConn, int) {}

// acknowledger does nothing: only Linux lets a program choose when to acknowledge.
type acknowledger struct{}

func newAcknowledger(*net.TCPConn) *acknowledger { return nil }

func (*acknowledger) acknowledge() {}

func setCongestion(_ syscall.RawConn, name string) error {
	return fmt.Errorf("%w %q on %s: %w", ErrCongestion, name, runtime.GOOS, errors.ErrUnsupported)
}

func chooseCongestion(*net.TCPConn, Path, bool) {}

// fixWindow sets both socket buffers. They are the windows here.
func fixWindow(tcp *net.TCPConn, size int) error {
	if err := tcp.SetWriteBuffer(size); err != nil {
		return err
	}
	return tcp.SetReadBuffer(size)
}

// enlarge requests the buffers of d. A refusal is no error.
func enlarge(tcp *net.TCPConn, d decision) {
	if d.snd > 0 {
		_ = tcp.SetWriteBuffer(d.snd)
	}
	if d.rcv > 0 {
		_ = tcp.SetReadBuffer(d.rcv)
	}
}

// keepWindow does nothing: only Linux moves a fixed window.
func keepWindow(*net.TCPConn, int) {}

func limitUnread(*net.TCPConn, int) {}

// bufferSizes knows nothing here.
func bufferSizes(*net.TCPConn) (snd, rcv int) { return 0, 0 }

// SetCork fails: TCP_NOPUSH of other systems does not send the rest when it is switched off.
func SetCork(*net.TCPConn, bool) error {
	return fmt.Errorf("TCP_CORK on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
