package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Limits of kernels in use.
var (
	stockLinux = kernelLimits{SndAuto: 4 * mib, RcvAuto: 6 * mib, SndMax: 212992, RcvMax: 212992, Bookkeeping: true}
	newLinux   = kernelLimits{SndAuto: 4 * mib, RcvAuto: 32 * mib, SndMax: 4 * mib, RcvMax: 4 * mib, Bookkeeping: true}
	tunedDTN   = kernelLimits{SndAuto: 1 << 30, RcvAuto: 1 << 30, SndMax: 1<<31 - 1, RcvMax: 1<<31 - 1, Bookkeeping: true}
	// maxButNoAuto has a larger mem_max, but the autotuning was forgotten.
	maxButNoAuto = kernelLimits{SndAuto: 4 * mib, RcvAuto: 6 * mib, SndMax: 64 * mib, RcvMax: 64 * mib, Bookkeeping: true}
	macOS        = kernelLimits{SndAuto: 4 * mib, RcvAuto: 4 * mib, SndMax: 8 * mib, RcvMax: 8 * mib}
	windows      = kernelLimits{}
)

func admin(l kernelLimits) kernelLimits {
	l.Force = true
	return l
}

func TestWindowFor(t *testing.T) {
	path := func(rtt time.Duration, gbit float64, streams int) Path {
		return Path{RTT: rtt, Rate: gbit * 1e9, Streams: streams}
	}
	var (
		lan   = path(200*time.Microsecond, 10, 1)
		wan   = path(50*time.Millisecond, 1, 1)  // 12.5 MB in flight
		wan8  = path(50*time.Millisecond, 1, 8)  // 1.6 MB a stream
		fat8  = path(50*time.Millisecond, 10, 8) // 15.6 MB a stream
		fat1  = path(50*time.Millisecond, 10, 1)
		first = Path{RTT: 50 * time.Millisecond}
	)
	const least = leastSend / 2 / 2 * 3 // Linux doubles a request and uses two thirds of it for payload
	tests := []struct {
		name   string
		path   Path
		limits kernelLimits
		want   decision
	}{
		{"stock, short path: leave", lan, stockLinux, decision{}},
		{"stock, long path: the cap is below autotuning", wan, stockLinux, decision{}},
		{"stock, unknown path", Path{}, stockLinux, decision{}},
		{"stock and privilege: force what the path wants", wan, admin(stockLinux), decision{snd: least, rcv: 12500000, force: true}},
		{"stock and privilege, enough streams: only the send buffer", wan8, admin(stockLinux), decision{snd: least, force: true}},
		{"stock and privilege, short path", lan, admin(stockLinux), decision{snd: least, force: true}},
		{"stock and privilege, unknown path", Path{}, admin(stockLinux), decision{snd: least, force: true}},
		{"new, long path: the send buffer gains, the receive buffer would lose", wan, newLinux, decision{snd: 4 * mib}},
		{"new, enough streams: the send buffer all the same", wan8, newLinux, decision{snd: 4 * mib}},
		{"new, fat path", fat8, newLinux, decision{snd: 4 * mib}},
		{"new, rate and streams unknown", first, newLinux, decision{snd: 4 * mib}},
		{"new and privilege, fat path: autotuning receives enough", fat8, admin(newLinux), decision{snd: least, force: true}},
		{"new and privilege, one stream: bounded", fat1, admin(newLinux), decision{snd: 32 * mib, rcv: 32 * mib, force: true}},
		{"new, unknown path", Path{}, newLinux, decision{snd: 4 * mib}},
		{"a little more than autotuning: leave", path(55*time.Millisecond, 10, 8), admin(kernelLimits{RcvAuto: 32 * mib, Bookkeeping: true}), decision{}},
		{"a path without bounds", Path{RTT: 100 * time.Hour, Rate: 1e15}, admin(newLinux), decision{snd: 32 * mib, rcv: 32 * mib, force: true}},
		{"tuned for data transfer: nothing to add", fat1, tunedDTN, decision{}},
		{"tuned and privilege: nothing to add", fat1, admin(tunedDTN), decision{}},
		{"large caps, small autotuning", wan, maxButNoAuto, decision{snd: least, rcv: 12500000}},
		{"large caps, bounded", fat1, maxButNoAuto, decision{snd: 32 * mib, rcv: 32 * mib}},
		{"macOS, short path", lan, macOS, decision{snd: 8 * mib}},
		{"macOS, long path", wan, macOS, decision{snd: 8 * mib, rcv: 8 * mib}},
		{"macOS, enough streams", wan8, macOS, decision{snd: 8 * mib}},
		{"nothing known of the system", fat1, windows, decision{}},
		{"nothing known at all", Path{}, windows, decision{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, windowFor(test.path, test.limits))
		})
	}
}

func TestWindowsOf(t *testing.T) {
	require.Equal(t,
		stream.Windows{SndBuf: 87040, RcvBuf: 131072, SndCap: 4 * mib / 3 * 2, RcvCap: 3 * mib},
		windowsOf(decision{}, 87040, 131072, stockLinux), "autotuned: the cap is where it ends")
	require.Equal(t,
		stream.Windows{SndBuf: 8 * mib, RcvBuf: 131072, SndFixed: true, SndCap: 8 * mib / 3 * 2, RcvCap: 16 * mib},
		windowsOf(decision{snd: 4 * mib}, 8*mib, 131072, newLinux))
	require.Equal(t,
		stream.Windows{SndBuf: 128 * kib, RcvBuf: 128 * kib, SndFixed: true, RcvFixed: true, SndCap: 64 * kib, RcvCap: 64 * kib},
		windowsOf(decision{snd: 64 * kib, rcv: 64 * kib, exact: true}, 128*kib, 128*kib, newLinux))
	require.Equal(t, stream.Windows{}, windowsOf(decision{}, 0, 0, windows))
}
