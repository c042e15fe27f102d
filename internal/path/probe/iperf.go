package probe

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/transport"
)

// The control channel of iperf3, with the numbers of iperf_api.h of version 3. A state is one
// byte. Parameters and results are JSON after a length of 4 bytes.
const (
	iperfTestStart       = 1
	iperfTestRunning     = 2
	iperfTestEnd         = 4
	iperfParamExchange   = 9
	iperfCreateStreams   = 10
	iperfExchangeResults = 13
	iperfDisplayResults  = 14
	iperfDone            = 16
	iperfDenied          = 255

	iperfMostResults = 256 << 10
	iperfBlock       = 128 << 10
)

// iperfParams are the parameters that an iperf3 client sends to the server.
type iperfParams struct {
	TCP      bool   `json:"tcp"`
	Omit     int    `json:"omit"`
	Time     int    `json:"time"`
	Num      int    `json:"num"`
	Blocks   int    `json:"blockcount"`
	Parallel int    `json:"parallel"`
	Reverse  bool   `json:"reverse,omitempty"`
	Len      int    `json:"len"`
	Window   int    `json:"window,omitempty"` // of the server's socket buffers, bytes
	Client   string `json:"client_version"`
}

type iperfResults struct {
	CPUTotal    float64       `json:"cpu_util_total"`
	CPUUser     float64       `json:"cpu_util_user"`
	CPUSystem   float64       `json:"cpu_util_system"`
	Retransmits int           `json:"sender_has_retransmits"`
	Streams     []iperfStream `json:"streams"`
}

type iperfStream struct {
	ID          int     `json:"id"`
	Bytes       int64   `json:"bytes"`
	Retransmits int64   `json:"retransmits"`
	Jitter      float64 `json:"jitter"`
	Errors      int     `json:"errors"`
	Packets     int     `json:"packets"`
	Start       float64 `json:"start_time"`
	End         float64 `json:"end_time"`
}

// iperfHeard has the useful fields of a server's results.
type iperfHeard struct {
	Streams []struct {
		Bytes float64 `json:"bytes"`
		Start float64 `json:"start_time"`
		End   float64 `json:"end_time"`
	} `json:"streams"`
}

// iperfTest describes tests with an iperf3 server.
type iperfTest struct {
	addr      string
	within    time.Duration // of each test, in whole seconds
	sockBuf   int           // of the data connection, bytes; 0 is automatic
	there     bool          // the server has to set it, too
	connected func(*net.TCPConn, time.Duration)
}

