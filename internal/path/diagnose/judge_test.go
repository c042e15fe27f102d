package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const second = time.Second

// perSecond returns samples of a side whose counters grow evenly by x per second.
func perSecond(x Sample, seconds float64) []Sample {
	var all []Sample
	const step = 250 * time.Millisecond
	for t := time.Duration(0); t.Seconds() <= seconds; t += step {
		s := x
		for _, f := range s.fields() {
			if !f.gauge {
				*f.value = int64(float64(*f.value) * t.Seconds())
			}
		}
		s.At = t
		all = append(all, s)
	}
	return all
}

// busySender has 8 streams that send all the time over a path of 50 ms with cubic, at 400 Mbit/s,
// with CPU to spare.
func busySender() Sample {
	return Sample{
		Send: 7 * second, Read: 500 * time.Millisecond, Digest: 500 * time.Millisecond, CPU: 300 * time.Millisecond, RunDelay: 10 * time.Millisecond,
		Cores: 2000, Streams: 8, Busy: 8 * second, Backlog: 8 * second, Acked: 50e6, Payload: 50e6, Segments: 35000,
		MinRTT: 50 * time.Millisecond, RTT: 75 * time.Millisecond, Flying: second, RTTSum: int64(75 * time.Millisecond),
		InFlight: 4e6, Cwnd: 4e6, SndWnd: 6e6, SndBuf: 8e6, RcvBuf: 131072, PMTU: 1500, MSS: 1448, Control: Cubic,
	}
}

// readyReceiver waits for the network.
func readyReceiver() Sample {
	return Sample{
		Receive: 7500 * time.Millisecond, Digest: 250 * time.Millisecond, Write: 250 * time.Millisecond, CPU: 300 * time.Millisecond, Cores: 2000,
		Streams: 8, Received: 50e6, Payload: 50e6, RcvBuf: 6e6, MinRTT: 50 * time.Millisecond,
	}
}

