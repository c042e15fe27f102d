// Package words turns the verdicts of package diagnose into sentences. The command line, the
// dashboard and the notifications of backups use them, so the package is below all three.
package words

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/units"
)

// Line describes a limiter in one line, with its share of the time and the first evidence.
func Line(v *diagnose.Verdict) string {
	text := fmt.Sprintf("%s (%s of the time", Name(v), units.Percent(v.Share))
	if len(v.Evidence) > 0 {
		text += "; " + Fact(&v.Evidence[0])
	}
	return text + ")"
}

// Name returns a limiter with its host.
func Name(v *diagnose.Verdict) string {
	if v.Host == "" {
		return string(v.Limiter)
	}
	return string(v.Limiter) + " on " + v.Host
}

// Hint says in one line what to do: the first remedy, and the second one if it is a flag. It is
// "" if nothing can be done.
func Hint(v *diagnose.Verdict) string {
	if len(v.Remedies) == 0 {
		return ""
	}
	text := Remedy(&v.Remedies[0], v.Host)
	if len(v.Remedies) > 1 && PartsOf(&v.Remedies[1]).Flag != "" {
		text += ", or " + Remedy(&v.Remedies[1], v.Host)
	}
	return text + Expected(&v.Remedies[0])
}

// Expected says what goodput to expect from a remedy. It is "" if that is unknown.
func Expected(r *diagnose.Remedy) string {
	if r.Expect <= 0 {
		return ""
	}
	return ": expect " + units.Rate(r.Expect)
}

// Evidence returns the facts of a verdict, one sentence each.
func Evidence(v *diagnose.Verdict) []string {
	all := make([]string, 0, len(v.Evidence))
	for i := range v.Evidence {
		all = append(all, Fact(&v.Evidence[i]))
	}
	return all
}

