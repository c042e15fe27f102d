package diagnose

import (
	"cmp"
	"fmt"
	"time"
)

// Asked is what the user requested of a transfer.
type Asked struct {
	Here       Side   // the side on which this command runs
	Streams    int    // 0 for automatic
	MaxStreams int    // if automatic
	SockBuf    int64  // of this command, 0 for automatic
	RateLimit  int64  // bit/s, 0 for none
	Sync       string // "batch", "file" or "none"
	Program    bool   // it is not ours: nothing was asked, and only sockets or packets are known
	Connecting *Host  // host whose packets vanished while it connected, nil for none
}

// facts is what is known about the time in which one limiter held.
type facts struct {
	Cell
	mean             float64 // goodput of the whole transfer, bit/s
	peak             float64 // the most that it had for a while, bit/s
	sender, receiver *Host
	asked            *Asked
}

// ethernetGoodput is the payload's fraction of the bytes on the wire, with full frames and TCP
// timestamps.
const ethernetGoodput = 1448.0 / 1538

// expect returns the goodput to expect at least after a limiter that cost the given factor is
// gone, in bit/s. How much more the path carries is unknown until somebody tries. So expect
// promises at most twice the rate, and at most the next usual line rate.
func expect(rate, factor float64) float64 {
	most := rate * max(1, min(factor, 2))
	for _, line := range []float64{10e6, 100e6, 1e9, 10e9, 25e9, 100e9} {
		if goodput := line * ethernetGoodput; rate < goodput*0.95 {
			return min(most, goodput)
		}
	}
	return most
}

// expect returns the goodput to expect when this limiter is gone. The rest of the transfer may
// have been faster, so it is never below the mean of the transfer.
func (f *facts) expect(factor float64) float64 { return expect(max(f.Rate(), f.mean), factor) }

func (f *facts) verdict() Verdict {
	v := Verdict{Limiter: f.Limiter, Side: Path}
	switch f.Limiter {
	case ReceiverWindow:
		v.Side = Receiver
		f.receiverWindow(&v)
	case SenderBuffer:
		v.Side = Sender
		f.senderBuffer(&v)
	case RandomLoss, Reordering:
		f.loss(&v)
	case NoSACK:
		v.Side = Sender
		if f.sender.NoSACK == 0 {
			v.Side = Receiver
		}
		f.loss(&v)
	case LineRate, NarrowLine:
		f.line(&v)
	case Policed:
		f.policed(&v)
	case SharedLine:
		f.shared(&v)
	case OwnPriority:
		v.Side = Sender
		f.yielded(&v)
	case OwnQueue, Bufferbloat:
		f.bloat(&v)
	case Relay:
		v.found(Fact{Kind: RelayCarries, Rate: f.Rate()})
		v.Remedies = append(v.Remedies, Remedy{Kind: ProbeNextLeg})
	case SlowStart:
		f.ramp(&v)
	case InitialWindow:
		v.Side = Sender
		if cwnd, rwnd := initialWindows(f.sender, f.receiver); rwnd < cwnd {
			v.Side = Receiver
		}
		f.ramp(&v)
	case SourceDisk, Silent:
		v.Side = Sender
		f.source(&v)
	case TargetDisk, Sync:
		v.Side = Receiver
		f.target(&v)
	case SenderCPU:
		v.Side = Sender
		f.cpu(&v, &f.Sender, f.Sender.used())
	case ReceiverCPU:
		v.Side = Receiver
		f.cpu(&v, &f.Receiver, f.Receiver.Receive+f.Receiver.Digest+f.Receiver.Code+f.Receiver.Write)
	case RateLimit:
		f.rateLimit(&v)
	case BlackHole:
		f.blackHole(&v)
	case Outage:
		v.Evidence = []Fact{{Kind: NothingAcked, Time: f.Length}}
	case SendingProgram, ReceivingProgram, Requests:
		f.program(&v)
	case Stalls, Unknown:
		if f.asked.Program {
			f.program(&v)
			break
		}
		v.Evidence = []Fact{{Kind: NothingStandsOut, Rate: f.Rate()}}
	}
	switch v.Side {
	case Sender:
		v.Host = f.sender.Name
	case Receiver:
		v.Host = f.receiver.Name
	case Path:
	}
	return v
}