// brief describes the first two remedies with their parameters.
func brief(v *Verdict) string {
	var text strings.Builder
	for _, r := range v.Remedies[:min(2, len(v.Remedies))] {
		text.WriteString(string(r.Kind))
		if s := r.Sysctl; s != nil {
			value := s.Value
			if strings.Contains(value, " ") {
				value = strconv.Quote(value)
			}
			fmt.Fprintf(&text, " %s=%s on %s", s.Name, value, cmp.Or(r.Host, v.Host))
		}
		if r.Streams > 0 {
			fmt.Fprintf(&text, " %d", r.Streams)
		}
		text.WriteString("; ")
	}
	return text.String()
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(s, r *Sample)
		want   Limiter
		remedy string // part of the first two remedies, if anything
	}{
		{"the queue of the line is in use", func(s, r *Sample) {}, LineRate, ""},
		{"BBR at the end of the line, no queue", func(s, r *Sample) { s.Control, s.RTTSum = BBR, int64(51*time.Millisecond) }, LineRate, ""},
		{"the peer's window is closed", func(s, r *Sample) { s.RwndLimited, s.Backlog = 7*second, 8*second }, ReceiverWindow, `net.ipv4.tcp_rmem="4096 131072 16777216" on right`},
		{"a pacing sender fills the peer's window", func(s, r *Sample) { s.Windowed, s.Control, s.RTTSum = 7*second, BBR, int64(51*time.Millisecond) }, ReceiverWindow, "tcp_rmem"},
		{"all that the send buffer holds is in flight", func(s, r *Sample) { s.SndbufLimited, s.Backlog, s.SndBuf = 6*second, 0, 4<<20 }, SenderBuffer, `net.ipv4.tcp_wmem="4096 16384 16777216" on left`},
		{"the buffer that was asked for is too small", func(s, r *Sample) { s.SndbufLimited, s.Backlog = 6*second, 0 }, SenderBuffer, "net.core.wmem_max=8388608 on left"},
		{"loss without a queue", func(s, r *Sample) { s.Retrans, s.RTTSum = 175, int64(51*time.Millisecond) }, RandomLoss, string(UseBBR)},
		{"loss with a queue is how cubic finds the end of the line", func(s, r *Sample) { s.Retrans = 175 }, LineRate, ""},
		{"overtaken segments were not lost", func(s, r *Sample) {
			s.Retrans, s.Spurious, s.Reordered, s.RTTSum = 175, 160, 90, int64(51*time.Millisecond)
		}, Reordering, string(UseBBR)},
		{"none was lost, and what waits for the overtaken ones looks like a queue", func(s, r *Sample) { s.Retrans, s.Spurious = 60, 58 }, Reordering, ""},
		{"loss without a queue, one RTT of the sender being too small", func(s, r *Sample) {
			s.Retrans, s.RTTSum, s.MinRTT = 175, int64(51*time.Millisecond), 42*time.Millisecond
		}, RandomLoss, ""},
		{"loss without a queue, by a pacing sender whose own RTT is half of the path's", func(s, r *Sample) {
			s.Priority, s.BaseRTT, s.Retrans, s.RTTSum, s.MinRTT = 2, 50*time.Millisecond, 175, int64(52*time.Millisecond), 26*time.Millisecond
		}, RandomLoss, ""},
		{"a path that only reorders costs nothing", func(s, r *Sample) { s.Reordered, s.RTTSum = 90, int64(51*time.Millisecond) }, LineRate, ""},
		{"a sender that paces at the line's rate needs most of its buffer", func(s, r *Sample) {
			s.Priority, s.Buffered, s.Control, s.RTTSum = 2, 9*second, BBR, int64(51*time.Millisecond)
		}, LineRate, ""},
		{"a sender that still looks for the line's rate fills its buffer", func(s, r *Sample) {
			s.Priority, s.Starting, s.Buffered, s.Control, s.RTTSum = 2, 9*second, 9*second, BBR, int64(51*time.Millisecond)
		}, SenderBuffer, ""},
		{"probes of a tail", func(s, r *Sample) { s.Retrans, s.Spurious = 3, 3 }, LineRate, ""},
		{"a queue of 400 ms", func(s, r *Sample) { s.RTTSum = int64(450 * time.Millisecond) }, Bufferbloat, string(UseBBR)},
		{"reading takes the time", func(s, r *Sample) { s.Read, s.Send, s.Backlog = 7*second, second, 0 }, SourceDisk, ""},
		{"reading takes the time, and pacing leaves what was read in the sockets for a while", func(s, r *Sample) {
			s.Read, s.Send, s.Busy, s.Backlog = 7*second, second, 2*second, second
		}, SourceDisk, ""},
		{"listing takes the time", func(s, r *Sample) { s.Idle, s.Send, s.Backlog, s.Walk = 7*second, 0, 0, second }, SourceDisk, ""},
		{"writing takes the time", func(s, r *Sample) { r.Receive, r.Write, s.RwndLimited = second, 7*second, 6*second }, TargetDisk, ""},
		{"comparing takes the time", func(s, r *Sample) { s.Idle, s.Send, s.Backlog, r.Compare = 7*second, 0, 0, second }, TargetDisk, ""},
		{"syncs take the time", func(s, r *Sample) {
			s.Idle, s.Send, s.Backlog = 7*second, second, second
			r.Receive, r.Full, r.Sync, r.Name = second, 7*second, 900*time.Millisecond, second
		}, Sync, string(SyncNothing)},
		{"a quota of CPU at the sender", func(s, r *Sample) { s.Cores, s.CPU, s.Backlog = 200, 190*time.Millisecond, 0 }, SenderCPU, ""},
		{"a quota of CPU at the sender, which fills buffers at times", func(s, r *Sample) { s.Cores, s.CPU, s.Backlog = 25, 24*time.Millisecond, 5*second }, SenderCPU, ""},
		{"others have half of what the sender wants", func(s, r *Sample) { s.CPU, s.RunDelay = 1200*time.Millisecond, 1200*time.Millisecond }, SenderCPU, ""},
		{"others have some of the CPU, and the line is full", func(s, r *Sample) { s.CPU, s.RunDelay = 600*time.Millisecond, 3*second }, LineRate, ""},
		{"others have the sender's CPU", func(s, r *Sample) { s.CPU, s.RunDelay, s.Backlog = 600*time.Millisecond, 3*second, 0 }, SenderCPU, ""},
		{"a quota of CPU at the receiver", func(s, r *Sample) { r.Cores, r.CPU, s.RwndLimited = 200, 190*time.Millisecond, 6*second }, ReceiverCPU, ""},
		{"compression takes the time", func(s, r *Sample) { s.Code, s.Send, s.Backlog = 7*second, second, 0 }, SenderCPU, string(NoCompression)},
		{"held back by a flag", func(s, r *Sample) { s.RateWait, s.Backlog = 6*second, 0 }, RateLimit, string(RaiseLimit)},
		{"held back by the server that receives", func(s, r *Sample) { r.Receive, r.RateWait, s.RwndLimited = 8*second, 7*second, 6*second }, RateLimit, string(RaiseServerLimit)},
		{"nothing comes from standard input", func(s, r *Sample) { s.Feed, s.Idle, s.Send, s.Backlog = second, 8*second, 0, 0 }, Silent, ""},
		{"others use the line, too", func(s, r *Sample) { s.Priority, s.Shared = 2, 900*time.Millisecond }, SharedLine, string(HighPriority)},
		{"others keep a short queue", func(s, r *Sample) {
			s.Priority, s.Shared, s.RTTSum = 2, 900*time.Millisecond, int64(53*time.Millisecond)
		}, SharedLine, string(HighPriority)},
		{"nobody is there, and the session holds back", func(s, r *Sample) {
			s.Priority, s.Shared, s.RTTSum, s.Control = 2, 900*time.Millisecond, int64(51*time.Millisecond), BBR
		}, Unknown, ""},
		{"nobody is there, but loss", func(s, r *Sample) {
			s.Priority, s.Shared, s.RTTSum, s.Retrans = 2, 900*time.Millisecond, int64(51*time.Millisecond), 175
		}, RandomLoss, ""},
		{"others use the line, and are rarely noticed", func(s, r *Sample) { s.Priority, s.Shared = 2, 300*time.Millisecond }, LineRate, ""},
		{"a low priority leaves the line to others", func(s, r *Sample) { s.Priority, s.Yielded, s.Backlog = 1, 900*time.Millisecond, 0 }, OwnPriority, string(NormalPriority)},
		{"a slow disk, and others on the line", func(s, r *Sample) {
			s.Priority, s.Yielded, s.Read, s.Send, s.Backlog = 1, 900*time.Millisecond, 7*second, second, 0
		}, SourceDisk, ""},
		{"a policer", func(s, r *Sample) {
			s.Priority, s.Policed, s.Retrans, s.RTTSum = 2, 900*time.Millisecond, 175, int64(51*time.Millisecond)
		}, Policed, string(AskProvider)},
		{"fxfer floods the line", func(s, r *Sample) { s.Priority, s.Retrans, s.LostOwn = 2, 1200, 1100 }, OwnQueue, string(LimitRate)},
		{"others flood the line", func(s, r *Sample) { s.Priority, s.Retrans, s.LostOthers = 2, 1200, 1100 }, LineRate, ""},
		{"a fixed buffer is full, and so is the line", func(s, r *Sample) {
			s.Priority, s.SndbufLimited, s.RwndLimited, s.Buffered = 2, 7*second, 7*second, 7*second
		}, LineRate, ""},
		{"a narrow line", func(s, r *Sample) {
			s.Priority, s.Acked, r.Received, s.Segments = 2, 60e3, 60e3, 42
			s.RTTSum = int64(160 * time.Millisecond) // two packets of 24 ms, and an aim
		}, NarrowLine, ""},
		{"a narrow line long after its start", func(s, r *Sample) {
			s.Priority, s.Acked, r.Received, s.Segments = 2, 60e3, 60e3, 42
			s.RTTSum, s.MSS, s.InFlight = int64(2*second), 1448, 4*1448 // the mean follows slowly
		}, NarrowLine, ""},
		{"a narrow line with a long queue", func(s, r *Sample) {
			s.Priority, s.Acked, r.Received, s.Segments = 2, 60e3, 60e3, 42
			s.RTTSum, s.MSS, s.InFlight = int64(2*second), 1448, 80*1448
		}, Bufferbloat, ""},
		{"threads of the receiver wait for one another", func(s, r *Sample) { r.CPU, r.RunDelay = 580*time.Millisecond, 3*second }, LineRate, ""},
		{"others have the receiver's CPU", func(s, r *Sample) { r.CPU, r.RunDelay, s.RwndLimited = 580*time.Millisecond, 3*second, 6*second }, ReceiverCPU, ""},
		{"digests take time and no CPU", func(s, r *Sample) {
			r.Digest, r.Receive, r.CPU = 7*second, second, 580*time.Millisecond
		}, Unknown, ""},
		{"nothing large gets through", func(s, r *Sample) {
			s.Acked, s.Payload, s.Retrans, r.Received, r.Payload = 0, 0, 40, 0, 0
		}, BlackHole, "net.ipv4.tcp_mtu_probing=1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, r := busySender(), readyReceiver()
			test.change(&s, &r)
			x := &Session{Sender: perSecond(s, 6), Receiver: perSecond(r, 6)}
			left := Host{Name: "left", WmemMin: 4096, WmemDefault: 16384, WmemMax: 4 << 20, BBR: BBRAllowed}
			right := Host{Name: "right", RmemMin: 4096, RmemDefault: 131072, RmemMax: 6 << 20}
			verdicts := Judge(Cells(x), &left, &right, &Asked{Here: Sender, RateLimit: 1e6})
			require.NotEmpty(t, verdicts)
			first := verdicts[0]
			require.Equal(t, test.want, first.Limiter, "%+v", verdicts)
			require.NotEmpty(t, first.Evidence)
			require.Contains(t, brief(&first), test.remedy)
			if first.Side == Receiver {
				require.Equal(t, "right", first.Host)
			}
			sum := 0.0
			for _, v := range verdicts {
				sum += v.Share
			}
			require.InDelta(t, 1, sum, 1e-9)
		})
	}
}