// Fact describes what was found.
func Fact(f *diagnose.Fact) string {
	share, rate, bytes := units.Percent(f.Share), units.Rate(f.Rate), units.Bytes(f.Bytes)
	switch f.Kind {
	case diagnose.WindowObtained:
		most := units.Rate(float64(f.Bytes) * float64(f.Count) * 8 / f.Time.Seconds())
		return fmt.Sprintf("it allows %s per round trip and stream; %s × %s / %s = %s",
			bytes, units.Count(f.Count, "stream", "streams"), bytes, units.Time(f.Time), most)
	case diagnose.WindowHeldBack:
		return fmt.Sprintf("it held data back for %s of the time with data in flight", share)
	case diagnose.LineBDP:
		return fmt.Sprintf("a line of %s would take a BDP of %s in flight", lineRate(f.Rate), bytes)
	case diagnose.ScalingOff:
		return "net.ipv4.tcp_window_scaling is off on " + hostName(f.Host)
	case diagnose.AutotuningOff:
		return "net.ipv4.tcp_moderate_rcvbuf is off: the buffer does not grow"
	case diagnose.SockBufAsked:
		return fmt.Sprintf("--sock-buf asked for %s on both hosts", bytes)
	case diagnose.SockBufOfServer:
		return fmt.Sprintf("fxfer serve was started with --sock-buf %d", f.Bytes)
	case diagnose.RmemEnds:
		return fmt.Sprintf("net.ipv4.tcp_rmem ends at %s, about half of which becomes window", bytes)
	case diagnose.WmemEnds:
		return fmt.Sprintf("net.ipv4.tcp_wmem ends at %s, about two thirds of which is payload", bytes)
	case diagnose.WmemMaxReached:
		return fmt.Sprintf("the buffer is %s, as much as net.core.wmem_max allows", bytes)
	case diagnose.ReceiverWindowFull:
		return fmt.Sprintf("%s of the time with data in flight the window of the receiver was full", share)
	case diagnose.SendBufferFull:
		return fmt.Sprintf("%s of the time with data in flight the send buffer was full", share)
	case diagnose.BufferObtained:
		return fmt.Sprintf("the buffer is %s, and the path needs %s (its BDP)", bytes, units.Bytes(f.Need))

	case diagnose.PathCarries:
		return "the path carries " + rate
	case diagnose.RoundTrips:
		return roundTrips(f)
	case diagnose.SegmentsResent:
		return resent(f)
	case diagnose.LossNoQueue:
		return resent(f) + ", and no queue: " + roundTrips(f)
	case diagnose.Overtaken:
		return fmt.Sprintf("%d times segments overtook others; %s of those sent again had arrived", f.Count, share)
	case diagnose.ControlSlows:
		return cmp.Or(f.Name, "the congestion control") + " takes each loss for a full queue and slows down"
	case diagnose.QueueOnPath:
		return roundTrips(f) + ": all data on the path, including other people's, waits in a queue"
	case diagnose.RampUp:
		return fmt.Sprintf("%s, with an RTT of %s: connecting, and windows that double with each round trip", units.Time(f.Time), units.Time(f.Least))
	case diagnose.InitialWindowOf:
		return fmt.Sprintf("the route on %s has %s %d, and the lower one of initcwnd and initrwnd counts", hostName(f.Host), f.Name, f.Count)
	case diagnose.NothingAcked:
		return "nothing was acknowledged for " + units.Time(f.Time)
	case diagnose.PacketsVanish:
		return fmt.Sprintf("packets of %d bytes vanish, smaller ones arrive, and no ICMP message names the largest size that passes", f.Bytes)
	case diagnose.ResentInVain:
		return fmt.Sprintf("segments were sent again %d times, and none arrived", f.Count)
	case diagnose.FlowMeasured:
		return fmt.Sprintf("%s, %s: %s", f.Name, units.Count(f.Count, "stream", "streams"), rate)
	case diagnose.LossAfterStart:
		return share + " of the segments sent again after slow start"
	case diagnose.RTTIdleLoaded:
		return fmt.Sprintf("round trip %s idle, %s under load", units.Time(f.Least), units.Time(f.Time))
	case diagnose.RTTWithoutQueue:
		return fmt.Sprintf("round trip %s idle, %s under load: no queue", units.Time(f.Least), units.Time(f.Time))
	case diagnose.BloatGrade:
		return "grade " + f.Name
	case diagnose.ProbesVanish:
		return fmt.Sprintf("%s: packets of %d bytes pass, those of %d vanish, and no router says so", f.Name, f.Bytes, f.Need)
	case diagnose.DroppedAbove:
		return fmt.Sprintf("what exceeds %s is dropped without delay, and with less next to nothing is; %s", rate, resent(f))
	case diagnose.LostInOwnQueue:
		return fmt.Sprintf("%s of the segments were lost in a queue that fxfer filled", share)
	case diagnose.GotBesideOthers:
		return fmt.Sprintf("fxfer got %s beside other traffic%s", rate, atMost(f))
	case diagnose.QueueOfOthers:
		return fmt.Sprintf("%s of the time a queue stayed although fxfer sent less", share)
	case diagnose.LeftToOthers:
		return fmt.Sprintf("%s of the time fxfer left the line to other traffic: it got %s%s", share, rate, atMost(f))
	case diagnose.SACKOff:
		return "net.ipv4.tcp_sack is off on " + hostName(f.Host) + ": the sender cannot see what has arrived after a loss"
	case diagnose.TimestampsOff:
		return "net.ipv4.tcp_timestamps is off on " + hostName(f.Host) + ": the sender cannot see that it sent again in vain"
	case diagnose.RelayCarries:
		return fmt.Sprintf("the way through it carries %s, and from here its legs look like one", rate)
	case diagnose.NothingStandsOut:
		return "no stage and no window stands out; " + rate
	case diagnose.RateAsked:
		return fmt.Sprintf("%s asked for, %s on the line", units.Rate(f.Limit), rate)
	case diagnose.RateOfServer:
		return fmt.Sprintf("%s on the line, as the server's rate limit allows", rate)

	case diagnose.ProgramWrites:
		return fmt.Sprintf("it wrote %s, and %s of the time nothing waited to be sent", rate, share)
	case diagnose.ProgramSteady:
		return fmt.Sprintf("the program writes %s without a break, and the connection takes more: a limit of its own, or a steady source", rate)
	case diagnose.SocketPaced:
		return fmt.Sprintf("the program has set SO_MAX_PACING_RATE to %s; %s arrives", units.Rate(f.Limit), rate)
	case diagnose.ReaderSlow:
		return fmt.Sprintf("%s of the time data waited in the receive buffer for the program to read it; it reads %s", share, rate)
	case diagnose.WindowShut:
		return fmt.Sprintf("%s of the time the receiver had closed its window, or nearly so: its program reads %s", share, rate)
	case diagnose.RequestsBring:
		return fmt.Sprintf("nothing is sent until the other side asks: %d requests a second bring %s each, and a round trip takes %s", f.Count, bytes, units.Time(f.Time))
	case diagnose.NagleWaits:
		return fmt.Sprintf("%s of the time (%s) a small write waited for the acknowledgement of the one before: Nagle's algorithm and delayed ACK", share, units.Time(f.Time))
	case diagnose.BufferByItself:
		return fmt.Sprintf("the buffer is %s, and autotuning could take %s: the program has set %s", bytes, units.Bytes(f.Need), f.Name)
	case diagnose.SeenFromHere:
		return fmt.Sprintf("%s arrives; this end reads in time and its window is open", rate)
	case diagnose.NothingHeld:
		return fmt.Sprintf("no buffer and no window held data back; %s", rate)

	case diagnose.StdinWaited:
		return fmt.Sprintf("fxfer waited for standard input during %s of the time; it delivered %s", share, rate)
	case diagnose.Reading:
		return fmt.Sprintf("streams spent %s of the time in reading the source, at %s", share, rate)
	case diagnose.Listing:
		return fmt.Sprintf("streams waited while folders were listed, %s of the time", share)
	case diagnose.Syncing:
		return fmt.Sprintf("flushing files to the disk took %s of the time", share)
	case diagnose.Writing:
		return fmt.Sprintf("streams spent %s of the time in writing to the target, at %s", share, rate)
	case diagnose.Comparing:
		return fmt.Sprintf("looking at what the target has and naming files took %s of the time", share)
	case diagnose.CPUUsed:
		return fmt.Sprintf("the process used %s of the %.3g cores that it may use", share, f.Cores)
	case diagnose.CPUWaited:
		return fmt.Sprintf("its threads waited %.2g s for a free CPU", f.Time.Seconds())
	case diagnose.Compressing:
		return fmt.Sprintf("compression took %s of the streams' time", share)
	case diagnose.Computing:
		return fmt.Sprintf("streams spent %s of the time in digests and compression", share)
	case diagnose.CPUsBusy:
		return fmt.Sprintf("%s of the %s's CPUs were busy, and almost nothing was lost", share, f.Name)
	}
	return string(f.Kind)
}