// run measures the goodput of one stream to or from the server. It calls connected for each
// connection.
func (t *iperfTest) run(ctx context.Context, d Direction) (*Flow, error) {
	within := t.within
	var dialer net.Dialer
	dialer.SetMultipathTCP(false)
	connect := func() (*net.TCPConn, error) {
		start := time.Now()
		c, err := dialer.DialContext(ctx, "tcp", t.addr)
		if err != nil {
			return nil, err
		}
		t.connected(c.(*net.TCPConn), time.Since(start))
		_ = c.SetDeadline(time.Now().Add(within + 10*time.Second))
		return c.(*net.TCPConn), nil
	}
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails
	cookie := append([]byte(base32.StdEncoding.EncodeToString(id[:])[:36]), 0)
	control, err := connect()
	if err != nil {
		return nil, err
	}
	defer control.Close()
	if _, err := control.Write(cookie); err != nil {
		return nil, err
	}
	var data *net.TCPConn
	var drain sync.WaitGroup
	defer func() {
		if data != nil {
			data.Close()
		}
		drain.Wait()
	}()
	s := &stream{}
	for {
		var state [1]byte
		if _, err := io.ReadFull(control, state[:]); err != nil {
			return nil, fmt.Errorf("iperf3: %w", err)
		}
		switch state[0] {
		case iperfParamExchange:
			p := iperfParams{TCP: true, Time: int(within / time.Second), Parallel: 1, Reverse: d == Down, Len: iperfBlock, Client: "3.0"}
			if t.there {
				p.Window = t.sockBuf
			}
			err = iperfWrite(control, p)
		case iperfCreateStreams:
			if data != nil {
				return nil, errors.New("iperf3: the server wants a stream again")
			}
			if data, err = connect(); err == nil && t.sockBuf > 0 {
				err = errors.Join(data.SetWriteBuffer(t.sockBuf), data.SetReadBuffer(t.sockBuf))
			}
			if err == nil {
				_, err = data.Write(cookie)
			}
		case iperfTestStart:
		case iperfTestRunning:
			if data == nil {
				return nil, errors.New("iperf3: the server begins without a stream")
			}
			if d == Up {
				err = s.iperfSend(data, within)
			} else {
				err = s.iperfReceive(data, within)
			}
			if err == nil {
				_, err = control.Write([]byte{iperfTestEnd})
			}
			if d == Down { // read what is under way, or the server would delay its results
				drain.Go(func() { _, _ = io.Copy(io.Discard, data) })
			}
		case iperfExchangeResults:
			var theirs iperfHeard
			ours := iperfResults{Streams: []iperfStream{{ID: 1, Bytes: s.sent(), End: within.Seconds(), Retransmits: -1}}}
			if err = iperfWrite(control, ours); err == nil {
				err = iperfRead(control, &theirs)
			}
			if err == nil && d == Up && len(theirs.Streams) == 1 {
				x := theirs.Streams[0]
				s.ticks = []tick{{0, 0}, {seconds(min(max(x.End-x.Start, 0), 1e6)), int64(min(max(x.Bytes, 0), 1<<60))}}
			}
		case iperfDisplayResults:
			_, _ = control.Write([]byte{iperfDone}) // the server has everything
			f := flowOf(d, []stream{*s}, within, s.sender.info.MinRTT)
			if d == Up { // the server reports only the total
				f.Goodput = 8 * float64(f.Bytes) / max(f.Duration, 1e-3)
				f.BDP = int64(f.Goodput / 8 * f.MinRTT)
			}
			return f, nil
		case iperfDenied:
			return nil, errors.New("iperf3: the server runs another test")
		default:
			return nil, fmt.Errorf("iperf3: the server went to state %d", state[0])
		}
		if err != nil {
			return nil, fmt.Errorf("iperf3: %w", err)
		}
	}
}

func (s *stream) sent() int64 {
	if n := len(s.ticks); n > 0 {
		return s.ticks[n-1].bytes
	}
	return 0
}

// iperfSend writes until the time is over. iperf3 marks no end.
func (s *stream) iperfSend(c *net.TCPConn, within time.Duration) error {
	block := make([]byte, iperfBlock)
	start := time.Now()
	for time.Since(start) < within {
		n, err := c.Write(block)
		if err != nil {
			return err
		}
		s.ticks = []tick{{time.Since(start), s.sent() + int64(n)}}
	}
	s.sender.info, _ = transport.InfoOf(c)
	s.sender.sndWnd, s.sender.cwnd = s.sender.info.SndWnd, s.sender.info.Cwnd
	return nil
}

// iperfReceive reads until the time is over.
func (s *stream) iperfReceive(c *net.TCPConn, within time.Duration) error {
	block := make([]byte, iperfBlock)
	var bytes int64
	start := time.Now()
	for time.Since(start) < within {
		n, err := c.Read(block)
		if err != nil {
			return err
		}
		bytes += int64(n)
		if k := len(s.ticks); k == 0 || time.Since(start)-s.ticks[k-1].at >= tickEvery {
			s.add(tick{time.Since(start), bytes})
		}
	}
	s.add(tick{time.Since(start), bytes})
	s.target.info, _ = transport.InfoOf(c)
	return nil
}

func iperfWrite(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func iperfRead(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > iperfMostResults {
		return fmt.Errorf("results of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