// Without a queue and loss, a line that carries much more later was not full.
func TestJudgeRising(t *testing.T) {
	s, r := busySender(), readyReceiver()
	s.Priority, s.RTTSum = 2, int64(51*time.Millisecond)
	x := &Session{Sender: perSecond(s, 12), Receiver: perSecond(r, 12)}
	for i := range x.Sender {
		at := &x.Sender[i]
		at.Acked = int64(float64(at.Acked) * min(1, at.At.Seconds()/6))
		x.Receiver[i].Received = at.Acked
	}
	cells := Cells(x)
	require.Equal(t, SlowStart, cells[6].Limiter)
	require.Equal(t, LineRate, cells[len(cells)-4].Limiter)
}

// A setting that is off is the cause of what follows from it, and is named with its host.
func TestJudgeSettingsOff(t *testing.T) {
	s, r := busySender(), readyReceiver()
	s.Priority, s.Control, s.Retrans, s.RTTSum = 2, BBR, 175, int64(51*time.Millisecond)
	x := &Session{Sender: perSecond(s, 6), Receiver: perSecond(r, 6)}
	left, right := Host{Name: "left", BBR: BBRAllowed}, Host{Name: "right", NoSACK: 1}
	x.SenderHost, x.ReceiverHost = left, right
	first := Judge(Cells(x), &left, &right, &Asked{})[0]
	require.Equal(t, NoSACK, first.Limiter)
	require.Equal(t, "right", first.Host)
	require.Contains(t, brief(&first), "net.ipv4.tcp_sack=1 on right")

	for name, c := range map[string]struct {
		change func(s *Sample)
		early  int64 // bytes more in the first second
		want   Limiter
	}{
		"SACK is for losses":                           {func(s *Sample) { s.Retrans = 0 }, 0, LineRate},
		"a stream seldom loses anything":               {func(s *Sample) { s.Retrans = 18 }, 0, LineRate},
		"its window is too small to lose much":         {func(s *Sample) { s.Control, s.Acked, s.Segments, s.Retrans = Cubic, 2.5e6, 1750, 9 }, 0, RandomLoss},
		"the line carried more before":                 {func(s *Sample) { s.Retrans = 18 }, 50e6, NoSACK},
		"the controller takes late answers for others": {func(s *Sample) { s.Retrans, s.Shared = 18, second }, 0, NoSACK},
		"or for a policer":                             {func(s *Sample) { s.Retrans, s.Policed = 18, second }, 0, NoSACK},
	} {
		y := s
		c.change(&y)
		x.Sender = perSecond(y, 6)
		for i := range x.Sender { // one sample is 250 ms
			x.Sender[i].Acked += c.early * int64(min(i, 4)) / 4
		}
		require.Equal(t, c.want, Judge(Cells(x), &left, &right, &Asked{})[0].Limiter, name)
	}

	s.Control, s.Retrans, s.Spurious, s.Reordered = Cubic, 175, 160, 90
	right = Host{Name: "right", NoTimestamps: 1}
	first = Judge(Cells(&Session{Sender: perSecond(s, 6), Receiver: perSecond(r, 6)}), &left, &right, &Asked{})[0]
	require.Equal(t, Reordering, first.Limiter)
	require.Contains(t, brief(&first), "net.ipv4.tcp_timestamps=1 on right")
}

