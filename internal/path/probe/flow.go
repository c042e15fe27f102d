package probe

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// tickEvery is how often the receiver of a flow records the bytes received.
	tickEvery = 100 * time.Millisecond
	// lookEvery is how often a sender reads its socket's state.
	lookEvery = 50 * time.Millisecond
	// unsent is how much data a sender leaves in its socket at the end, besides what is in
	// flight.
	unsent = 2 * wire.FlowBlock
)

// Conn is a data stream of a probe: a transport.Conn.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
	SetNoDelay(bool) error
	SetCork(bool) error
	LimitUnsent(bytes int)
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	Info() (transport.Info, bool)
}

// flowEnd is what one end of a flow's stream measured.
type flowEnd struct {
	info   transport.Info
	sndWnd int // largest value seen
	cwnd   int
	early  transport.Info // state at the end of slow start
	cpu    float64
}

// cpuMeter measures which share of a host's CPUs is busy.
type cpuMeter struct{ busy, all uint64 }

func newCPUMeter() cpuMeter {
	var m cpuMeter
	m.busy, m.all = cpuTimes()
	return m
}

func (m cpuMeter) share() float64 {
	busy, all := cpuTimes()
	if all <= m.all {
		return 0
	}
	return float64(busy-min(busy, m.busy)) / float64(all-m.all)
}

// sendFlow sends blocks until the time is over or it has sent most bytes. It marks the last
// block.
func sendFlow(c Conn, within time.Duration, most int64) (end flowEnd, sent int64, err error) {
	cpu := newCPUMeter()
	c.LimitUnsent(unsent)
	block := make([]byte, wire.FlowBlock)
	start := time.Now()
	var looked time.Duration
	for block[0] == 0 {
		passed := time.Since(start)
		if sent += wire.FlowBlock; passed >= within || sent+wire.FlowBlock > most {
			block[0] = 1
		}
		if passed-looked >= lookEvery || block[0] == 1 {
			looked = passed
			if info, ok := c.Info(); ok {
				end.info = info
				if passed < settle(within, info.MinRTT) {
					end.early = info
				}
				end.sndWnd, end.cwnd = max(end.sndWnd, info.SndWnd), max(end.cwnd, info.Cwnd)
			}
		}
		if _, err := c.Write(block); err != nil {
			return end, sent, err
		}
	}
	end.cpu = cpu.share()
	return end, sent, nil
}

// receiveFlow reads blocks up to the last one. It calls tick with the bytes received and the time
// since a given moment: at the start, every tickEvery, and at the end.
func receiveFlow(c Conn, budget *atomic.Int64, since time.Time, tick func(bytes int64, at time.Duration) error) (flowEnd, error) {
	var end flowEnd
	cpu := newCPUMeter()
	block := make([]byte, wire.FlowBlock)
	var bytes int64
	var ticked time.Time
	for {
		n, err := readBlock(c, block, func(n int) error {
			now := time.Now()
			if ticked.IsZero() {
				bytes -= int64(n) // data that is there at the start took no time
			}
			if bytes += int64(n); now.Sub(ticked) < tickEvery {
				return nil
			}
			ticked = now
			return tick(bytes, now.Sub(since))
		})
		if err != nil {
			return end, err
		}
		if budget.Add(-int64(n)) < 0 {
			return end, wire.Errorf(wire.CodeProtocol, "the probe has moved more bytes than it may")
		}
		if block[0] == 1 {
			break
		}
		if block[0] != 0 {
			return end, wire.Errorf(wire.CodeProtocol, "a flow consists of marked blocks")
		}
	}
	end.cpu = cpu.share()
	end.info, _ = c.Info()
	return end, tick(bytes, time.Since(since))
}

// readBlock fills block and calls got for each piece.
func readBlock(r io.Reader, block []byte, got func(n int) error) (int, error) {
	n := 0
	for n < len(block) {
		k, err := r.Read(block[n:])
		if n += k; k > 0 {
			if err := got(k); err != nil {
				return n, err
			}
		}
		if err != nil {
			if n > 0 && err == io.EOF && n < len(block) {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
	}
	return n, nil
}

// congestionPrefix marks the value whose name is that of the congestion control.
const congestionPrefix = "congestion:"

// values returns an end's figures in the form of the wire.
func (e *flowEnd) values() []wire.Value {
	i := &e.info
	return []wire.Value{
		{Name: "end", Value: 1},
		{Name: "rtt_ns", Value: int64(i.RTT)}, {Name: "min_rtt_ns", Value: int64(i.MinRTT)},
		{Name: "mss", Value: int64(i.SndMSS)}, {Name: "pmtu", Value: int64(i.PMTU)},
		{Name: "segments", Value: int64(i.DataSegs)}, {Name: "retrans", Value: int64(i.RetransSegs)},
		{Name: "busy_ns", Value: int64(i.BusyTime)}, {Name: "rwnd_limited_ns", Value: int64(i.RwndLimited)}, {Name: "sndbuf_limited_ns", Value: int64(i.SndbufLimited)},
		{Name: "early_segments", Value: int64(e.early.DataSegs)}, {Name: "early_retrans", Value: int64(e.early.RetransSegs)},
		{Name: "sndbuf", Value: int64(i.SndBuf)}, {Name: "rcvbuf", Value: int64(i.RcvBuf)},
		{Name: "snd_wnd", Value: int64(e.sndWnd)}, {Name: "cwnd", Value: int64(e.cwnd)},
		{Name: "cpu_permille", Value: int64(e.cpu * 1000)},
		{Name: congestionPrefix + i.Congestion, Value: 1},
	}
}

// endOf reads the peer's figures. It limits each to its valid range.
func endOf(values []wire.Value) flowEnd {
	var e flowEnd
	i := &e.info
	for _, v := range values {
		n := min(max(0, v.Value), maxCount)
		size := int(min(n, 1<<40))
		switch v.Name {
		case "rtt_ns":
			i.RTT = time.Duration(n)
		case "min_rtt_ns":
			i.MinRTT = time.Duration(n)
		case "mss":
			i.SndMSS = size
		case "pmtu":
			i.PMTU = size
		case "segments":
			i.DataSegs = uint64(n)
		case "retrans":
			i.RetransSegs = uint64(n)
		case "early_segments":
			e.early.DataSegs = uint64(n)
		case "early_retrans":
			e.early.RetransSegs = uint64(n)
		case "busy_ns":
			i.BusyTime = time.Duration(n)
		case "rwnd_limited_ns":
			i.RwndLimited = time.Duration(n)
		case "sndbuf_limited_ns":
			i.SndbufLimited = time.Duration(n)
		case "sndbuf":
			i.SndBuf = size
		case "rcvbuf":
			i.RcvBuf = size
		case "snd_wnd":
			e.sndWnd = size
		case "cwnd":
			e.cwnd = size
		case "cpu_permille":
			e.cpu = float64(min(n, 1000)) / 1000
		default:
			if name, ok := strings.CutPrefix(v.Name, congestionPrefix); ok {
				i.Congestion = wire.Printable(name)
			}
		}
	}
	return e
}
