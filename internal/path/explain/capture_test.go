package explain

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// wire writes the packets of one connection, as a capture at the sender has them.
type wire struct {
	t    *testing.T
	buf  bytes.Buffer
	out  *pcapgo.Writer
	port uint16
	snap int
}

const (
	testMSS  = 1448
	opening  = 2 // SYN
	ackFlag  = 16
	pushFlag = 8
)

var testStart = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func newWire(t *testing.T) *wire {
	w := &wire{t: t, port: 445, snap: 96}
	w.out = pcapgo.NewWriterNanos(&w.buf)
	require.NoError(t, w.out.WriteFileHeader(96, layers.LinkTypeRaw))
	return w
}

// put writes a segment. forth is from the side that opened the connection.
func (w *wire) put(at time.Duration, forth bool, flags byte, seq, ack uint32, length int, window uint16) {
	options := []byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(options[4:], uint32(at.Milliseconds())+1)
	if flags&opening != 0 {
		options = append(options, 2, 4, 5, 180, 4, 2, 3, 3, 7, 1, 1, 1) // MSS 1460, SACK, scale 7
	}
	b := make([]byte, 40+len(options)+length)
	b[0], b[9] = 0x45, 6
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	from, to := netip.MustParseAddr("10.0.0.1").As4(), netip.MustParseAddr("10.0.0.2").As4()
	ports := [2]uint16{50000, w.port}
	if !forth {
		from, to, ports = to, from, [2]uint16{w.port, 50000}
	}
	copy(b[12:], from[:])
	copy(b[16:], to[:])
	binary.BigEndian.PutUint16(b[20:], ports[0])
	binary.BigEndian.PutUint16(b[22:], ports[1])
	binary.BigEndian.PutUint32(b[24:], seq)
	binary.BigEndian.PutUint32(b[28:], ack)
	b[32], b[33] = byte(5+len(options)/4)<<4, flags
	binary.BigEndian.PutUint16(b[34:], window)
	copy(b[40:], options)
	info := gopacket.CaptureInfo{Timestamp: testStart.Add(at), CaptureLength: min(len(b), w.snap), Length: len(b)}
	require.NoError(w.t, w.out.WritePacket(info, b[:info.CaptureLength]))
}

// open writes the handshake of a connection with this round trip.
func (w *wire) open(rtt time.Duration, window uint16) {
	w.put(0, true, opening, 999, 0, 0, window)
	w.put(rtt, false, opening|ackFlag, 4999, 1000, 0, window)
	w.put(rtt+100*time.Microsecond, true, ackFlag, 1000, 5000, 0, window)
}

func (w *wire) report() *Report {
	r, err := Capture(context.Background(), bytes.NewReader(w.buf.Bytes()), "test.pcap")
	require.NoError(w.t, err)
	require.Len(w.t, r.Connections, 1)
	return r
}

// rounds writes flights of so many segments, each released by the acknowledgements of the last one.
// event may change what happens to a segment.
func (w *wire) rounds(n, flight int, rtt time.Duration, window uint16, event func(round, k int, seq uint32, at time.Duration)) {
	seq := uint32(1000)
	for round := range n {
		start := 2*rtt + time.Duration(round)*rtt
		for k := range flight {
			at := start + time.Duration(k)*100*time.Microsecond
			if round > 0 {
				w.put(at-20*time.Microsecond, false, ackFlag, 5000, seq-uint32((flight-1)*testMSS), 0, window)
			}
			w.put(at, true, ackFlag, seq, 5000, testMSS, 512)
			seq += testMSS
			if event != nil {
				event(round, k, seq, at)
			}
		}
	}
}