// Streams that fill their windows leave no queue where the line is not full. What they lost long ago has
// made the windows small.
func TestJudgeShrunk(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Sample)
		want   Limiter
	}{
		"nothing was lost, and the line carried more before": {func(s *Sample) { s.Acked = 25e6 }, Unknown},
		"overtaken segments were resent":                     {func(s *Sample) { s.Spurious, s.Reordered = 5, 5 }, Reordering},
		"segments were lost":                                 {func(s *Sample) { s.LostLine = 5 }, RandomLoss},
		"they were lost in a queue":                          {func(s *Sample) { s.LostOwn = 5 }, LineRate},
		"nothing was lost":                                   {func(*Sample) {}, LineRate},
		"a pace holds data back":                             {func(s *Sample) { s.LostLine, s.Cwnd = 5, 2*s.InFlight }, LineRate},
		"a queue shows that it is full":                      {func(s *Sample) { s.LostLine, s.RTTSum = 5, int64(53*time.Millisecond) }, LineRate},
		"BBR does not take loss for queue":                   {func(s *Sample) { s.LostLine, s.Control = 5, BBR }, LineRate},
	} {
		s, r := busySender(), readyReceiver()
		s.Priority, s.Control, s.Streams, s.RTTSum = 2, Reno, 1, int64(50*time.Millisecond)
		c.change(&s)
		x := &Session{Sender: perSecond(s, 12), Receiver: perSecond(r, 12)}
		for i := range x.Sender[1:] { // all in the first moment
			at := &x.Sender[i+1]
			at.Spurious, at.Reordered, at.LostOwn, at.LostLine = s.Spurious, s.Reordered, s.LostOwn, s.LostLine
			at.Retrans = s.Spurious + s.LostOwn + s.LostLine
			at.Acked += (50e6 - s.Acked) * int64(min(i+1, 4)) / 4 // a sample is 250 ms: all have the same first second
		}
		require.Equal(t, c.want, Judge(Cells(x), &Host{}, &Host{}, &Asked{})[0].Limiter, name)
	}
}

// Within one host there is no path, and no window to raise.
func TestJudgeLoopback(t *testing.T) {
	for _, change := range []func(s *Sample){
		func(*Sample) {}, func(s *Sample) { s.RwndLimited = 7 * second }, func(s *Sample) { s.SndbufLimited = 7 * second },
	} {
		s, r := busySender(), readyReceiver()
		change(&s)
		x := &Session{Sender: perSecond(s, 3), Receiver: perSecond(r, 3), SenderHost: Host{Loopback: 1}}
		require.Equal(t, Unknown, Judge(Cells(x), &x.SenderHost, &x.ReceiverHost, &Asked{})[0].Limiter)
	}
}

// A relay takes no more than it can pass on. That is no queue of this leg, and no window to raise; a
// loss here is.
func TestJudgeRelayed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s, r *Sample)
		want   Limiter
	}{
		"the leg beyond is full":     {func(_, _ *Sample) {}, Relay},
		"the relay answers late":     {func(s, _ *Sample) { s.RTTSum = int64(450 * time.Millisecond) }, Relay},
		"the relay's window is shut": {func(s, _ *Sample) { s.RwndLimited, s.Backlog = 7*second, 8*second }, Relay},
		"a queue on this leg":        {func(s, _ *Sample) { s.RTTSum, s.Retrans = int64(450*time.Millisecond), 175 }, Bufferbloat},
		"loss on this leg":           {func(s, _ *Sample) { s.Retrans, s.RTTSum = 175, int64(51*time.Millisecond) }, RandomLoss},
		"the disk at the end":        {func(s, r *Sample) { r.Receive, r.Write, s.RwndLimited = second, 7*second, 6*second }, TargetDisk},
	} {
		for _, x := range []*Session{{SenderHost: Host{Relayed: 1}}, {ReceiverHost: Host{Relayed: 1}}} {
			s, r := busySender(), readyReceiver()
			c.change(&s, &r)
			x.Sender, x.Receiver = perSecond(s, 6), perSecond(r, 6)
			require.Equal(t, c.want, Judge(Cells(x), &x.SenderHost, &x.ReceiverHost, &Asked{})[0].Limiter, name)
		}
	}
}

// Where too little was measured, there is no verdict.
func TestJudgeTooLittle(t *testing.T) {
	s, r := busySender(), readyReceiver()
	judge := func(seconds float64) []Verdict {
		return Judge(Cells(&Session{Sender: perSecond(s, seconds), Receiver: perSecond(r, seconds)}), &Host{}, &Host{}, &Asked{})
	}
	require.NotEmpty(t, judge(0.5))
	s.Acked, s.Payload, r.Received, r.Payload = 4000, 4, 4000, 4
	require.Empty(t, judge(0.5), "2 bytes")
	require.NotEmpty(t, judge(2))
	short := []Cell{{Length: 20 * time.Millisecond, Limiter: SourceDisk, Sender: Sample{Acked: 1e6}}}
	require.Empty(t, Judge(short, &Host{}, &Host{}, &Asked{}))
}