// rtt is the least round-trip time.
func (f *facts) rtt() time.Duration {
	return cmp.Or(f.Sender.BaseRTT, f.Sender.MinRTT, f.Receiver.MinRTT)
}

// window adds the evidence of what a window allows.
func (f *facts) window(v *Verdict, limited time.Duration, window int64) {
	streams, rtt := max(1, f.Sender.Streams), f.rtt()
	if window > 0 && rtt > 0 {
		v.found(Fact{Kind: WindowObtained, Bytes: window, Count: streams, Time: rtt})
	}
	v.found(Fact{Kind: WindowHeldBack, Share: share(limited, f.Sender.Busy)})
	if rtt > 0 {
		v.found(Fact{Kind: LineBDP, Rate: 1e9, Bytes: int64(1e9 / 8 * rtt.Seconds())})
	}
}

// grownBuffer returns a buffer size to use instead of size, as the kernel counts: at least twice
// as much, at least 16 MiB, and at most what fits the kernel's int.
func grownBuffer(size int64) int64 {
	next := int64(16 << 20)
	for next < 2*size && next < 1<<30 {
		next *= 2
	}
	return next
}

// grow adds the remedy of a larger autotuning maximum, if a larger one is possible.
func (f *facts) grow(v *Verdict, name string, least, usual, most int64) {
	if next := grownBuffer(most); next > most {
		v.Remedies = append(v.Remedies, Remedy{
			Kind: SetSysctl, Sysctl: &Sysctl{name, fmt.Sprintf("%d %d %d", least, usual, next)}, Expect: f.expect(float64(next) / float64(most)),
		})
	}
}

// unscaled is the largest window without window scaling (RFC 7323, section 2).
const unscaled = 65535

// scaling adds the remedy for a host that can't announce windows as large as they are.
func (f *facts) scaling(v *Verdict, window int64) bool {
	if window > unscaled {
		return false
	}
	for _, h := range []*Host{f.sender, f.receiver} {
		if h.NoScaling == 1 {
			v.found(Fact{Kind: ScalingOff, Host: h.Name})
			v.Remedies = append(v.Remedies, Remedy{Kind: SetSysctl, Sysctl: &Sysctl{"net.ipv4.tcp_window_scaling", "1"}, Expect: f.expect(2), Host: h.Name})
			return true
		}
	}
	return false
}

// sockBuf adds the remedy for a buffer size that somebody set.
func (f *facts) sockBuf(v *Verdict, h *Host) bool {
	switch {
	case f.asked.SockBuf > 0:
		v.found(Fact{Kind: SockBufAsked, Bytes: f.asked.SockBuf})
		v.Remedies = append(v.Remedies, Remedy{Kind: AutoSockBuf, Expect: f.expect(2)})
	case h.SockBuf > 0:
		v.found(Fact{Kind: SockBufOfServer, Bytes: h.SockBuf})
		v.Remedies = append(v.Remedies, Remedy{Kind: ServerAutoSockBuf, Expect: f.expect(2)})
	default:
		return false
	}
	return true
}

// moreStreams adds the remedy that helps with any capped window.
func (f *facts) moreStreams(v *Verdict) {
	const limit = 64
	if n := f.asked.Streams; n > 0 && n < limit {
		more := min(limit, 2*n)
		v.Remedies = append(v.Remedies, Remedy{Kind: MoreStreams, Streams: more, Expect: f.expect(float64(more) / float64(n))})
	}
	if n := f.asked.MaxStreams; f.asked.Streams == 0 && n > 0 && n < limit && f.Sender.Streams >= int64(n) {
		more := min(limit, 2*n)
		v.Remedies = append(v.Remedies, Remedy{Kind: MoreAutoStreams, Streams: more, Expect: f.expect(float64(more) / float64(n))})
	}
}

func (f *facts) receiverWindow(v *Verdict) {
	f.window(v, max(f.Sender.RwndLimited, f.Sender.Windowed), f.Sender.SndWnd)
	h := f.receiver
	switch {
	case f.sockBuf(v, h), f.scaling(v, f.Sender.SndWnd):
	case f.asked.Program && f.ownBuffer(v, f.Receiver.RcvBuf, h.RmemMax, "SO_RCVBUF"):
	case h.NoAutotuning == 1:
		v.found(Fact{Kind: AutotuningOff})
		v.Remedies = append(v.Remedies, Remedy{Kind: SetSysctl, Sysctl: &Sysctl{"net.ipv4.tcp_moderate_rcvbuf", "1"}, Expect: f.expect(2)})
	case h.RmemMax > 0:
		v.found(Fact{Kind: RmemEnds, Bytes: h.RmemMax})
		f.grow(v, "net.ipv4.tcp_rmem", h.RmemMin, h.RmemDefault, h.RmemMax)
	}
	f.moreStreams(v)
}

