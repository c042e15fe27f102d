package doctor

import (
	"math"
	"time"

	"github.com/fxfer/fxfer/internal/path/plan"
)

const (
	plainMTU    = 1500      // Ethernet's, in bytes
	headers     = 52        // of IPv4, TCP and its timestamps, in bytes
	unscaled    = 65535     // the largest window without window scaling (RFC 7323, section 2)
	shortObject = 1_000_000 // bytes of a short transfer
	someLoss    = 1e-4      // fraction of segments, for cases with loss
	// bbrLossy is the fraction of the line that one BBR stream reached at 1 Gbit/s × 50 ms with
	// that loss.
	bbrLossy = 0.45
)

// with returns the path with another MTU and loss.
func with(p plan.Path, mtu int, loss float64) plan.Path {
	p.MTU, p.Loss = mtu, min(loss, plan.MaxLoss)
	return p
}

// through is the goodput in bit/s that a window of the given bytes allows.
func through(p plan.Path, window int64) float64 { return min(p.Goodput(), p.Ceiling(window)) }

// streams is how many windows add up to the BDP.
func streams(p plan.Path, window int64) int { return int(math.Ceil(p.BDP() / float64(max(window, 1)))) }

// rcvWindow and sndWindow return the payload that a buffer holds, whose size is as the kernel
// counts. The fractions are those that internal/transport measured.
func rcvWindow(buffer int64) int64 { return min(buffer/2, plan.MaxWindow) }
func sndWindow(buffer int64) int64 { return buffer / 3 * 2 }

// memoryCap is the largest buffer in bytes that one TCP stream should get: a quarter of what all
// streams may have before the kernel reduces their windows (tcp_mem's second value). The default
// of that is a sixteenth of the memory (tcp_init_mem in net/ipv4/tcp.c). A value that the host
// does not show sets no limit.
func (h *Host) memoryCap() int64 {
	most := int64(math.MaxInt32) // the kernel stores it in an int
	if h.Memory > 0 {
		most = min(most, h.Memory/64)
	}
	if pressure, ok := h.pressure(); ok {
		most = min(most, pressure/4)
	}
	return most
}

// pressure is the second value of tcp_mem in bytes.
func (h *Host) pressure() (int64, bool) {
	f, ok := h.fields("net.ipv4.tcp_mem")
	if !ok || len(f) != 3 || h.PageSize <= 0 {
		return 0, false
	}
	n, ok := number(f[1])
	return n * h.PageSize, ok && n > 0 && n < math.MaxInt64/h.PageSize
}

// short is the duration of a short transfer over a new connection with the given initial window:
// a round trip for the handshake, then slow start.
func short(p plan.Path, first int) time.Duration { return p.RTT + warm(p, first) }

// warm is the same without the handshake.
func warm(p plan.Path, first int) time.Duration {
	return plan.Transfer{Path: p, Streams: 1, Control: plan.BBR, Size: shortObject, Initial: first}.Time()
}

// shortRate is the goodput of a short transfer in bit/s.
func shortRate(d time.Duration) float64 { return shortObject * 8 / d.Seconds() }

// lossy is the goodput of one cubic stream in bit/s if it loses the given fraction of its
// segments.
func lossy(p plan.Path, loss float64) float64 {
	rate, _ := plan.Transfer{Path: with(p, p.MTU, loss), Streams: 1, Control: plan.Cubic}.EachRate()
	return rate
}
