package diagnose

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

// Asked is what the user asked of a transfer.
type Asked struct {
	Here       Side   // which side this command is
	Streams    int    // 0 for automatic
	MaxStreams int    // if automatic
	SockBuf    int64  // by this command, 0 for automatic
	RateLimit  int64  // bit/s, 0 for none
	Sync       string // "batch", "file" or "none"
	Connecting *Host  // whose packets vanished while it connected, nil for none
}

// facts is what is known of the time in which one limiter held.
type facts struct {
	Cell
	mean             float64 // goodput of the whole transfer, bit/s
	sender, receiver *Host
	asked            *Asked
}

// ethernetGoodput is the part of the wire's bytes that is payload, with full frames and TCP's timestamps.
const ethernetGoodput = 1448.0 / 1538

// expect is the goodput to be expected at least when a limiter that cost a factor is gone, in bit/s. How much more the path carries is not
// known before it was tried; so no more is promised than twice, and no more than the next usual line rate.
func expect(rate, factor float64) float64 {
	most := rate * max(1, min(factor, 2))
	for _, line := range []float64{10e6, 100e6, 1e9, 10e9, 25e9, 100e9} {
		if goodput := line * ethernetGoodput; rate < goodput*0.95 {
			return min(most, goodput)
		}
	}
	return most
}

// expect is the goodput when this limiter is gone. The rest of the transfer may have been faster; less than it was is not expected.
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
	case LineRate:
		f.line(&v)
	case Congestion:
		f.line(&v)
	case Bufferbloat:
		f.bloat(&v)
	case SlowStart:
		f.ramp(&v)
	case InitialWindow:
		v.Side = Sender
		if f.receiver.InitRwnd > 0 && (f.sender.InitCwnd == 0 || f.receiver.InitRwnd < f.sender.InitCwnd) {
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
		v.Evidence = []string{fmt.Sprintf("nothing was acknowledged for %s", units.Time(f.Length))}
	case Stalls, Unknown:
		v.Evidence = []string{fmt.Sprintf("no stage and no window stands out; %s", units.Rate(f.Rate()))}
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
	if f.Sender.MinRTT > 0 {
		return f.Sender.MinRTT
	}
	return f.Receiver.MinRTT
}

// window tells what a window allows.
func (f *facts) window(v *Verdict, limited time.Duration, window int64) {
	streams, rtt := max(1, f.Sender.Streams), f.rtt()
	if window > 0 && rtt > 0 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("%s a stream obtained; %d × that / %s RTT = %s", units.Bytes(window), streams, units.Time(rtt),
			units.Rate(float64(window)*float64(streams)*8/rtt.Seconds())))
	}
	v.Evidence = append(v.Evidence, fmt.Sprintf("it held data back for %s of the time with data in flight", units.Percent(share(limited, f.Sender.Busy))))
	if rtt > 0 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("a line of 1 Gbit/s would take a BDP of %s in flight", units.Bytes(int64(1e9/8*rtt.Seconds()))))
	}
}

// grownBuffer is the size to ask for instead of one, as the kernel counts: twice as much at least, which is 16 MiB at least, and what fits the
// kernel's int at most.
func grownBuffer(size int64) int64 {
	next := int64(16 << 20)
	for next < 2*size && next < 1<<30 {
		next *= 2
	}
	return next
}

// grow adds the remedy of a larger end of autotuning, if there can be one.
func (f *facts) grow(v *Verdict, name string, least, usual, most int64) {
	if next := grownBuffer(most); next > most {
		v.Remedies = append(v.Remedies, Remedy{
			Sysctl: &Sysctl{name, fmt.Sprintf("%d %d %d", least, usual, next)}, Expect: f.expect(float64(next) / float64(most)),
		})
	}
}

// unscaled is the largest window without window scaling (RFC 7323, section 2).
const unscaled = 65535