// On a line of 9.6 kbit/s, four seconds without an acknowledgement are no black hole.
func TestJudgeSlowAcknowledgements(t *testing.T) {
	const packet = 1250 * time.Millisecond
	s, r := Sample{Priority: 2, MSS: 1448, MinRTT: 150 * time.Millisecond, Streams: 1}, readyReceiver()
	r.Received = 1448 * int64(second) / int64(packet)
	flow := perSecond(s, 60)
	for i := range flow {
		x := &flow[i]
		x.Acked = int64(x.At/(4*packet)) * 4 * 1448 // several at a time
		x.InFlight, x.Retrans = 4*1448, int64(x.At/(4*packet))
		x.Segments, x.Busy, x.Backlog, x.Flying = x.Acked/1448, x.At, x.At, x.At
		x.RTTSum = int64(float64(2*packet) * x.At.Seconds())
		x.Send = x.At
	}
	for _, v := range Judge(Cells(&Session{Sender: flow, Receiver: perSecond(r, 60)}), &Host{}, &Host{}, &Asked{}) {
		require.NotContains(t, []Limiter{BlackHole, Outage, Bufferbloat}, v.Limiter)
	}
}

// A transfer of a few round trips never leaves slow start.
func TestJudgeShort(t *testing.T) {
	s, r := busySender(), readyReceiver()
	s.MinRTT, r.MinRTT = 100*time.Millisecond, 100*time.Millisecond
	x := &Session{Sender: perSecond(s, 0.75), Receiver: perSecond(r, 0.75)}
	verdicts := Judge(Cells(x), &Host{}, &Host{}, &Asked{})
	require.Equal(t, SlowStart, verdicts[0].Limiter)
	x.SenderHost.InitCwnd = 2
	verdicts = Judge(Cells(x), &x.SenderHost, &Host{}, &Asked{})
	require.Equal(t, InitialWindow, verdicts[0].Limiter)
	require.Equal(t, Sender, verdicts[0].Side)
	require.Equal(t, RaiseInitCwnd, verdicts[0].Remedies[0].Kind)

	// The receiver's window is full, because it begins small: not because of its buffer.
	for i := range x.Sender {
		x.Sender[i].RwndLimited = x.Sender[i].Busy
	}
	x.Sender[len(x.Sender)-1].SndWnd = 0 // its streams are closed
	for _, windows := range []struct {
		cwnd, rwnd, rmem int64
		want             Limiter
	}{
		{0, 3, 0, InitialWindow}, {32, 10, 0, InitialWindow}, {0, 0, 0, ReceiverWindow}, {10, 44, 0, ReceiverWindow},
		{10, 44, 8e6, ReceiverWindow}, {10, 44, 32e6, SlowStart}, // the kernel may enlarge the buffer, and had no time to
	} {
		x.SenderHost.InitCwnd, x.ReceiverHost.InitRwnd, x.ReceiverHost.RmemMax = windows.cwnd, windows.rwnd, windows.rmem
		v := Judge(Cells(x), &x.SenderHost, &x.ReceiverHost, &Asked{})[0]
		require.Equal(t, windows.want, v.Limiter, windows)
		if v.Limiter != SlowStart {
			require.Equal(t, Receiver, v.Side, windows)
		}
		if v.Limiter == InitialWindow {
			require.Equal(t, []Remedy{{Kind: RaiseInitRwnd}}, v.Remedies)
		}
	}
}

// Large segments begin to vanish, and the receiver's small messages still arrive.
func TestJudgeHole(t *testing.T) {
	var cells []Cell
	verdict := func(change func(x *Session)) Limiter {
		x := &Session{Sender: perSecond(busySender(), 20), Receiver: perSecond(readyReceiver(), 20)}
		for _, side := range [][]Sample{x.Sender, x.Receiver} {
			for i := range side {
				if s := &side[i]; s.At > 2*second {
					s.Acked, s.Received, s.Payload, s.Retrans = 100e6, 100e6, 100e6, int64(s.At/second)
				}
			}
		}
		change(x)
		cells = Cells(x)
		return Judge(cells, &Host{}, &Host{}, &Asked{})[0].Limiter
	}
	require.Equal(t, BlackHole, verdict(func(*Session) {}))
	require.NotEqual(t, BlackHole, verdict(func(x *Session) { x.Receiver = x.Receiver[:8] }), "nothing comes back either")
	end := func(mss int64) func(x *Session) {
		return func(x *Session) {
			for i := range x.Sender {
				if s := &x.Sender[i]; s.At > 15*second {
					s.Acked, s.MSS = 100e6+int64(s.At-15*second)/100, mss
				}
			}
		}
	}
	require.NotEqual(t, BlackHole, verdict(end(1448)), "an outage that is over")
	require.Equal(t, BlackHole, verdict(end(1024)), "smaller segments get through")

	// All streams are given up after 12 s. New ones connect after 15 s, and so many bytes arrive in some time then.
	again := func(bytes int64, within time.Duration) func(x *Session) {
		return func(x *Session) {
			for i := range x.Sender {
				s := &x.Sender[i]
				if s.At > 12*second && s.At <= 15*second {
					s.Streams, s.InFlight, s.MSS = 0, 0, 0
				}
				s.Acked += int64(float64(bytes) * max(0, min(1, (s.At-15*second).Seconds()/within.Seconds())))
			}
		}
	}
	require.Equal(t, BlackHole, verdict(again(8*3000, second)), "handshakes are small")
	require.Equal(t, Outage, verdict(again(50e6, 5*second)))
	for _, c := range cells {
		require.False(t, c.Start > 3*second && c.Start < 15*second && c.Limiter != Outage, "%s at %v", c.Limiter, c.Start)
	}
}