// lineRate formats the rate of a line without a fraction: 1 Gbit/s.
func lineRate(rate float64) string { return fmt.Sprintf("%g Gbit/s", rate/1e9) }

func hostName(name string) string { return cmp.Or(name, "its host") }

func resent(f *diagnose.Fact) string {
	if f.Share == 0 {
		return "nothing was lost"
	}
	return units.Percent(f.Share) + " of the segments were sent again"
}

// atMost compares a rate with the most that a transfer got.
func atMost(f *diagnose.Fact) string {
	if f.Limit <= f.Rate {
		return ""
	}
	return fmt.Sprintf(", %s of the %s that it had at most", units.Percent(f.Rate/f.Limit), units.Rate(f.Limit))
}

func roundTrips(f *diagnose.Fact) string {
	if f.Time == 0 || f.Least == 0 {
		return "RTT unknown"
	}
	return fmt.Sprintf("RTT %s, at least %s", units.Time(f.Time), units.Time(f.Least))
}

// Parts says what a user has to do for a remedy. Exactly one field is set, unless the remedy has
// a Sysctl.
type Parts struct {
	Flag    string // of this command, such as "--streams 8"
	Command string // to run on the host
	Advice  string // in words, if no command can do it
}

// allowBBR allows BBR for every process and keeps the other allowed controls.
const allowBBR = `sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="$(sysctl -n net.ipv4.tcp_allowed_congestion_control) bbr"`