func (f *facts) senderBuffer(v *Verdict) {
	f.window(v, max(f.Sender.SndbufLimited, f.Sender.Buffered), f.Sender.SndBuf/3*2)
	h, size := f.sender, f.Sender.SndBuf
	switch {
	case f.asked.Program && f.ownBuffer(v, size, h.WmemMax, "SO_SNDBUF"):
	case f.sockBuf(v, h):
	case size > h.WmemMax && grownBuffer(size) > size: // set by a flag: twice wmem_max
		v.found(Fact{Kind: WmemMaxReached, Bytes: size})
		v.Remedies = append(v.Remedies, Remedy{
			Kind: SetSysctl, Sysctl: &Sysctl{"net.core.wmem_max", fmt.Sprint(grownBuffer(size) / 2)}, Expect: f.expect(float64(grownBuffer(size)) / float64(size)),
		})
	case h.WmemMax > 0:
		v.found(Fact{Kind: WmemEnds, Bytes: h.WmemMax})
		f.grow(v, "net.ipv4.tcp_wmem", h.WmemMin, h.WmemDefault, h.WmemMax)
	}
	f.moreStreams(v)
}

// lost is the fraction of segments that were sent again.
func (f *facts) lost() float64 {
	if f.Sender.Segments == 0 {
		return 0
	}
	return float64(f.Sender.Retrans) / float64(f.Sender.Segments)
}

func (f *facts) loss(v *Verdict) {
	s := &f.Sender
	v.found(Fact{Kind: LossNoQueue, Share: f.lost(), Time: s.MeanRTT(), Least: f.rtt()})
	if f.Limiter == Reordering {
		v.found(Fact{Kind: Overtaken, Count: s.Reordered, Share: min(1, float64(s.Spurious)/float64(max(1, s.Retrans)))})
	}
	rate := f.expect(2)
	if f.Limiter == NoSACK { // a stream has about half of its window until all is resent
		rate = f.expect(1 / (1 - min(1, s.lossesATrip(f.Length))/2))
		for _, h := range []*Host{f.sender, f.receiver} {
			if h.NoSACK == 1 {
				v.found(Fact{Kind: SACKOff, Host: h.Name})
				v.Remedies = append(v.Remedies, Remedy{Kind: SetSysctl, Sysctl: &Sysctl{"net.ipv4.tcp_sack", "1"}, Expect: rate, Host: h.Name})
			}
		}
		return
	}
	v.found(Fact{Kind: ControlSlows, Name: ControlName(s.Control)})
	if f.asked.Program {
		v.Remedies = append(v.Remedies, Remedy{Kind: BBRForAll, Expect: rate, Host: f.sender.Name}, Remedy{Kind: MoreConnections})
	}
	switch f.sender.BBR {
	case BBRAllowed:
		v.Remedies = append(v.Remedies, Remedy{Kind: UseBBR, Expect: rate})
	case BBRRestricted:
		v.Remedies = append(v.Remedies, Remedy{Kind: AllowBBR, Expect: rate, Host: f.sender.Name})
	case BBRMissing:
		v.Remedies = append(v.Remedies, Remedy{Kind: LoadBBR, Expect: rate, Host: f.sender.Name})
	}
	for _, h := range []*Host{f.sender, f.receiver} {
		if h.NoTimestamps == 1 && f.Limiter == Reordering { // they show that a segment was not lost (RFC 4015)
			v.found(Fact{Kind: TimestampsOff, Host: h.Name})
			v.Remedies = append(v.Remedies, Remedy{Kind: SetSysctl, Sysctl: &Sysctl{"net.ipv4.tcp_timestamps", "1"}, Host: h.Name})
		}
	}
	f.moreStreams(v)
}