// If a flag fixed the buffer, the remedy is to change that flag.
func TestJudgeFixedBuffer(t *testing.T) {
	s, r := busySender(), readyReceiver()
	s.RwndLimited = 8 * second
	cells := Cells(&Session{Sender: perSecond(s, 3), Receiver: perSecond(r, 3)})
	host := Host{RmemMax: 6 << 20}
	require.Contains(t, brief(&Judge(cells, &host, &host, &Asked{SockBuf: 65536})[0]), string(AutoSockBuf))
	require.Contains(t, brief(&Judge(cells, &host, &host, &Asked{Streams: 8})[0]), "more streams 16")
	host.SockBuf = 65536
	require.Contains(t, brief(&Judge(cells, &host, &host, &Asked{})[0]), string(ServerAutoSockBuf))
}

// A remedy never asks for less than there is, and names the host on which a setting is off.
func TestJudgeRemedies(t *testing.T) {
	s, r := busySender(), readyReceiver()
	s.RwndLimited, s.SndWnd = 8*second, 65535
	cells := Cells(&Session{Sender: perSecond(s, 3), Receiver: perSecond(r, 3)})
	left, right := Host{Name: "left", NoScaling: 1}, Host{Name: "right", RmemMax: math.MaxInt32}
	require.Contains(t, brief(&Judge(cells, &left, &right, &Asked{})[0]), "net.ipv4.tcp_window_scaling=1 on left")
	left.NoScaling = 0
	require.Empty(t, Judge(cells, &left, &right, &Asked{})[0].Remedies, "the kernel takes no more")
	right.NoAutotuning = 1
	require.Contains(t, brief(&Judge(cells, &left, &right, &Asked{})[0]), "net.ipv4.tcp_moderate_rcvbuf=1 on right")
	for rate, want := range map[float64]int64{1e6: 900e3, 123e6: 110e6, 9.99e6: 8900e3, 500: 1e3} {
		require.Equal(t, want, below(rate))
	}
}

// A pause is not a black hole unless there is evidence for one.
func TestJudgeOutage(t *testing.T) {
	s, r := busySender(), readyReceiver()
	flow := perSecond(s, 12)
	for i := range flow {
		if t := flow[i].At; t > 4*second && t <= 8*second { // nothing is acknowledged
			flow[i].Acked = int64(4 * float64(s.Acked))
		} else if t > 8*second {
			flow[i].Acked = int64((t.Seconds() - 4) * float64(s.Acked))
		}
		flow[i].Retrans = int64(flow[i].At / second)
	}
	heard := perSecond(r, 12)
	cells := Cells(&Session{Sender: flow, Receiver: heard})
	times := map[Limiter]time.Duration{}
	for _, c := range cells {
		times[c.Limiter] += c.Length
	}
	require.InDelta(t, 5, times[Outage].Seconds(), 0.3) // what was lost is sent again in the last second
	require.Zero(t, times[BlackHole])

	// An idle session that lost a segment of its handshake has neither an outage nor a black
	// hole.
	idle := Sample{Streams: 4, Idle: 4 * second, Cores: 2000, MinRTT: 40 * time.Millisecond, InFlight: 0}
	flow = perSecond(idle, 1)
	for i := range flow {
		flow[i].Retrans, flow[i].Acked = 1, 900
	}
	for _, c := range Cells(&Session{Sender: flow, Receiver: perSecond(Sample{Cores: 2000}, 1)}) {
		require.NotContains(t, []Limiter{BlackHole, Outage}, c.Limiter)
	}
}

// While nothing passes, and right after it, nobody is told about a queue, random loss or others on
// the line, at whatever moment he looks.
func TestJudgeOutageLive(t *testing.T) {
	s := busySender()
	s.Priority, s.BaseRTT, s.RTTSum = 2, 50*time.Millisecond, int64(52*time.Millisecond)
	for _, long := range []time.Duration{500 * time.Millisecond, 2 * second, 8 * second} {
		from, to := 4*second, 4*second+long
		flow := perSecond(s, 20)
		for i := range flow {
			x := &flow[i]
			gone := max(0, min(x.At, to)-from)
			moved := float64(x.At - gone)
			x.Acked = int64(moved / 1e9 * float64(s.Acked))
			x.Segments = int64(moved / 1e9 * float64(s.Segments))
			if x.At > from { // timers, and then what was in flight
				x.Retrans = 20
			}
			if x.At > to {
				x.Retrans = 3000
				x.RTTSum += int64(200 * time.Millisecond) // one sample from before
				x.Shared = min(x.At-to, second)
			}
		}
		for i := range flow {
			if flow[i].At < 2*second || flow[i].At > to+regainLeast {
				continue
			}
			cells := Cells(&Session{Sender: flow[:i+1], Receiver: perSecond(readyReceiver(), from.Seconds())})
			for _, c := range cells {
				require.NotContains(t, []Limiter{Bufferbloat, OwnQueue, RandomLoss, SharedLine, Reordering}, c.Limiter,
					"%v down, seen after %v, at %v", long, flow[i].At, c.Start)
			}
		}
	}
}