// scaling is the remedy where windows can't be announced as large as they are.
func (f *facts) scaling(v *Verdict, window int64) bool {
	if window > unscaled {
		return false
	}
	for _, h := range []*Host{f.sender, f.receiver} {
		if h.NoScaling == 1 {
			v.Evidence = append(v.Evidence, "net.ipv4.tcp_window_scaling is off on "+hostName(h))
			v.Remedies = append(v.Remedies, Remedy{Sysctl: &Sysctl{"net.ipv4.tcp_window_scaling", "1"}, Expect: f.expect(2), Host: h.Name})
			return true
		}
	}
	return false
}

// sockBuf is the remedy where somebody asked for the buffer's size.
func (f *facts) sockBuf(v *Verdict, h *Host) bool {
	switch {
	case f.asked.SockBuf > 0:
		v.Evidence = append(v.Evidence, fmt.Sprintf("--sock-buf asked for %s on both hosts", units.Bytes(f.asked.SockBuf)))
		v.Remedies = append(v.Remedies, Remedy{Flag: "--sock-buf auto", Expect: f.expect(2)})
	case h.SockBuf > 0:
		v.Evidence = append(v.Evidence, fmt.Sprintf("fxfer serve was started with --sock-buf %d", h.SockBuf))
		v.Remedies = append(v.Remedies, Remedy{Command: "fxfer serve without --sock-buf", Expect: f.expect(2)})
	default:
		return false
	}
	return true
}

// moreStreams is the remedy that any capped window has.
func (f *facts) moreStreams(v *Verdict) {
	const limit = 64
	if n := f.asked.Streams; n > 0 && n < limit {
		more := min(limit, 2*n)
		v.Remedies = append(v.Remedies, Remedy{Flag: fmt.Sprintf("--streams %d", more), Expect: f.expect(float64(more) / float64(n))})
	}
	if n := f.asked.MaxStreams; f.asked.Streams == 0 && n > 0 && n < limit && f.Sender.Streams >= int64(n) {
		more := min(limit, 2*n)
		v.Remedies = append(v.Remedies, Remedy{Flag: fmt.Sprintf("--max-streams %d", more), Expect: f.expect(float64(more) / float64(n))})
	}
}

func (f *facts) receiverWindow(v *Verdict) {
	f.window(v, max(f.Sender.RwndLimited, f.Sender.Windowed), f.Sender.SndWnd)
	h := f.receiver
	switch {
	case f.sockBuf(v, h), f.scaling(v, f.Sender.SndWnd):
	case h.NoAutotuning == 1:
		v.Evidence = append(v.Evidence, "net.ipv4.tcp_moderate_rcvbuf is off: the buffer does not grow")
		v.Remedies = append(v.Remedies, Remedy{Sysctl: &Sysctl{"net.ipv4.tcp_moderate_rcvbuf", "1"}, Expect: f.expect(2)})
	case h.RmemMax > 0:
		v.Evidence = append(v.Evidence, fmt.Sprintf("net.ipv4.tcp_rmem ends at %s, about half of which becomes window", units.Bytes(h.RmemMax)))
		f.grow(v, "net.ipv4.tcp_rmem", h.RmemMin, h.RmemDefault, h.RmemMax)
	}
	f.moreStreams(v)
}

func (f *facts) senderBuffer(v *Verdict) {
	f.window(v, max(f.Sender.SndbufLimited, f.Sender.Buffered), f.Sender.SndBuf/3*2)
	h, size := f.sender, f.Sender.SndBuf
	switch {
	case f.sockBuf(v, h):
	case size > h.WmemMax && grownBuffer(size) > size: // it was asked for, and the kernel gave twice net.core.wmem_max
		v.Evidence = append(v.Evidence, fmt.Sprintf("the buffer is %s, as much as net.core.wmem_max allows", units.Bytes(size)))
		v.Remedies = append(v.Remedies, Remedy{
			Sysctl: &Sysctl{"net.core.wmem_max", fmt.Sprint(grownBuffer(size) / 2)}, Expect: f.expect(float64(grownBuffer(size)) / float64(size)),
		})
	case h.WmemMax > 0:
		v.Evidence = append(v.Evidence, fmt.Sprintf("net.ipv4.tcp_wmem ends at %s, about two thirds of which is payload", units.Bytes(h.WmemMax)))
		f.grow(v, "net.ipv4.tcp_wmem", h.WmemMin, h.WmemDefault, h.WmemMax)
	}
	f.moreStreams(v)
}

