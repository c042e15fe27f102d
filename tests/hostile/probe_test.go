package hostile

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// The kinds of tests, and the size of a block of a flow.
const (
	exchange, upload, download = 1, 2, 3
	flowBlock                  = 64 << 10
)

// TestServerProbeLies: a client measures the path to a server that reports what cannot be.
func TestServerProbeLies(t *testing.T) {
	t.Parallel()
	at := func(ns, moved int64) []byte {
		return message(sample, uv(2), str("bytes"), iv(moved), str("ns"), iv(ns))
	}
	end := func(n int64) []byte {
		names := []string{"end", "rtt_ns", "min_rtt_ns", "mss", "pmtu", "segments", "retrans", "busy_ns", "rwnd_limited_ns", "sndbuf", "snd_wnd", "cwnd", "cpu_permille"}
		var all []byte
		for _, name := range names {
			all = append(all, cat(str(name), iv(n))...)
		}
		return message(sample, uv(uint64(len(names))), all)
	}
	const most = math.MaxInt64
	for name, says := range map[string][]byte{
		"moments after the end of time": cat(at(0, 0), at(most-200e6, 1), at(most-5, 2), end(1)),
		"all bytes at once":             cat(at(0, 0), at(1, most), at(2, most), end(most)),
		"no time":                       cat(at(0, 0), at(0, most), end(0)),
		"times that fall":               cat(at(7, 7), at(5, 9), end(1)),
		"below zero":                    cat(at(math.MinInt64, math.MinInt64), at(-1, -1), end(math.MinInt64)),
		"nothing but the end":           end(most),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried(t, server, "a probe: "+name, "a peer's numbers are clamped, and decide nothing beyond bounds")
			p := lure(t, "", func(l *line) { _, _ = io.Copy(io.Discard, l.r) })
			p.stream = func(l *line) { serveProbe(l, says) }
			began := time.Now()
			report, err := p.client(t, fxfer.Options{}).Probe(t.Context(), p.url, fxfer.ProbeOptions{Time: 3 * time.Second, Streams: 2, Bytes: 64 << 20})
			require.Less(t, time.Since(began), patience)
			if err != nil {
				return
			}
			_, err = json.Marshal(report)
			require.NoError(t, err)
			for _, f := range report.Flows {
				require.GreaterOrEqual(t, f.Bytes, int64(0))
				require.GreaterOrEqual(t, f.Segments, int64(0))
				require.GreaterOrEqual(t, f.BDP, int64(0))
			}
		})
	}
}

// serveProbe answers messages as it should, and reports something else of flows.
func serveProbe(l *line, says []byte) {
	for {
		kind, body := l.next()
		if kind != test || len(body) < 2 {
			return
		}
		size, _ := binary.Uvarint(body[1:])
		switch body[0] {
		case exchange:
			for msg := make([]byte, min(size, flowBlock)); ; {
				if _, err := io.ReadFull(l.r, msg); err != nil {
					return
				}
				if l.say(msg); msg[0] == 1 {
					break
				}
			}
		case upload:
			l.say(says)
			_, _ = io.Copy(io.Discard, l.r)
			return
		case download:
			l.say(append([]byte{1}, make([]byte, flowBlock-1)...), says)
		default:
			l.say(message(refuse, uv(codeUnsupported), str("no")))
			return
		}
	}
}