// A controller that has noticed others for a while does not notice them all the time. What is less
// than the line has carried is their doing then, too.
func TestJudgeCrowded(t *testing.T) {
	s := busySender()
	s.Priority, s.BaseRTT = 2, 50*time.Millisecond
	most := func(shared time.Duration, late float64) Limiter {
		flow := perSecond(s, 20)
		for i := range flow {
			x := &flow[i]
			if x.At > 4*second {
				x.Acked = int64(float64(s.Acked) * (4 + late*(x.At-4*second).Seconds()))
			}
			x.Shared = max(0, min(x.At-5*second, shared))
		}
		return Judge(Cells(&Session{Sender: flow, Receiver: perSecond(readyReceiver(), 20)}), &Host{}, &Host{}, &Asked{})[0].Limiter
	}
	require.Equal(t, SharedLine, most(4*second, 0.6))
	require.Equal(t, LineRate, most(4*second, 1), "the line carries no more")
	require.Equal(t, LineRate, most(second, 0.6), "nobody was there but for a moment")
}

func TestExpect(t *testing.T) {
	require.InDelta(t, 200e6, expect(100e6, 8), 1) // unless the path is longer than that
	require.InDelta(t, 150e6, expect(100e6, 1.5), 1)
	require.InDelta(t, 941.5e6, expect(503e6, 8), 1e6) // the line may be one of 1 Gbit/s
	require.InDelta(t, 1.9e9, expect(950e6, 8), 1e8)
}

// Whatever a peer claims, nothing breaks, and shares stay within their range.
func TestJudgeHostile(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	odd := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 53, 1 << 62, 1000, 1e9}
	for round := range 300 {
		series := func() []Sample {
			var all Series
			for i := range rng.IntN(40) {
				var s Sample
				Fill(&s, nil, 365*24*time.Hour, func(string) (int64, bool) {
					switch rng.IntN(3) {
					case 0:
						return odd[rng.IntN(len(odd))], true
					case 1:
						return rng.Int64N(1e9) * int64(i), true
					}
					return 0, false
				})
				s.At = time.Duration(i) * time.Duration(rng.Int64N(1e9))
				all.Add(s)
			}
			return all.All()
		}
		x := &Session{Sender: series(), Receiver: series()}
		Fill(&Sample{}, &x.ReceiverHost, 0, func(string) (int64, bool) { return odd[rng.IntN(len(odd))], true })
		cells := Cells(x)
		for _, v := range Judge(cells, &x.SenderHost, &x.ReceiverHost, &Asked{}) {
			require.True(t, v.Share >= 0 && v.Share <= 1.000001, "round %d: %v", round, v.Share)
		}
		if len(cells) > 0 {
			joined := Join(cells)
			_ = fmt.Sprint(joined.Rate())
		}
	}
}

// A long session keeps its beginning, its end and its sums.
func TestSeries(t *testing.T) {
	var s Series
	for i := range 100_000 {
		s.Add(Sample{At: time.Duration(i) * time.Second, Acked: int64(i)})
	}
	all := s.All()
	require.LessOrEqual(t, len(all), maxSamples)
	require.Zero(t, all[0].At)
	require.Equal(t, 99_999*time.Second, all[len(all)-1].At)
	s.Add(Sample{At: time.Second})
	require.Len(t, s.All(), len(all), "time runs forward")
	between := at(all, 50_000*time.Second+500*time.Millisecond)
	require.InDelta(t, 50_000, between.Acked, 1)
}

// Each number has one name, and arrives unchanged.
func TestFields(t *testing.T) {
	var s, got Sample
	var h, gotHost Host
	names := map[string]int64{}
	for i, f := range all(&s, &h) {
		if f.name != "" { // the others stay here
			*f.value = int64(i + 1)
		}
	}
	Each(&s, &h, func(name string, v int64) {
		require.NotContains(t, names, name)
		require.LessOrEqual(t, len(name), 64)
		names[name] = v
	})
	require.Less(t, len(names), 256, "the wire takes no more")
	Fill(&got, &gotHost, time.Minute, func(name string) (int64, bool) { v, ok := names[name]; return v, ok })
	require.Equal(t, s, got)
	require.Equal(t, h, gotHost)
}

// The expected goodput is never below the mean of the whole transfer: the limiter may have held
// only in its slow part.
func TestExpectMean(t *testing.T) {
	cells := []Cell{
		{Length: second, Limiter: RandomLoss, Sender: Sample{Acked: 5e6, Control: Cubic}},
		{Start: second, Length: second, Limiter: LineRate, Sender: Sample{Acked: 45e6, Control: Cubic}},
	}
	host := Host{BBR: BBRAllowed}
	for _, v := range Judge(cells, &host, &host, &Asked{}) {
		if v.Limiter == RandomLoss {
			require.Greater(t, v.Remedies[0].Expect, 200e6)
		}
	}
}

// TestWindowShare covers two cases: BBR fills a small window, which the kernel does not count;
// and a full window behind a queue, which is not the cause.
func TestWindowShare(t *testing.T) {
	const second = time.Second
	a := Sample{Busy: 5 * second, RwndLimited: 5 * second, Windowed: 5 * second, Flying: 5 * second, MinRTT: 50 * time.Millisecond}
	b := a
	require.Zero(t, WindowShare(&a, &b), "nothing was in flight")
	b.Busy, b.RwndLimited, b.Windowed, b.Flying = 9*second, 6*second, 8*second, 6*second
	b.RTTSum = int64(51 * time.Millisecond)
	require.InDelta(t, 0.75, WindowShare(&a, &b), 1e-9)
	b.RTTSum = int64(90 * time.Millisecond)
	require.InDelta(t, 0.25, WindowShare(&a, &b), 1e-9)
}