// policed adds the evidence of a policer: the rate that it lets pass.
func (f *facts) policed(v *Verdict) {
	v.found(Fact{Kind: DroppedAbove, Rate: f.Rate(), Share: f.lost()})
	v.found(Fact{Kind: RoundTrips, Time: f.Sender.MeanRTT(), Least: f.rtt()})
	v.Remedies = append(v.Remedies, Remedy{Kind: AskProvider})
}

// shared adds the evidence of other traffic, and what the transfer got beside it.
func (f *facts) shared(v *Verdict) {
	v.found(Fact{Kind: GotBesideOthers, Rate: f.Rate(), Limit: f.peak})
	v.found(Fact{Kind: QueueOfOthers, Share: share(f.Sender.Shared, f.Length)})
	v.found(Fact{Kind: RoundTrips, Time: f.Sender.MeanRTT(), Least: f.rtt()})
	if f.Sender.Priority != highPriority {
		v.Remedies = append(v.Remedies, Remedy{Kind: HighPriority})
	}
}

// yielded adds what a low priority gave away.
func (f *facts) yielded(v *Verdict) {
	v.found(Fact{Kind: LeftToOthers, Share: share(f.Sender.Yielded, f.Length), Rate: f.Rate(), Limit: f.peak})
	v.Remedies = append(v.Remedies, Remedy{Kind: NormalPriority})
}

func (f *facts) line(v *Verdict) {
	v.found(Fact{Kind: PathCarries, Rate: f.Rate()})
	if mean, least := f.Sender.MeanRTT(), f.rtt(); mean > 0 && least > 0 {
		v.found(Fact{Kind: RoundTrips, Time: mean, Least: least})
	}
	v.found(Fact{Kind: SegmentsResent, Share: f.lost()})
}

func (f *facts) bloat(v *Verdict) {
	if f.Limiter == OwnQueue {
		v.found(Fact{Kind: LostInOwnQueue, Share: min(1, float64(f.Sender.LostOwn)/float64(max(1, f.Sender.Segments)))})
	}
	v.found(Fact{Kind: QueueOnPath, Time: f.Sender.MeanRTT(), Least: f.rtt()})
	v.found(Fact{Kind: PathCarries, Rate: f.Rate()})
	if f.Sender.Priority == 0 && f.Sender.Control != BBR && f.sender.BBR == BBRAllowed {
		v.Remedies = append(v.Remedies, Remedy{Kind: UseBBR})
	}
	limit := LimitRate
	if f.asked.Program {
		limit = LimitProgram
	}
	v.Remedies = append(v.Remedies, Remedy{Kind: limit, Rate: below(f.Rate())}, Remedy{Kind: ManageQueue})
}

// below returns nine tenths of a rate in bit/s, rounded down to two digits.
func below(rate float64) int64 {
	kilobits := int64(rate * 0.9 / 1e3)
	digit := int64(1)
	for kilobits/digit >= 100 {
		digit *= 10
	}
	return 1000 * max(1, kilobits-kilobits%digit)
}

func (f *facts) ramp(v *Verdict) {
	if f.Limiter == InitialWindow {
		cwnd, rwnd := initialWindows(f.sender, f.receiver)
		if v.Side == Sender {
			v.found(Fact{Kind: InitialWindowOf, Host: f.sender.Name, Name: "initcwnd", Count: cwnd})
			v.Remedies = append(v.Remedies, Remedy{Kind: RaiseInitCwnd, Host: f.sender.Name})
		}
		if rwnd <= cwnd { // otherwise the receiver lets more through already
			v.found(Fact{Kind: InitialWindowOf, Host: f.receiver.Name, Name: "initrwnd", Count: rwnd})
			v.Remedies = append(v.Remedies, Remedy{Kind: RaiseInitRwnd, Host: f.receiver.Name})
		}
	}
	if rtt := f.rtt(); rtt > 0 {
		v.found(Fact{Kind: RampUp, Time: f.Length, Least: rtt})
	}
	if f.Limiter == SlowStart {
		v.Remedies = append(v.Remedies, Remedy{Kind: LongerTransfers})
	}
}

