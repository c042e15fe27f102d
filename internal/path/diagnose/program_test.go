package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program makes samples of a socket of another program, ten a second. change sets what happened in
// each tenth.
func program(seconds int, change func(i int, step time.Duration, s *Sample)) []Sample {
	const step = 100 * time.Millisecond
	s := Sample{Streams: 1, MinRTT: 40 * time.Millisecond, RTT: 40 * time.Millisecond, MSS: 1448, SndWnd: 1 << 20, SndBuf: 4 << 20, Control: Cubic, InFlight: 64 << 10}
	list := []Sample{s}
	for i := range 10 * seconds {
		s.At += step
		s.Busy += step
		s.Flying += step
		s.RTTSum += int64(float64(s.RTT) * step.Seconds())
		s.Acked += 125_000
		s.Segments += 86
		change(i, step, &s)
		list = append(list, s)
	}
	return list
}

func TestProgram(t *testing.T) {
	t.Parallel()
	remote := Host{Name: "10.0.0.2"}
	here := Host{Name: "this host", RmemMax: 6 << 20, WmemMax: 4 << 20}
	for _, x := range []struct {
		name   string
		change func(i int, step time.Duration, s *Sample)
		want   Limiter
		side   Side
		fact   FactKind
		remedy RemedyKind
	}{
		{"the peer's window is full", func(_ int, step time.Duration, s *Sample) { s.RwndLimited += step; s.SndWnd = 65_000 }, ReceiverWindow, Receiver, WindowObtained, RaiseTheirs},
		{"the send buffer is full", func(_ int, step time.Duration, s *Sample) { s.Buffered += step; s.SndBuf = 64 << 10 }, SenderBuffer, Sender, WindowObtained, LeaveBuffers},
		{"the peer's window closes", func(_ int, step time.Duration, s *Sample) { s.RwndLimited += step; s.Shut += step }, ReceivingProgram, Receiver, WindowShut, FasterReader},
		{"small writes wait", func(_ int, step time.Duration, s *Sample) { s.Nagled += step * 3 / 4 }, Stalls, Sender, NagleWaits, OneWrite},
		{"one request at a time", func(_ int, step time.Duration, s *Sample) { s.Answering += step; s.Asked += 2 }, Requests, Sender, RequestsBring, MoreRequests},
		{"requests that fill the send buffer", func(_ int, step time.Duration, s *Sample) {
			s.Answering += step
			s.Asked += 2
			s.SndbufLimited += step
		}, Requests, Sender, RequestsBring, MoreRequests},
		{"a constant rate", func(int, time.Duration, *Sample) {}, RateLimit, Sender, ProgramSteady, ProgramRate},
		{"a constant rate, in large parts", func(i int, step time.Duration, s *Sample) {
			if i%10 >= 4 {
				s.SndbufLimited += step
			}
		}, RateLimit, Sender, ProgramSteady, ProgramRate},
		{"a socket that is paced", func(_ int, step time.Duration, s *Sample) { s.Backlog += step; s.PaceLimit = 10e6 }, RateLimit, Sender, SocketPaced, ProgramRate},
		{"a rate that changes", func(i int, _ time.Duration, s *Sample) { s.Acked += int64(i/10%2) * 250_000 }, SendingProgram, Sender, ProgramWrites, FasterProgram},
		{"loss", func(i int, step time.Duration, s *Sample) { s.Backlog += step; s.Retrans += int64(i % 2) }, RandomLoss, Path, LossNoQueue, BBRForAll},
		{"a queue", func(i int, step time.Duration, s *Sample) {
			s.Backlog += step
			if s.RTT = 70 * time.Millisecond; i < 5 {
				s.RTT = 40 * time.Millisecond
			}
		}, LineRate, Path, PathCarries, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := &Session{Sender: program(8, x.change), SenderHost: here, ReceiverHost: remote, Seen: Sender}
			all := Judge(Cells(s), &s.SenderHost, &s.ReceiverHost, &Asked{Here: Sender, Program: true})
			require.NotEmpty(t, all)
			v := all[0]
			require.Equal(t, [2]string{string(x.want), string(x.side)}, [2]string{string(v.Limiter), string(v.Side)})
			require.Greater(t, v.Share, 0.8)
			require.Equal(t, x.fact, v.Evidence[0].Kind)
			if x.remedy != "" {
				require.Equal(t, x.remedy, v.Remedies[0].Kind)
			}
		})
	}
}