// On a line of 100 Mbit/s × 20 ms with a queue, slow start ends in a burst of losses. Nothing else is
// lost, whatever the controller thought of a moment in which the machine was busy.
func TestJudgeLossAtStart(t *testing.T) {
	const ms = time.Millisecond
	type change func(x *Sample)
	burst := func(x *Sample) { x.Retrans = 265 }
	for name, test := range map[string]struct {
		change change
		rtt    time.Duration
		want   Limiter
	}{
		"lost at once, a short queue":        {burst, 23400 * time.Microsecond, LineRate},
		"lost at once, no queue":             {burst, 20300 * time.Microsecond, LineRate},
		"a policer, and never a queue":       {func(x *Sample) { burst(x); x.Policed, x.QueueMost = x.At, 600*time.Microsecond }, 20300 * time.Microsecond, Policed},
		"a policer, and a queue":             {func(x *Sample) { x.Retrans = int64(40 * x.At.Seconds()); x.Policed = x.At }, 30 * ms, LineRate},
		"lost again and again, no queue":     {func(x *Sample) { x.Retrans = int64(40 * x.At.Seconds()) }, 20300 * time.Microsecond, RandomLoss},
		"lost so rarely that it is harmless": {func(x *Sample) { x.Retrans = int64(x.At / second) }, 20300 * time.Microsecond, LineRate},
		"a policer, found again and again":   {func(x *Sample) { x.Retrans = 265 * int64(1+x.At/(2*second)); x.Policed = x.At }, 20300 * time.Microsecond, Policed},
		"a policer, which was proved later": {func(x *Sample) {
			x.Retrans = 265 * int64(1+x.At/(2*second))
			if x.At >= 6*second {
				x.Policed = x.At
			}
		}, 20300 * time.Microsecond, Policed},
		"lost when the queue was longest": {func(x *Sample) {
			x.Retrans = 265 * int64(1+x.At/second)
			x.RTTSum += int64(x.At/second) * int64(ms) // 24 ms in that moment
		}, 20 * ms, LineRate},
	} {
		s, r := busySender(), readyReceiver()
		s.Priority, s.Control, s.BaseRTT, s.MinRTT, r.MinRTT = 2, Cubic, 20*ms, 20*ms, 20*ms
		s.Acked, s.Payload, r.Received, s.Segments, s.RTTSum = 11.7e6, 11.6e6, 11.7e6, 8100, int64(test.rtt)
		flow := perSecond(s, 8)
		for i := range flow {
			if flow[i].At >= 500*ms {
				test.change(&flow[i])
			}
		}
		verdicts := Judge(Cells(&Session{Sender: flow, Receiver: perSecond(r, 8)}), &Host{}, &Host{}, &Asked{})
		require.Equal(t, test.want, verdicts[0].Limiter, "%s: %+v", name, verdicts)
	}
}

// Whoever sends with --rate-limit waits for no other limit, even if he gets far less.
func TestJudgeOwnRateLimit(t *testing.T) {
	s, r := busySender(), readyReceiver()
	s.RateWait, s.Backlog = 6*second, 0
	cells := Cells(&Session{Sender: perSecond(s, 4), Receiver: perSecond(r, 4)})
	for _, test := range []struct {
		here  Side
		limit float64 // of the rate that it gets
		want  RemedyKind
	}{
		{Sender, 1, RaiseLimit},
		{Sender, 2, RaiseLimit},
		{Receiver, 1, RaiseLimit},
		{Receiver, 2, RaiseServerLimit},
		{Sender, 0, RaiseServerLimit},
	} {
		v := Judge(cells, &Host{}, &Host{}, &Asked{Here: test.here, RateLimit: int64(test.limit * 400e6)})[0]
		require.Equal(t, test.want, v.Remedies[0].Kind, "%+v", test)
	}
}

// A pause of the sampling makes no peak: what came in it is acknowledged over the same time.
func TestPeak(t *testing.T) {
	var cells []Cell
	for i := range 40 {
		c := Cell{Start: time.Duration(i) * second / 4, Length: second / 4, Sender: Sample{Acked: 100e6 / 8 / 4}}
		switch i {
		case 20:
			c.Sender.Acked = 0
		case 21:
			c.Sender.Acked *= 2
		}
		cells = append(cells, c)
	}
	most, mean := Peak(cells)
	require.InDelta(t, 100e6, mean, 1e6)
	require.LessOrEqual(t, most, 126e6)
	cells = cells[:20]
	most, _ = Peak(cells)
	require.InDelta(t, 100e6, most, 1)
	most, mean = Peak(nil)
	require.Zero(t, most+mean)
}

// The first windows already fill a narrow line, and need not grow: it is to blame for the start, too.
func TestNarrowStart(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for _, c := range []struct {
		acked int64 // in each of the last 10 s
		rtt   time.Duration
		later Limiter
		want  time.Duration // of the first verdict; the start takes 15 s
	}{
		{1200, 1500 * time.Millisecond, NarrowLine, 25 * second},
		{64e3, 150 * time.Millisecond, NarrowLine, 25 * second},
		{250e3, second, NarrowLine, 15 * second},
		{1200, 50 * time.Millisecond, TargetDisk, 15 * second},
	} {
		cells := []Cell{{Length: 15 * second, Limiter: SlowStart}}
		for i := range 10 {
			cells = append(cells, Cell{
				Start: time.Duration(15+i) * second, Length: second, Limiter: c.later,
				Sender: Sample{Acked: c.acked, MinRTT: c.rtt},
			})
		}
		verdicts := Judge(cells, &Host{}, &Host{}, &Asked{})
		require.Equal(t, c.want, verdicts[0].Time, "%+v", c)
		require.Equal(t, c.want == 25*second, len(verdicts) == 1, "%+v", c)
		require.InDelta(t, c.want.Seconds()/25, verdicts[0].Share, 1e-9)
	}
}