var controlNames = [...]string{OtherControl: "the congestion control", BBR: "bbr", Cubic: "cubic", Reno: "reno"}

func controlName(n int64) string {
	if n < 0 || n >= int64(len(controlNames)) {
		n = OtherControl
	}
	return controlNames[n]
}

// lost describes what was sent again.
func (f *facts) lost() string {
	s := &f.Sender
	if s.Segments == 0 || s.Retrans == 0 {
		return "nothing was lost"
	}
	return fmt.Sprintf("%s of the segments were sent again", units.Percent(float64(s.Retrans)/float64(s.Segments)))
}

// delay describes the queue.
func (f *facts) delay() string {
	if f.Sender.MeanRTT() == 0 || f.rtt() == 0 {
		return ""
	}
	return fmt.Sprintf("RTT %s, at least %s", units.Time(f.Sender.MeanRTT()), units.Time(f.rtt()))
}

// allowBBR lets every process use BBR, and leaves what else is allowed.
const allowBBR = `sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="$(sysctl -n net.ipv4.tcp_allowed_congestion_control) bbr"`

func (f *facts) loss(v *Verdict) {
	s := &f.Sender
	v.Evidence = append(v.Evidence, f.lost()+", and no queue: "+f.delay())
	if f.Limiter == Reordering {
		v.Evidence = append(v.Evidence, fmt.Sprintf("%d times segments overtook others; %s of those sent again had arrived", s.Reordered,
			units.Percent(min(1, float64(s.Spurious)/float64(max(1, s.Retrans))))))
	}
	v.Evidence = append(v.Evidence, controlName(s.Control)+" takes each loss for a full queue and slows down")
	rate := f.expect(2)
	switch f.sender.BBR {
	case BBRAllowed:
		v.Remedies = append(v.Remedies, Remedy{Flag: "--congestion bbr", Expect: rate})
	case BBRRestricted:
		v.Remedies = append(v.Remedies, Remedy{Command: allowBBR, Expect: rate, Host: f.sender.Name})
	case BBRMissing:
		v.Remedies = append(v.Remedies, Remedy{Command: "sudo modprobe tcp_bbr && " + allowBBR, Expect: rate, Host: f.sender.Name})
	}
	f.moreStreams(v)
}

func (f *facts) line(v *Verdict) {
	v.Evidence = append(v.Evidence, fmt.Sprintf("the path carries %s", units.Rate(f.Rate())))
	if d := f.delay(); d != "" {
		v.Evidence = append(v.Evidence, d)
	}
	v.Evidence = append(v.Evidence, f.lost())
}

func (f *facts) bloat(v *Verdict) {
	v.Evidence = append(v.Evidence, f.delay()+": data waits in a queue on the path, and so does everybody else's",
		fmt.Sprintf("the path carries %s", units.Rate(f.Rate())))
	if f.Sender.Control != BBR && f.sender.BBR == BBRAllowed {
		v.Remedies = append(v.Remedies, Remedy{Flag: "--congestion bbr"})
	}
	v.Remedies = append(v.Remedies, Remedy{Flag: "--rate-limit " + below(f.Rate())},
		Remedy{Advice: "fq_codel or cake on the router in front of the slow line"})
}

// below writes nine tenths of a rate in bit/s with two digits, rounded down.
func below(rate float64) string {
	n, unit := int64(rate*0.9/1e3), "kbit"
	digit := int64(1)
	for n/digit >= 100 {
		digit *= 10
	}
	if n -= n % digit; n%1000 == 0 && n > 0 {
		n, unit = n/1000, "mbit"
	}
	return fmt.Sprintf("%d%s", max(1, n), unit)
}