// A program that receives: only this end is known.
func TestProgramReceives(t *testing.T) {
	t.Parallel()
	here := Host{Name: "this host", RmemMin: 4096, RmemDefault: 131072, RmemMax: 6 << 20}
	for _, x := range []struct {
		name   string
		window bool
		unread bool
		rcvBuf int64
		want   Limiter
		remedy RemedyKind
	}{
		{"nothing shows", false, false, 1 << 20, Unknown, LookAtSender},
		{"its window is full, the program has set it", true, false, 128 << 10, ReceiverWindow, LeaveBuffers},
		{"its window is full, as large as it may be", true, false, 6 << 20, ReceiverWindow, SetSysctl},
		{"it reads slowly", true, true, 1 << 20, ReceivingProgram, FasterReader},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var received []Sample
			sent := program(5, func(_ int, step time.Duration, s *Sample) {
				r := Sample{At: s.At, Received: s.Acked, RcvBuf: x.rcvBuf}
				if x.unread {
					r.Unread = s.At
				}
				if received = append(received, r); x.window {
					s.Windowed += step
				}
			})
			s := &Session{Sender: sent, Receiver: received, ReceiverHost: here, Seen: Receiver}
			all := Judge(Cells(s), &s.SenderHost, &s.ReceiverHost, &Asked{Here: Receiver, Program: true})
			require.NotEmpty(t, all)
			require.Equal(t, x.want, all[0].Limiter)
			require.Equal(t, x.remedy, all[0].Remedies[0].Kind)
		})
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	const mss = 1448
	for _, x := range []struct {
		name   string
		socket Socket
		widest int64
		want   string
	}{
		{"free", Socket{InFlight: 20 * mss, Window: 1 << 20, Buffer: 1 << 20, Cwnd: 30 * mss, MSS: mss}, 1 << 20, ""},
		{"backlog", Socket{InFlight: 20 * mss, NotSent: 9 * mss, Window: 1 << 20, Buffer: 1 << 20, Cwnd: 20 * mss, MSS: mss}, 1 << 20, "backlogged"},
		{"window", Socket{InFlight: 40 * mss, NotSent: 9 * mss, Window: 41 * mss, Buffer: 1 << 20, Cwnd: 90 * mss, MSS: mss}, 41 * mss, "backlogged windowed"},
		{"shut", Socket{InFlight: 20 * mss, NotSent: 9 * mss, Window: 20 * mss, Buffer: 1 << 20, Cwnd: 90 * mss, MSS: mss}, 60 * mss, "backlogged windowed shut"},
		{"closed", Socket{NotSent: 9 * mss, Buffer: 1 << 20, Cwnd: 90 * mss, MSS: mss}, 60 * mss, "backlogged shut"},
		{"buffer", Socket{InFlight: 22 * mss, Window: 1 << 20, Buffer: 64 << 10, Cwnd: 20 * mss, MSS: mss}, 1 << 20, "buffered"},
		{"cramped", Socket{InFlight: 25 * mss, NotSent: 9 * mss, Window: 1 << 20, Buffer: 64 << 10, Cwnd: 100 * mss, MSS: mss}, 1 << 20, "backlogged cramped"},
		{"Nagle", Socket{InFlight: mss, NotSent: 900, Window: 1 << 20, Buffer: 64 << 10, Cwnd: 10 * mss, MSS: mss}, 1 << 20, "nagled"},
	} {
		got := ""
		for _, is := range []struct {
			name string
			is   bool
		}{
			{"backlogged", x.socket.Backlogged()}, {"windowed", x.socket.Windowed()}, {"buffered", x.socket.Buffered()},
			{"cramped", x.socket.Cramped()}, {"nagled", x.socket.Nagled()}, {"shut", x.socket.Shut(x.widest)},
		} {
			if is.is {
				got += " " + is.name
			}
		}
		require.Equal(t, x.want, got[min(1, len(got)):], x.name)
	}
}
