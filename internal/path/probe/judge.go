package probe

import (
	"cmp"
	"math"
	"slices"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// Judge says what limits the path, from the results of a probe: for each direction with several
// streams, and with one stream if that has another cause. It is a pure function. Shares are of
// the time where possible, or else the certainty of the rule.
func Judge(r *Report) []diagnose.Verdict {
	var all []diagnose.Verdict
	for _, m := range r.MTU {
		if m.BlackHole {
			all = append(all, blackHole(&m))
		}
	}
	for i := range r.Flows {
		f := &r.Flows[i]
		if f.Goodput <= 0 {
			continue
		}
		several := f
		for k := range r.Flows {
			if g := &r.Flows[k]; g.Direction == f.Direction && g.Streams > several.Streams {
				several = g
			}
		}
		v := judgeFlow(f, several, r)
		if f != several && (f.Goodput >= filled*several.Goodput || v.Limiter == diagnose.LineRate || v.Limiter == diagnose.NarrowLine || v.Limiter == diagnose.Bufferbloat || v.Limiter == diagnose.Unknown) {
			continue // the flow with several streams shows it better
		}
		if r.Loopback && v.Limiter != diagnose.SenderCPU && v.Limiter != diagnose.ReceiverCPU {
			continue // there is no path
		}
		v.Evidence = append([]diagnose.Fact{{Kind: diagnose.FlowMeasured, Name: string(f.Direction), Count: int64(f.Streams), Rate: f.Goodput}}, v.Evidence...)
		all = append(all, v)
	}
	slices.SortStableFunc(all, func(a, b diagnose.Verdict) int { return cmp.Compare(b.Share, a.Share) })
	return all
}

const (
	limited   = 0.25 // fraction of the busy time from which on a window is the limiter
	lossy     = 1e-4 // share of segments
	cpuFull   = 0.9  // share of all CPUs
	queued    = 1e-3 // fraction of segments lost from which on some queue overflows
	bloated   = 0.1  // growth of the median round trip in s, grade D
	helps     = 1.15 // gain by more streams from which on one stream was held back
	queueless = 1.25 // growth of the round trip below which there is no noticeable queue
)

// judgeFlow names what limits one flow. several is the flow with the most streams in this
// direction.
func judgeFlow(f, several *Flow, r *Report) diagnose.Verdict {
	sender, receiver := "", r.Host
	if f.Direction == Down {
		sender, receiver = r.Host, ""
	}
	queue := f.RTT.Count > 0 && r.Idle.Median > 0 && f.RTT.Median > r.Idle.Median*queueless
	gains := f != several && several.Goodput > f.Goodput*helps
	single := f // the flow of one stream
	for i := range r.Flows {
		if g := &r.Flows[i]; g.Direction == f.Direction && g.Streams == 1 {
			single = g
		}
	}
	parts := gains || f == several && f.Streams > 1 && !nearOther(f, r) // each is held back
	streams := func() []diagnose.Remedy {
		if !gains {
			return nil
		}
		return []diagnose.Remedy{{Kind: diagnose.MoreStreams, Streams: suffice(f, several), Expect: several.Goodput}}
	}
	small := func(v diagnose.Verdict, raise diagnose.RemedyKind) diagnose.Verdict { // a buffer
		if r.SockBuf == 0 {
			v.Remedies = append(streams(), diagnose.Remedy{Kind: raise})
			return v
		}
		v.Evidence = append(v.Evidence, diagnose.Fact{Kind: diagnose.SockBufAsked, Bytes: r.SockBuf})
		v.Remedies = append([]diagnose.Remedy{{Kind: diagnose.AutoSockBuf}}, streams()...)
		return v
	}
	loss := diagnose.Fact{Kind: diagnose.LossAfterStart, Share: f.Loss}
	rtt := diagnose.Fact{Kind: diagnose.RTTIdleLoaded, Least: seconds(r.Idle.Median), Time: seconds(f.RTT.Median)}
	noQueue := rtt
	noQueue.Kind = diagnose.RTTWithoutQueue
	switch {
	// A full window that is much larger than the BDP means that the receiver does not empty it in
	// time.
	case f.RwndLimited >= limited && f.RwndLimited >= f.SndbufLimited && f.SndWnd <= 4*several.BDP:
		return small(diagnose.Verdict{Limiter: diagnose.ReceiverWindow, Side: diagnose.Receiver, Host: receiver, Share: f.RwndLimited,
			Evidence: []diagnose.Fact{{Kind: diagnose.ReceiverWindowFull, Share: f.RwndLimited}, {Kind: diagnose.BufferObtained, Bytes: f.SndWnd, Need: several.BDP}}},
			diagnose.RaiseRmem)
	case f.SndbufLimited >= limited && f.SndBuf <= 8*several.BDP: // 2/3 are payload
		return small(diagnose.Verdict{Limiter: diagnose.SenderBuffer, Side: diagnose.Sender, Host: sender, Share: f.SndbufLimited,
			Evidence: []diagnose.Fact{{Kind: diagnose.SendBufferFull, Share: f.SndbufLimited}, {Kind: diagnose.BufferObtained, Bytes: f.SndBuf, Need: several.BDP}}},
			diagnose.RaiseWmem)
	case f.SenderCPU >= cpuFull && f.SenderCPU >= f.ReceiverCPU && f.Loss < queued:
		return diagnose.Verdict{Limiter: diagnose.SenderCPU, Side: diagnose.Sender, Host: sender, Share: f.SenderCPU,
			Evidence: []diagnose.Fact{{Kind: diagnose.CPUsBusy, Share: f.SenderCPU, Name: string(diagnose.Sender)}}}
	case f.ReceiverCPU >= cpuFull && f.Loss < queued:
		return diagnose.Verdict{Limiter: diagnose.ReceiverCPU, Side: diagnose.Receiver, Host: receiver, Share: f.ReceiverCPU,
			Evidence: []diagnose.Fact{{Kind: diagnose.CPUsBusy, Share: f.ReceiverCPU, Name: string(diagnose.Receiver)}}}
	case f.Loss >= lossy && single.Loss >= lossy && !queue && parts:
		v := diagnose.Verdict{Limiter: diagnose.RandomLoss, Side: diagnose.Path, Share: 0.8, Evidence: []diagnose.Fact{loss, noQueue}, Remedies: streams()}
		if f.Congestion != "bbr" {
			v.Remedies = append(v.Remedies, diagnose.Remedy{Kind: diagnose.UseBBR})
		}
		return v
	case f.Goodput <= narrow && !gains:
		v := diagnose.Verdict{Limiter: diagnose.NarrowLine, Side: diagnose.Path, Share: 1}
		if f.RTT.Count > 0 {
			v.Evidence = append(v.Evidence, rtt)
		}
		return v
	case queue && f.RTT.Median-r.Idle.Median >= bloated:
		v := diagnose.Verdict{Limiter: diagnose.Bufferbloat, Side: diagnose.Path, Share: 1,
			Evidence: []diagnose.Fact{rtt, {Kind: diagnose.BloatGrade, Name: GradeOf(seconds(f.RTT.Median - r.Idle.Median))}}}
		if f.Congestion != "bbr" {
			v.Remedies = append(v.Remedies, diagnose.Remedy{Kind: diagnose.UseBBR})
		}
		v.Remedies = append(v.Remedies, diagnose.Remedy{Kind: diagnose.QueueAtBottleneck})
		return v
	case gains:
		return diagnose.Verdict{Limiter: diagnose.Unknown, Side: diagnose.Path, Share: 0.5, Evidence: []diagnose.Fact{loss, rtt}, Remedies: streams()}
	case queue || f.Loss >= lossy || !parts:
		return diagnose.Verdict{Limiter: diagnose.LineRate, Side: diagnose.Path, Share: 1, Evidence: []diagnose.Fact{rtt, loss}}
	}
	return diagnose.Verdict{Limiter: diagnose.Unknown, Side: diagnose.Path, Evidence: []diagnose.Fact{rtt, loss}}
}

// filled is the share of the best goodput from which more streams are not worth their work.
const filled = 0.95

// Suffice is how few streams reach the goodput of many, in the direction that needs more; 0 is
// unknown. Between the numbers that were measured, it assumes that goodput grows with each stream.
func Suffice(flows []Flow) (n int) {
	for i := range flows {
		f, several := &flows[i], &flows[i]
		if f.Streams != 1 || f.Goodput <= 0 {
			continue
		}
		for k := range flows {
			if g := &flows[k]; g.Direction == f.Direction && g.Streams > several.Streams {
				several = g
			}
		}
		n = max(n, suffice(f, several))
	}
	return n
}

// suffice is the same for one direction. f is a flow with fewer streams than several.
func suffice(f, several *Flow) int {
	if f.Goodput >= filled*several.Goodput {
		return f.Streams
	}
	return min(several.Streams, int(math.Ceil(filled*float64(f.Streams)*several.Goodput/f.Goodput)))
}

// nearOther reports whether one stream carries as much as several. If so, the line is full, or
// the cause is something that more streams do not help.
func nearOther(f *Flow, r *Report) bool {
	for _, g := range r.Flows {
		if g.Direction == f.Direction && g.Streams == 1 {
			return f.Goodput < g.Goodput*helps
		}
	}
	return false
}

func blackHole(m *PathMTU) diagnose.Verdict {
	return diagnose.Verdict{Limiter: diagnose.BlackHole, Side: diagnose.Path, Share: 1,
		Evidence: []diagnose.Fact{{Kind: diagnose.ProbesVanish, Name: string(m.Direction), Bytes: int64(m.MTU), Need: int64(m.Failed[0])}},
		Remedies: []diagnose.Remedy{
			{Kind: diagnose.SetSysctl, Sysctl: &diagnose.Sysctl{Name: "net.ipv4.tcp_mtu_probing", Value: "1"}},
			{Kind: diagnose.ClampMSS},
		}}
}