func (f *facts) source(v *Verdict) {
	s := &f.Sender
	switch {
	case f.Limiter == Silent:
		v.found(Fact{Kind: StdinWaited, Share: share(s.Feed, f.Length), Rate: f.Rate()})
		v.Remedies = append(v.Remedies, Remedy{Kind: FasterFeed})
	case share(s.Read, s.used()) >= share(s.Idle, s.used()):
		v.found(Fact{Kind: Reading, Share: share(s.Read, s.used()), Rate: f.Rate()})
		v.Remedies = append(v.Remedies, Remedy{Kind: FasterSource})
	default:
		v.found(Fact{Kind: Listing, Share: share(s.Walk, f.Length)})
		v.Remedies = append(v.Remedies, Remedy{Kind: FasterSource})
	}
}

func (f *facts) target(v *Verdict) {
	r := &f.Receiver
	busy := r.Receive + r.Digest + r.Code + r.Write + r.Full - f.Sender.Parked
	if f.Limiter == Sync {
		part := share(r.Sync, f.Length)
		v.found(Fact{Kind: Syncing, Share: part})
		rate := f.expect(1 / max(0.5, 1-part))
		if f.asked.Sync == "file" {
			v.Remedies = append(v.Remedies, Remedy{Kind: SyncBatches, Expect: rate})
		} else if f.asked.Sync != "none" {
			v.Remedies = append(v.Remedies, Remedy{Kind: SyncNothing})
		}
		return
	}
	if part := share(r.Write+r.Full, busy); part > share(r.Compare+r.Name, f.Length) {
		v.found(Fact{Kind: Writing, Share: part, Rate: f.Rate()})
	} else {
		v.found(Fact{Kind: Comparing, Share: min(1, share(r.Compare+r.Name, f.Length))})
	}
	v.Remedies = append(v.Remedies, Remedy{Kind: FasterTarget})
}

// keptRate is the fraction of the requested rate from which on a server that sends obeys the request,
// and not a limit of its own.
const keptRate = 0.8

// rateLimit adds whose limit it is: the user's or the server administrator's.
func (f *facts) rateLimit(v *Verdict) {
	if f.asked.Program {
		f.programRate(v)
		return
	}
	waits := f.Receiver.RateWait <= f.Sender.RateWait // a sender here waits for no limit but its own
	if asked := float64(f.asked.RateLimit); asked > 0 && waits && (f.asked.Here == Sender || f.Rate() >= keptRate*asked) {
		v.Side = f.asked.Here
		v.found(Fact{Kind: RateAsked, Rate: f.Rate(), Limit: asked})
		v.Remedies = []Remedy{{Kind: RaiseLimit}}
		return
	}
	v.Side = Sender
	if f.Receiver.RateWait > f.Sender.RateWait {
		v.Side = Receiver
	}
	v.found(Fact{Kind: RateOfServer, Rate: f.Rate()})
	v.Remedies = []Remedy{{Kind: RaiseServerLimit}}
}

func (f *facts) cpu(v *Verdict, s *Sample, streams time.Duration) {
	used, wanted := s.short(f.Length)
	cores := float64(s.Cores) / 1000
	usage := Fact{Kind: CPUUsed, Share: min(1, used), Cores: cores} // a quota allows bursts
	if used >= starved {
		v.found(usage)
	} else if part := share(s.Digest+s.Code, streams); part >= most {
		v.found(Fact{Kind: Computing, Share: part})
	}
	if wanted > used+0.1 {
		v.found(Fact{Kind: CPUWaited, Time: time.Duration((wanted - used) * cores * float64(f.Length))})
	}
	if used < starved { // it is not the process alone that keeps the cores busy
		v.found(usage)
	}
	if part := share(s.Code, streams); part > 0.2 {
		v.found(Fact{Kind: Compressing, Share: part})
		v.Remedies = append(v.Remedies, Remedy{Kind: NoCompression})
	}
	v.Remedies = append(v.Remedies, Remedy{Kind: MoreCPU})
}

func (f *facts) blackHole(v *Verdict) {
	s, h := &f.Sender, f.sender
	if f.asked.Connecting != nil {
		h = f.asked.Connecting
	}
	v.found(Fact{Kind: PacketsVanish, Bytes: s.PMTU})
	if s.Retrans > 0 {
		v.found(Fact{Kind: ResentInVain, Count: s.Retrans})
	}
	if h.MTUProbing == 0 {
		v.Remedies = append(v.Remedies, Remedy{Kind: SetSysctl, Sysctl: &Sysctl{"net.ipv4.tcp_mtu_probing", "1"}, Host: h.Name})
	}
	v.Remedies = append(v.Remedies, Remedy{Kind: FixPathMTU})
}