// fixed are the remedies without parameters.
var fixed = map[diagnose.RemedyKind]Parts{
	diagnose.AutoSockBuf:       {Flag: "--sock-buf auto"},
	diagnose.UseBBR:            {Flag: "--congestion bbr"},
	diagnose.SyncBatches:       {Flag: "--sync batch"},
	diagnose.NoCompression:     {Flag: "--compress none"},
	diagnose.ServerAutoSockBuf: {Command: "fxfer serve without --sock-buf"},
	diagnose.AllowBBR:          {Command: allowBBR},
	diagnose.LoadBBR:           {Command: "sudo modprobe tcp_bbr && " + allowBBR},
	diagnose.ManageQueue:       {Advice: "fq_codel or cake on the router in front of the slow line"},
	diagnose.QueueAtBottleneck: {Advice: "fq_codel or cake at the bottleneck"},
	diagnose.LongerTransfers:   {Advice: "longer transfers are hardly affected; a larger initcwnd of the sender's route helps: `fxfer doctor` there shows the command"},
	diagnose.RaiseInitCwnd:     {Advice: "raise initcwnd of the sender's route: `fxfer doctor` there shows the command"},
	diagnose.RaiseInitRwnd:     {Advice: "raise initrwnd of the receiver's route: `fxfer doctor` there shows the command"},
	diagnose.FasterFeed:        {Advice: "the program that feeds fxfer is slow: make it faster"},
	diagnose.FasterSource:      {Advice: "a faster disk, or fewer other programs that read from it"},
	diagnose.FasterTarget:      {Advice: "a faster disk, or fewer other programs that write to it"},
	diagnose.SyncNothing:       {Advice: "--sync none, if you can afford to lose the new files in a power cut"},
	diagnose.RaiseLimit:        {Advice: "a higher --rate-limit, or none"},
	diagnose.RaiseServerLimit:  {Advice: "a higher rate-limit for this client, share or server in its configuration"},
	diagnose.MoreCPU:           {Advice: "more CPU: check the quota (cpu.max), other programs on the host, and the machine itself"},
	diagnose.FixPathMTU:        {Advice: "let ICMP pass the firewalls, or lower the MTU of the route"},
	diagnose.ClampMSS:          {Advice: `let ICMP "fragmentation needed" and "packet too big" through, or clamp the MSS at the tunnel`},
	diagnose.ProbeNextLeg:      {Advice: "run `fxfer probe` on the relay's host: it measures the leg from there"},
	diagnose.AskProvider:       {Advice: "nothing to gain here: ask the owner of the line for a higher rate, or for a queue instead of a policer"},
	diagnose.NormalPriority:    {Flag: "--priority normal"},
	diagnose.HighPriority:      {Advice: "--priority high, if the line is yours: others then get less"},
	diagnose.BBRForAll:         {Command: "sudo modprobe tcp_bbr && sudo sysctl -w net.ipv4.tcp_congestion_control=bbr"},
	diagnose.FasterProgram:     {Advice: "make the sending program or its source faster: look at its CPU and its disk"},
	diagnose.FasterReader:      {Advice: "make the receiving program or its disk faster: look at its CPU and its disk"},
	diagnose.ProgramRate:       {Advice: "a higher rate limit in the program's own settings, or none"},
	diagnose.MoreRequests:      {Advice: "larger requests, more of them at once (read-ahead), or several files at the same time"},
	diagnose.OneWrite:          {Advice: "write each message with one call (writev), or set TCP_NODELAY on both sides"},
	diagnose.LeaveBuffers:      {Advice: "let the program leave its socket buffers to autotuning, or set them larger"},
	diagnose.RaiseTheirs:       {Advice: "on the receiving host, let the program leave SO_RCVBUF alone, and raise net.ipv4.tcp_rmem: `fxfer doctor` there shows the value"},
	diagnose.MoreConnections:   {Advice: "several connections at the same time, if the program can"},
	diagnose.LookAtSender:      {Advice: "run `fxfer explain` at the sender: the rest shows only there"},
	diagnose.RaiseRmem:         {Advice: "raise net.ipv4.tcp_rmem there: `fxfer doctor` shows the value"},
	diagnose.RaiseWmem:         {Advice: "raise net.ipv4.tcp_wmem and net.core.wmem_max there: `fxfer doctor` shows the value"},
}

// PartsOf returns the parts of a remedy.
func PartsOf(r *diagnose.Remedy) Parts {
	switch r.Kind {
	case diagnose.MoreStreams:
		return Parts{Flag: fmt.Sprintf("--streams %d", r.Streams)}
	case diagnose.MoreAutoStreams:
		return Parts{Flag: fmt.Sprintf("--max-streams %d", r.Streams)}
	case diagnose.LimitRate:
		return Parts{Flag: "--rate-limit " + units.ExactRate(r.Rate)}
	case diagnose.LimitProgram:
		return Parts{Advice: "limit the program's rate to " + units.Rate(float64(r.Rate))}
	}
	return fixed[r.Kind]
}

// Remedy says in one line what to do. host is where to do it, unless the remedy names another
// host.
func Remedy(r *diagnose.Remedy, host string) string {
	where := ""
	if host = cmp.Or(r.Host, host); host != "" {
		where = " on " + host
	}
	if r.Sysctl != nil {
		value := r.Sysctl.Value
		if strings.Contains(value, " ") {
			value = `"` + value + `"`
		}
		return "sudo sysctl -w " + r.Sysctl.Name + "=" + value + where
	}
	p := PartsOf(r)
	if p.Command != "" {
		return p.Command + where
	}
	return p.Flag + p.Advice
}
