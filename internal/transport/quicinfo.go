package transport

import (
	"time"

	"github.com/quic-go/quic-go"
)

// quicMSS is about what a packet carries of a stream, bytes.
const quicMSS = 1410

// look is what was seen of a connection at one moment.
type look struct {
	at    time.Time
	stats quic.ConnectionStats
	info  Info
}

// Info returns the figures of the connection, for one of its streams: those of the others have its RTT only, so that sums over streams
// come out right.
func (c *quicConn) Info() (Info, bool) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.teller == nil && l.open[c] {
		l.teller = c
	}
	now := l.lookLocked(time.Now())
	if l.teller != c {
		return Info{Protocol: QUIC, State: now.State, Congestion: now.Congestion, RTT: now.RTT, MinRTT: now.MinRTT, RTTVar: now.RTTVar, SndMSS: now.SndMSS, PMTU: now.PMTU}, true
	}
	l.told = now
	now.BytesAcked -= min(now.BytesAcked, l.passed.BytesAcked)
	now.BytesSent -= l.passed.BytesSent
	now.BytesReceived -= l.passed.BytesReceived
	now.BytesRetrans -= min(now.BytesRetrans, l.passed.BytesRetrans)
	now.RetransSegs -= min(now.RetransSegs, l.passed.RetransSegs)
	now.DataSegs -= l.passed.DataSegs
	now.BusyTime -= l.passed.BusyTime
	return now, true
}

// flightEvery is the least time between two looks from which what is in flight is reckoned.
const flightEvery = 20 * time.Millisecond

// lookLocked asks quic-go. It does not tell what is in flight: that is taken to be the congestion window while Writes wait, and otherwise what
// was sent in the last round trip.
func (l *link) lookLocked(now time.Time) Info {
	passed := now.Sub(l.looked.at)
	if !l.looked.at.IsZero() && passed < flightEvery {
		return l.looked.info
	}
	s := l.conn.ConnectionStats()
	waiting := int(l.writing.Load())
	before := l.looked
	i := Info{
		Protocol: QUIC, State: "established", Congestion: quicCongestion,
		RTT: s.SmoothedRTT, MinRTT: s.MinRTT, RTTVar: s.MeanDeviation,
		SndMSS: quicMSS, Cwnd: int(s.CongestionWindow), NotSent: waiting,
		BytesSent: s.BytesSent, BytesReceived: s.BytesReceived, BytesRetrans: s.BytesLost,
		RetransSegs: s.PacketsLost, DataSegs: s.PacketsSent,
		BusyTime: before.info.BusyTime, WindowScaling: true, SACK: true, Timestamps: true,
	}
	if !before.at.IsZero() {
		sent := s.BytesSent - before.stats.BytesSent
		i.DeliveryRate = float64(sent) / passed.Seconds()
		flight := i.DeliveryRate * s.SmoothedRTT.Seconds()
		if sent > 20*quicMSS || waiting > 0 { // not only acknowledgements
			i.InFlight = int(min(flight, float64(s.CongestionWindow)))
			i.BusyTime += passed
		}
	}
	i.BytesAcked = s.BytesSent - min(s.BytesSent, s.BytesLost+uint64(i.InFlight))
	i.BytesAcked = max(i.BytesAcked, before.info.BytesAcked)
	l.looked = look{at: now, stats: s, info: i}
	return i
}