func TestCaptureWindows(t *testing.T) {
	t.Parallel()
	const rtt = 10 * time.Millisecond
	w := newWire(t)
	w.open(rtt, 512)                 // 64 KiB with scale 7
	w.rounds(200, 45, rtt, 512, nil) // 45 × 1448 = 65,160
	r := w.report()
	c := r.Connections[0]
	require.Equal(t, "SMB", c.Service)
	require.True(t, c.Sends)
	require.Equal(t, diagnose.ReceiverWindow, r.Verdicts[0].Limiter)
	require.Equal(t, int64(65536), r.Verdicts[0].Evidence[0].Bytes)
	p := c.Packets
	require.True(t, p.Opened && p.SACK && p.Timestamps && p.AtSender, "%+v", p)
	require.Equal(t, [4]int64{1448, 7, 7, 45}, [4]int64{p.MSS, int64(p.ScaleFrom), int64(p.ScaleTo), p.FirstFlight})
	require.InDelta(t, 65160, p.Plateau, 1)
	require.InEpsilon(t, rtt, p.RTT, 0.1)
	require.Zero(t, p.Resent()+p.Missed+p.Stalls)

	// The same in flight below a window that is larger: the sender's buffer holds it there.
	w = newWire(t)
	w.open(rtt, 8192)
	w.rounds(200, 45, rtt, 8192, nil)
	r = w.report()
	require.Equal(t, diagnose.SenderBuffer, r.Verdicts[0].Limiter)
	require.Equal(t, diagnose.Sender, r.Verdicts[0].Side)
}

func TestCaptureStalls(t *testing.T) {
	t.Parallel()
	const rtt = 5 * time.Millisecond
	w := newWire(t)
	w.port = 9000
	w.open(rtt, 512)
	at, seq, answer := 20*time.Millisecond, uint32(1000), uint32(5000)
	const messages = 60
	for range messages {
		w.put(at, true, ackFlag|pushFlag, seq, answer, 4, 512)
		at += 40*time.Millisecond + rtt // delayed acknowledgement
		w.put(at, false, ackFlag, answer, seq+4, 0, 512)
		w.put(at+50*time.Microsecond, true, ackFlag|pushFlag, seq+4, answer, 1200, 512)
		at += rtt
		w.put(at, false, ackFlag|pushFlag, answer, seq+1204, 2, 512)
		at += time.Millisecond
		seq, answer = seq+1204, answer+2
	}
	r := w.report()
	require.Equal(t, diagnose.Stalls, r.Verdicts[0].Limiter)
	p := r.Connections[0].Packets
	require.Equal(t, [2]int64{messages, messages}, [2]int64{p.Stalls, p.Delayed})
	require.InEpsilon(t, messages*0.045, p.StallTime.Seconds(), 0.02)
}

func TestCaptureLoss(t *testing.T) {
	t.Parallel()
	const rtt = 20 * time.Millisecond
	w := newWire(t)
	w.open(rtt, 8192)
	w.rounds(150, 20, rtt, 8192, func(round, k int, seq uint32, at time.Duration) {
		if round%10 == 5 && k == 10 { // sent again after duplicates
			for range 3 {
				w.put(at, false, ackFlag, 5000, seq-20*testMSS, 0, 8192)
			}
			w.put(at, true, ackFlag, seq-15*testMSS, 5000, testMSS, 512)
		}
		if round == 60 && k == 19 {
			w.put(at, true, ackFlag, 1000, 5000, testMSS, 512) // it had arrived long ago
		}
	})
	p := w.report().Connections[0].Packets
	require.Equal(t, [4]int64{15, 0, 1, 0}, [4]int64{p.Fast, p.Timeouts, p.Needless, p.Overtaken})
}

// A part that the capture lacks is not lost on the path.
func TestCaptureMissed(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.open(time.Millisecond, 8192)
	seq := uint32(1000)
	for i := range 200 {
		at := time.Duration(i+5) * 10 * time.Millisecond
		if i%20 != 10 {
			w.put(at, true, ackFlag, seq, 5000, testMSS, 512)
		}
		seq += testMSS
		if i%20 != 10 {
			w.put(at+time.Millisecond, false, ackFlag, 5000, seq, 0, 8192)
		}
	}
	p := w.report().Connections[0].Packets
	require.Equal(t, int64(10*testMSS), p.Missed)
	require.Zero(t, p.Resent())
}

