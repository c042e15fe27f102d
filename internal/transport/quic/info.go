package quic

import (
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

const (
	// mss is about what a packet carries of a stream, bytes.
	mss = 1410
	// headers is about what else is in it: short header 7, authentication tag 16, header of the
	// STREAM frame 9, bytes (RFC 9000, sections 17.3.1 and 19.8).
	headers = 32
)

// payloadOf is about what some packets carry of streams, bytes.
func payloadOf(bytes, packets uint64) uint64 { return bytes - min(bytes, packets*headers) }

// sampleEvery is the least time between two samples from which the bytes in flight are estimated.
const sampleEvery = 20 * time.Millisecond

// sample is the state of a connection at one moment.
type sample struct {
	at    time.Time
	stats quic.ConnectionStats
	info  stream.Info
}

// figures are the figures of a link. quic-go has them for the connection as a whole, so one of its
// streams reports them, and the others report only what is not a sum. When that stream closes,
// another one takes over. link.mu guards all fields.
type figures struct {
	reporter *Conn       // the stream that reports the figures
	reported stream.Info // by the reporter, the last time
	settled  stream.Info // by earlier reporters
	last     sample
	sent     sendings
	heard    time.Time // when the peer's last packet had come, as the samples show
}

// forgetLocked lets another stream report, if c was the reporter.
func (f *figures) forgetLocked(c *Conn) {
	if f.reporter == c {
		f.reporter, f.settled = nil, f.reported
	}
}

// Info returns the figures of the connection if this is its reporting stream. For other streams it
// returns the RTT and what else is not a sum, so that sums over all streams are right.
func (c *Conn) Info() (stream.Info, bool) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reporter == nil && l.open[c] {
		l.reporter = c
	}
	now := l.sampleLocked(time.Now())
	if l.reporter != c {
		return stream.Info{
			Protocol: stream.QUIC, State: now.State, Congestion: now.Congestion,
			RTT: now.RTT, MinRTT: now.MinRTT, RTTVar: now.RTTVar, SndMSS: now.SndMSS, PMTU: now.PMTU,
			NotSent: int(c.writing.Load()), Held: c.pacing.waits(),
		}, true
	}
	l.reported = now
	now.NotSent, now.Held = int(c.writing.Load()), c.pacing.waits()
	now.BytesAcked -= min(now.BytesAcked, l.settled.BytesAcked)
	now.BytesSent -= l.settled.BytesSent
	now.BytesReceived -= l.settled.BytesReceived
	now.Delivered -= min(now.Delivered, l.settled.Delivered)
	now.BytesRetrans -= min(now.BytesRetrans, l.settled.BytesRetrans)
	now.RetransSegs -= min(now.RetransSegs, l.settled.RetransSegs)
	now.DataSegs -= l.settled.DataSegs
	now.BusyTime -= l.settled.BusyTime
	return now, true
}

// sampleLocked asks quic-go for the state of the connection, if the last sample is old.
func (l *link) sampleLocked(now time.Time) stream.Info {
	if !l.last.at.IsZero() && now.Sub(l.last.at) < sampleEvery {
		return l.last.info
	}
	return l.takeLocked(now, l.conn.ConnectionStats())
}

// takeLocked takes a sample. quic-go does not report the bytes in flight. The estimate is what was
// sent in the last round trip, and no more than the congestion window.
func (l *link) takeLocked(now time.Time, s quic.ConnectionStats) stream.Info {
	before := l.last
	passed := now.Sub(before.at)
	i := stream.Info{
		Protocol: stream.QUIC, State: "established", Congestion: congestion,
		RTT: rttOf(&s), MinRTT: s.MinRTT, RTTVar: s.MeanDeviation,
		SndMSS: mss, Cwnd: int(s.CongestionWindow),
		BytesSent: s.BytesSent, BytesReceived: s.BytesReceived, BytesRetrans: s.BytesLost,
		RetransSegs: s.PacketsLost, DataSegs: s.PacketsSent,
		BusyTime: before.info.BusyTime, WindowScaling: true, SACK: true, Timestamps: true,
	}
	if !before.at.IsZero() {
		sent := s.BytesSent - before.stats.BytesSent
		i.DeliveryRate = float64(sent) / passed.Seconds()
		flight := i.DeliveryRate * s.SmoothedRTT.Seconds()
		if sent > 20*mss || l.writing.Load() > 0 { // more than acknowledgements
			i.InFlight = int(min(flight, float64(s.CongestionWindow)))
			i.BusyTime += passed
		}
	}
	i.BytesAcked = s.BytesSent - min(s.BytesSent, s.BytesLost+uint64(i.InFlight))
	i.BytesAcked = max(i.BytesAcked, before.info.BytesAcked)
	if s.PacketsReceived > before.stats.PacketsReceived {
		l.heard = now
	}
	silent := now.Sub(l.heard)
	l.sent.add(now, payloadOf(s.BytesSent, s.PacketsSent), silent+2*max(s.LatestRTT, s.SmoothedRTT))
	delivered, flying := l.sent.delivered(now, silent+s.LatestRTT, payloadOf(s.BytesLost, s.PacketsLost))
	i.Delivered, i.Flying = max(delivered/mss, before.info.Delivered), flying
	l.last = sample{at: now, stats: s, info: i}
	return i
}

// settledAfter is how many packets a connection has received when its smoothed RTT is no longer that
// of the handshake, which needs time of both processors.
const settledAfter = 32

// rttOf is the smoothed RTT of the path.
func rttOf(s *quic.ConnectionStats) time.Duration {
	if s.PacketsReceived < settledAfter {
		return min(s.SmoothedRTT, s.LatestRTT)
	}
	return s.SmoothedRTT
}

// sendings are what was sent until some moments of the last round trips, oldest first.
type sendings []sending

type sending struct {
	at    time.Time
	bytes uint64 // of payload
}

// add takes what was sent until now. It forgets what is older than keep, except for the youngest of
// that.
func (s *sendings) add(now time.Time, bytes uint64, keep time.Duration) {
	if n := len(*s); n > 0 { // packets smaller than usual headers
		bytes = max(bytes, (*s)[n-1].bytes)
	}
	*s = append(*s, sending{now, bytes})
	old := 0
	for old+1 < len(*s) && now.Sub((*s)[old+1].at) >= keep {
		old++
	}
	*s = append((*s)[:0], (*s)[old:]...)
}

// until is what was sent until a moment. Between two samples it grows evenly.
func (s sendings) until(at time.Time) uint64 {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].at.After(at) {
			continue
		}
		if i+1 == len(s) {
			return s[i].bytes
		}
		part := at.Sub(s[i].at).Seconds() / s[i+1].at.Sub(s[i].at).Seconds()
		return s[i].bytes + uint64(part*float64(s[i+1].bytes-s[i].bytes))
	}
	return 0
}

// delivered estimates what the peer has acknowledged: what was sent until so long ago, when the
// packet left that was acknowledged last, without what was lost. flying is the rest.
func (s sendings) delivered(now time.Time, ago time.Duration, lost uint64) (bytes uint64, flying int) {
	sent, then := s.until(now), s.until(now.Add(-ago))
	bytes = then - min(then, lost)
	return bytes, int(sent - min(sent, bytes+lost))
}
