package path

import (
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func report() *fxfer.ProbeReport {
	r := &fxfer.ProbeReport{
		Server: "nas.example.org:7433", Stall: true, Notes: []string{"a <b>note</b>"},
		Idle: probe.RTT{Count: 9, Min: 0.04, Median: 0.0405, P95: 0.0407, P99: 0.0407, Max: 0.0407}, Loaded: probe.RTT{Count: 9, Median: 0.08}, Grade: "B", Bloat: 0.04,
		TCP:       probe.TCP{SndMSS: 1448, WindowScaling: true, Congestion: "bbr", SACK: true, Timestamps: true, PMTU: 1500},
		Exchanges: []probe.Latency{{Size: 64 << 10, TLS: true, Count: 1, Median: 0.0807}, {Size: 64 << 10, TLS: true, Split: true, ClientND: true, ServerND: true, Count: 1, Median: 0.0799}},
	}
	for _, d := range []probe.Direction{probe.Up, probe.Down} {
		r.Flows = append(r.Flows, probe.Flow{Direction: d, Streams: 16, Goodput: 268e6, Segments: 68967, Retransmitted: 8543, Congestion: "bbr", Loss: 0.13, BDP: 1.35e6, SndWnd: 6.69e6, SndBuf: 25.2e6, RcvBuf: 10.8e6})
	}
	for i := range 50 {
		r.Series = append(r.Series, probe.Point{At: float64(i) / 10, Up: 268e6, RTT: 0.04})
	}
	r.Series[20].Up = 5e9
	return r
}

// No line of the report is wider than a terminal, and none ends within a part that fits.
func TestProbeText(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	printProbe(&text, report())
	for line := range strings.Lines(text.String()) {
		require.LessOrEqual(t, runewidth.StringWidth(strings.TrimSuffix(line, "\n")), 80, "%q", line)
	}
	require.Contains(t, text.String(), "\n"+`goodput up     268 Mbit/s with 16 streams, bbr,
               8,543 of 68,967 segments sent again (after slow start 13 %)
               BDP 1.35 MB, receiver's window 6.69 MB (full 0 % of the time),
               send buffer 25.2 MB (full 0 %), receive buffer 10.8 MB
`)
	require.Contains(t, text.String(), "\n 64 KiB  80.7 ms        -        -        -         -        -        -  79.9 ms\n")

	r := report()
	r.Choice = fxfer.ProbeChoice{Streams: 4, Congestion: "newreno"} // QUIC, whose streams have no buffers
	r.Transport, r.TCP = string(fxfer.TransportQUIC), probe.TCP{SndMSS: 1410, Congestion: "newreno"}
	r.Flows = []probe.Flow{{Direction: probe.Up, Streams: 1, Goodput: 1e9, Segments: 9, BDP: 5000, Congestion: "newreno"}}
	text.Reset()
	printProbe(&text, r)
	require.Contains(t, text.String(), "send would     begin with 4 streams, newreno\n")
	require.Contains(t, text.String(), "               BDP 5.00 kB\n")
	require.Contains(t, text.String(), "QUIC           payload of a packet 1410 bytes, newreno\n")
	require.NotContains(t, text.String(), "scaling")
}

// What a slow path left no time for is not shown as if it were nothing.
func TestProbeTextCutShort(t *testing.T) {
	t.Parallel()
	r := report()
	r.Flows = []probe.Flow{{Direction: probe.Up, Streams: 1, Goodput: 57.1e3, BDP: 601}}
	r.Exchanges = nil
	var text strings.Builder
	printProbe(&text, r)
	require.Contains(t, text.String(), "goodput up     57.1 kbit/s with 1 stream, BDP 601 B\n")
	for _, absent := range []string{"segments", "message", "a second"} {
		require.NotContains(t, text.String(), absent)
	}
}

// The page has a date, keys with figures, whole texts, and a scale that a spike does not set.
func TestProbePage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, writeProbePage(&b, report(), time.Date(2026, 11, 22, 17, 30, 0, 0, time.UTC)))
	page := b.String()
	for _, part := range []string{
		"<title>fxfer probe nas.example.org:7433</title>", "Measured 2026-11-22 17:30 UTC.", "<bdi>up</bdi></b> median 268 Mbit/s, highest 5.00 Gbit/s",
		"<bdi>down</bdi></b> nothing", "more than 300 Mbit/s", "<dd>a &lt;b&gt;note&lt;/b&gt;</dd>", "receive buffer 10.8 MB</dd>", `<td class="number">79.9 ms</td>`,
		`aria-label="Goodput over time. up: median 268 Mbit/s`,
	} {
		require.Contains(t, page, part)
	}
	require.NotContains(t, page, "ZgotmplZ", "the template rejects a value")
	require.NotContains(t, page, "<pre")

	b.Reset()
	require.NoError(t, writeProbePage(&b, &fxfer.ProbeReport{Server: "x"}, time.Now()), "nothing was measured")
	require.NotContains(t, b.String(), "<svg")
}