func (f *facts) ramp(v *Verdict) {
	rtt := f.rtt()
	if rtt > 0 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("%s, with an RTT of %s: connecting, and windows that double with each round trip", units.Time(f.Length), units.Time(rtt)))
	}
	if f.Limiter == InitialWindow {
		h, name, n := f.sender, "initcwnd", f.sender.InitCwnd
		if v.Side == Receiver {
			h, name, n = f.receiver, "initrwnd", f.receiver.InitRwnd
		}
		v.Evidence = append(v.Evidence, fmt.Sprintf("the route on %s has %s %d; usual are 10", hostName(h), name, n))
		v.Remedies = append(v.Remedies, Remedy{Command: "fxfer doctor", Expect: 0})
		return
	}
	v.Remedies = append(v.Remedies, Remedy{Advice: "longer transfers don't feel it; initcwnd of the route shortens it, see fxfer doctor"})
}

func hostName(h *Host) string {
	if h.Name == "" {
		return "its host"
	}
	return h.Name
}

func (f *facts) source(v *Verdict) {
	s := &f.Sender
	switch {
	case f.Limiter == Silent:
		v.Evidence = append(v.Evidence, fmt.Sprintf("standard input was waited for %s of the time, and gave %s", units.Percent(share(s.Feed, f.Length)), units.Rate(f.Rate())))
		v.Remedies = append(v.Remedies, Remedy{Advice: "the program that feeds fxfer is the slow one"})
	case share(s.Read, s.used()) >= share(s.Idle, s.used()):
		v.Evidence = append(v.Evidence, fmt.Sprintf("streams spent %s of the time in reading the source, at %s", units.Percent(share(s.Read, s.used())), units.Rate(f.Rate())))
		v.Remedies = append(v.Remedies, Remedy{Advice: "a faster disk, or less else that reads from it"})
	default:
		v.Evidence = append(v.Evidence, fmt.Sprintf("streams waited while folders were listed, %s of the time", units.Percent(share(s.Walk, f.Length))))
		v.Remedies = append(v.Remedies, Remedy{Advice: "a faster disk, or less else that reads from it"})
	}
}

func (f *facts) target(v *Verdict) {
	r := &f.Receiver
	busy := r.Receive + r.Digest + r.Code + r.Write + r.Full - f.Sender.Parked
	if f.Limiter == Sync {
		part := share(r.Sync, f.Length)
		v.Evidence = append(v.Evidence, fmt.Sprintf("syncs to the medium took %s of the time", units.Percent(part)))
		rate := f.expect(1 / max(0.5, 1-part))
		if f.asked.Sync == "file" {
			v.Remedies = append(v.Remedies, Remedy{Flag: "--sync batch", Expect: rate})
		} else if f.asked.Sync != "none" {
			v.Remedies = append(v.Remedies, Remedy{Advice: "--sync none, if a power cut may cost what is new"})
		}
		return
	}
	if part := share(r.Write+r.Full, busy); part > share(r.Compare+r.Name, f.Length) {
		v.Evidence = append(v.Evidence, fmt.Sprintf("streams spent %s of the time in writing to the target, at %s", units.Percent(part), units.Rate(f.Rate())))
	} else {
		v.Evidence = append(v.Evidence, fmt.Sprintf("looking at what the target has and naming files took %s of the time", units.Percent(min(1, share(r.Compare+r.Name, f.Length)))))
	}
	v.Remedies = append(v.Remedies, Remedy{Advice: "a faster disk, or less else that writes to it"})
}

// keptRate is the part of the rate asked for from which that is what holds a transfer back.
const keptRate = 0.8

