package client

import (
	"os"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// sessionStats is what the sockets of one or more sessions showed.
type sessionStats struct {
	path    session.PathStats
	carrier session.Transport
	reason  string          // why it was chosen
	links   int             // QUIC connections
	peer    diagnose.Sample // the last one, zero without any
	streams int
	sharing session.Sharing
	resent  int64
	raw     int64 // of the blocks that were compressed, bytes
	coded   int64

	cells            []diagnose.Cell
	sender, receiver diagnose.Host
	swallowed        *transport.BlackHoleError // the first
	connecting       time.Duration             // in vain, because of it
}

// merge adds the stats of a later session.
func (a *sessionStats) merge(b sessionStats) {
	retrans := a.path.Retrans
	a.streams = max(a.streams, b.streams)
	a.sharing.Add(b.sharing)
	a.resent += b.resent
	a.raw += b.raw
	a.coded += b.coded
	if b.path != (session.PathStats{}) {
		a.path, a.carrier, a.reason, a.links = b.path, b.carrier, b.reason, b.links
	}
	a.path.Retrans = retrans + b.path.Retrans
	if b.peer.At > 0 {
		a.peer = b.peer
	}
	if len(b.cells) > 0 {
		a.sender, a.receiver = b.sender, b.receiver
		a.append(b.cells...)
	}
}

// fill completes a report.
func (a *sessionStats) fill(r *session.Report, asked *diagnose.Asked) {
	r.Streams, r.Resent, r.Congestion = a.streams, a.resent, a.path.Congestion
	r.RTT, r.Retransmits = a.path.MinRTT, a.path.Retrans
	r.Transport, r.TransportReason, r.Connections = a.carrier, a.reason, a.links
	r.SendBuffer, r.RecvBuffer = int64(a.path.SndBuf), a.peer.RcvBuf
	if asked.Here != diagnose.Sender {
		r.SendBuffer, r.RecvBuffer = a.peer.SndBuf, int64(a.path.RcvBuf)
		r.Retransmits = a.peer.Retrans
	}
	r.Raw, r.Coded, r.Sharing = a.raw, a.coded, a.sharing
	if most, mean := diagnose.Peak(a.cells); mean > 0 {
		r.Peak = max(r.Goodput, min(r.Peak, r.Goodput*most/mean))
	}
	r.BDP = int64(r.Peak / 8 * r.RTT.Seconds())
	r.Timeline = a.cells
	if hole := a.swallowed; hole != nil {
		host := thisHost(0)
		asked.Connecting = &host
		before := diagnose.Cell{Length: a.connecting, Limiter: diagnose.BlackHole, Sender: diagnose.Sample{
			Retrans: int64(hole.Info.RetransSegs), PMTU: int64(hole.Size()), MinRTT: hole.Info.MinRTT,
		}}
		r.Timeline = append([]diagnose.Cell{before}, r.Timeline...)
	}
	r.Limits = diagnose.Judge(r.Timeline, &a.sender, &a.receiver, asked)
}

// thisHost describes this host, for the diagnosis.
func thisHost(sockBuf int) diagnose.Host {
	name, _ := os.Hostname() // for messages only
	return session.HostFacts(name, int64(sockBuf))
}

// maxMoments bounds the moments of a transfer of many sessions.
const maxMoments = 1024

// append adds moments. Where there are too many, pairs of them are joined.
func (a *sessionStats) append(cells ...diagnose.Cell) {
	a.cells = append(a.cells, cells...)
	for len(a.cells) > maxMoments {
		var joined []diagnose.Cell
		for pair := range slices.Chunk(a.cells, 2) {
			joined = append(joined, diagnose.Join(pair))
		}
		a.cells = joined
	}
}

// asked is what the user asked of a transfer, for its diagnosis. limit bounds it.
func (o *Options) asked(call *Transfer, limit *Throttle, sends bool) *diagnose.Asked {
	a := &diagnose.Asked{
		Here: diagnose.Sender, Streams: o.Streams, MaxStreams: o.MaxStreams, SockBuf: int64(o.SockBuf),
		RateLimit: limit.Rate(), Sync: string(call.Target.Sync),
	}
	if !sends {
		a.Here = diagnose.Receiver
	}
	return a
}