func TestCaptureZeroWindow(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.open(time.Millisecond, 512)
	seq, at := uint32(1000), 10*time.Millisecond
	for range 30 {
		for range 40 {
			w.put(at, true, ackFlag, seq, 5000, testMSS, 512)
			seq, at = seq+testMSS, at+10*time.Microsecond
		}
		w.put(at+time.Millisecond, false, ackFlag, 5000, seq, 0, 0)
		at += 100 * time.Millisecond
		w.put(at, false, ackFlag, 5000, seq, 0, 512)
	}
	r := w.report()
	require.Equal(t, diagnose.ReceivingProgram, r.Verdicts[0].Limiter)
	p := r.Connections[0].Packets
	require.Equal(t, int64(30), p.ZeroWindows)
	require.InEpsilon(t, 30*0.099, p.ZeroTime.Seconds(), 0.01)
}

func TestCaptureOfNothing(t *testing.T) {
	t.Parallel()
	for _, b := range []string{"", "abc", "no capture at all, but text", "\x0a\x0d\x0d\x0a", "\xd4\xc3\xb2\xa1"} {
		_, err := Capture(context.Background(), bytes.NewReader([]byte(b)), "x")
		require.ErrorIs(t, err, ErrNoCapture, "%q", b)
	}
	w := newWire(t)
	w.open(time.Millisecond, 512)
	w.rounds(100, 10, time.Millisecond, 512, nil)
	whole := w.buf.Len()
	r, err := Capture(context.Background(), bytes.NewReader(w.buf.Bytes()[:whole-7]), "x")
	require.NoError(t, err)
	require.Len(t, r.Connections, 1, "a capture that was cut off")
}

// FuzzCapture: no file, however broken, stops the reader.
func FuzzCapture(f *testing.F) {
	w := newWire(&testing.T{})
	w.open(time.Millisecond, 512)
	w.rounds(3, 4, time.Millisecond, 512, nil)
	f.Add(w.buf.Bytes())
	f.Add([]byte("\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x1c\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		r, err := Capture(context.Background(), bytes.NewReader(b), "x")
		if err != nil {
			require.ErrorIs(t, err, ErrNoCapture)
			return
		}
		for i := range r.Connections {
			c := &r.Connections[i]
			require.GreaterOrEqual(t, c.Moved(), int64(0))
			for j := range c.Verdicts {
				require.True(t, c.Verdicts[j].Share >= 0 && c.Verdicts[j].Share <= 1.001, "%v", c.Verdicts[j].Share)
			}
		}
	})
}

// FuzzSegments: any order of headers that decode is a connection that can be judged.
func FuzzSegments(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 16, 1, 0, 0, 0, 0, 0, 0, 0, 24, 0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, z := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
		tb := table{all: make(map[[2]netip.AddrPort]*traffic)}
		for ; len(b) >= 9; b = b[9:] {
			s := segment{from: a, to: z, seq: uint32(b[1]) << (b[2] % 25), ack: uint32(b[3]) << (b[4] % 25), length: int64(b[5]) << (b[6] % 9), window: int64(b[7]) << 8, scale: -1}
			if s.from, s.to = a, z; b[0]&1 != 0 {
				s.from, s.to = z, a
			}
			s.syn, s.isAck, s.sacks = b[0]&2 != 0, b[0]&16 != 0, b[0]&32 != 0
			tb.at += time.Duration(b[8]) << (b[0] >> 6 * 7) * time.Microsecond
			s.at = tb.at
			tb.add(&s)
		}
		for _, c := range tb.report("x", "").Connections {
			require.GreaterOrEqual(t, c.Moved(), int64(0))
		}
	})
}