// rateLimit tells whose limit it is: what the user has asked for, or what the server's administrator has.
func (f *facts) rateLimit(v *Verdict) {
	if asked := float64(f.asked.RateLimit); asked > 0 && f.Rate() >= keptRate*asked && f.Receiver.RateWait <= f.Sender.RateWait {
		v.Side = f.asked.Here
		v.Evidence = []string{fmt.Sprintf("%s asked for, %s on the line", units.Rate(asked), units.Rate(f.Rate()))}
		v.Remedies = []Remedy{{Advice: "a higher --rate-limit, or none"}}
		return
	}
	v.Side = Sender
	if f.Receiver.RateWait > f.Sender.RateWait {
		v.Side = Receiver
	}
	v.Evidence = []string{fmt.Sprintf("%s on the line, which the server's rate limit holds it to", units.Rate(f.Rate()))}
	v.Remedies = []Remedy{{Advice: "a higher rate-limit for this client, share or server in its configuration"}}
}

func (f *facts) cpu(v *Verdict, s *Sample, streams time.Duration) {
	used, wanted := s.short(f.Length)
	cores := float64(s.Cores) / 1000
	v.Evidence = append(v.Evidence, fmt.Sprintf("the process used %s of the %.3g cores that it may use", units.Percent(used), cores))
	if wanted > used+0.1 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("its threads could have run for %.2g s more", (wanted-used)*cores*f.Length.Seconds()))
	}
	if part := share(s.Code, streams); part > 0.2 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("compression took %s of the streams' time", units.Percent(part)))
		v.Remedies = append(v.Remedies, Remedy{Flag: "--compress none"})
	}
	v.Remedies = append(v.Remedies, Remedy{Advice: "more CPU: a quota (cpu.max), other work on the host, or the machine itself is the end of it"})
}

func (f *facts) blackHole(v *Verdict) {
	s, h := &f.Sender, f.sender
	if f.asked.Connecting != nil {
		h = f.asked.Connecting
	}
	v.Evidence = append(v.Evidence,
		fmt.Sprintf("packets of %d bytes vanish, smaller ones arrive, and no ICMP message names the largest that passes", s.PMTU))
	if s.Retrans > 0 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("segments were sent again %d times, and none arrived", s.Retrans))
	}
	if h.MTUProbing == 0 {
		v.Remedies = append(v.Remedies, Remedy{Sysctl: &Sysctl{"net.ipv4.tcp_mtu_probing", "1"}, Host: h.Name})
	}
	v.Remedies = append(v.Remedies, Remedy{Advice: "let ICMP pass the firewalls, or lower the MTU of the route"})
}

// String names the limiter with its share and the first evidence, in one line.
func (v *Verdict) String() string {
	var b strings.Builder
	b.WriteString(string(v.Limiter))
	if v.Host != "" {
		b.WriteString(" on " + v.Host)
	}
	fmt.Fprintf(&b, " (%s of the time", units.Percent(v.Share))
	if len(v.Evidence) > 0 {
		b.WriteString("; " + v.Evidence[0])
	}
	b.WriteString(")")
	return b.String()
}

// Hint says what to do, in one line: the first remedy, and the second if it is a flag. It is "" if there is nothing.
func (v *Verdict) Hint() string {
	if len(v.Remedies) == 0 {
		return ""
	}
	text := v.Remedies[0].On(v.Host)
	if len(v.Remedies) > 1 && v.Remedies[1].Flag != "" {
		text += ", or " + v.Remedies[1].On(v.Host)
	}
	if rate := v.Remedies[0].Expect; rate > 0 {
		text += ": expect " + units.Rate(rate)
	}
	return text
}

// On says the remedy in one line, for a host of this name unless it has its own.
func (r *Remedy) On(host string) string {
	where := ""
	if host = cmp.Or(r.Host, host); host != "" {
		where = " on " + host
	}
	switch {
	case r.Sysctl != nil:
		value := r.Sysctl.Value
		if strings.Contains(value, " ") {
			value = `"` + value + `"`
		}
		return "sudo sysctl -w " + r.Sysctl.Name + "=" + value + where
	case r.Command != "":
		return r.Command + where
	case r.Flag != "":
		return r.Flag
	}
	return r.Advice
}
