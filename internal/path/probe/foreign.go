package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// ServiceView is what one side sees of a TCP port, whatever service answers there. Times are in
// seconds.
type ServiceView struct {
	Address string  `json:"address"`
	Connect RTT     `json:"connect"`                // time of the TCP handshake: one round trip
	TCP     TCP     `json:"tcp"`                    //
	RTT     float64 `json:"kernel_rtt_seconds"`     // smoothed by the kernel
	MinRTT  float64 `json:"kernel_min_rtt_seconds"` //
	// FirstByte is the time since the connection, or since the request if one was sent. It is 0
	// if nothing came.
	FirstByte float64 `json:"first_byte_seconds"`
	// Asked is what was sent to make the service answer, "" if it spoke first.
	Asked  string  `json:"asked,omitempty"`
	Banner string  `json:"banner,omitempty"`       // first line of the answer
	SndWnd int64   `json:"receiver_window_bytes"`  // announced by the service
	Guess  string  `json:"service,omitempty"`      // guessed from the banner
	Flight *Flight `json:"first_flight,omitempty"` // of HTTP and TLS
	Flows  []Flow  `json:"flows,omitempty"`        // of iperf3
	Note   string  `json:"note,omitempty"`         // what failed
}

const (
	connects    = 7
	bannerWait  = time.Second // for a service that speaks first
	requestWait = 3 * time.Second
	httpRequest = "HEAD / HTTP/1.0\r\nConnection: close\r\n\r\n"
	iperfPort   = "5201"
	iperfPause  = 300 * time.Millisecond // until a server takes the next test
	iperfTries  = 5
	guessIperf  = "iperf3"
)

// Foreign measures a TCP port from this side only. If the service does not speak first, Foreign
// sends it an HTTP request. Of HTTP and TLS it measures the first flight. On iperf3's port, and
// wherever the answer is that of iperf3, it runs two goodput tests with the iperf3 server. Each takes
// the given time, rounded to whole seconds, with socket buffers of sockBuf bytes; 0 is
// automatic.
func Foreign(ctx context.Context, addr string, within time.Duration, sockBuf int) (*ServiceView, error) {
	s := &ServiceView{Address: addr}
	if _, port, _ := net.SplitHostPort(addr); port == iperfPort {
		if is, err := s.iperf(ctx, within, sockBuf); is || ctx.Err() != nil {
			return s, err
		}
	}
	var times []time.Duration
	d := net.Dialer{Timeout: 5 * time.Second}
	d.SetMultipathTCP(false)
	var conn *net.TCPConn // the first
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for i := range connects {
		start := time.Now()
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			if i > 0 { // some services limit connections
				break
			}
			return nil, err
		}
		times = append(times, time.Since(start))
		if conn == nil {
			conn = c.(*net.TCPConn)
			continue
		}
		c.Close()
	}
	s.Connect = rttOf(times)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := s.listen(conn); err != nil {
		return nil, err
	}
	if i, ok := transport.InfoOf(conn); ok {
		s.see(&i)
	}
	if s.Guess == guessIperf { // it takes the request for a test's cookie, and is busy until its end
		conn.Close()
		for try := 0; try < iperfTries && sleep(ctx, iperfPause) == nil; try++ {
			if is, err := s.iperf(ctx, within, sockBuf); is || ctx.Err() != nil {
				return s, err
			}
		}
		return s, ctx.Err()
	}
	s.flight(ctx)
	return s, ctx.Err()
}

// flight measures the first flight of a server that answers requests, or that may expect TLS: then
// it was silent, ended the connection, or calls the request bad.
func (s *ServiceView) flight(ctx context.Context) {
	if s.Asked == "" && s.Banner != "" {
		return // it speaks first
	}
	if s.Guess == "" || strings.Contains(s.Banner, " 400") {
		if f, err := firstFlight(ctx, s.Address, true); err == nil {
			s.Flight, s.Guess = f, "TLS"
			return
		}
	}
	if s.Guess == "HTTP" {
		f, err := firstFlight(ctx, s.Address, false)
		if s.Flight = f; err != nil {
			s.Note = fmt.Sprintf("no first flight: %v", err)
		}
	}
}

// iperf measures goodput in both directions. It reports whether the service is an iperf3 server.
func (s *ServiceView) iperf(ctx context.Context, within time.Duration, sockBuf int) (bool, error) {
	var times []time.Duration
	t := iperfTest{addr: s.Address, within: within, sockBuf: sockBuf, there: sockBuf > 0}
	t.connected = func(c *net.TCPConn, took time.Duration) {
		times = append(times, took)
		if i, ok := transport.InfoOf(c); ok {
			s.see(&i)
		}
	}
	for _, d := range []Direction{Up, Down} {
		f, err := t.run(ctx, d)
		if err != nil && t.there && len(s.Flows) == 0 && sleep(ctx, iperfPause) == nil { // its limits may be smaller
			t.there = false
			if f, err = t.run(ctx, d); err == nil {
				s.Note = "the iperf3 server did not take the socket buffer: only this end has it"
			}
		}
		// The server reopens its port after each test.
		for try := 0; err != nil && len(s.Flows) > 0 && try < iperfTries && sleep(ctx, iperfPause) == nil; try++ {
			f, err = t.run(ctx, d)
		}
		if err != nil && len(s.Flows) == 0 {
			return false, err
		}
		if err != nil {
			s.Note = fmt.Sprintf("goodput %s: %v", d, err)
			break
		}
		s.Flows = append(s.Flows, *f)
	}
	s.Connect, s.Guess = rttOf(times), guessIperf
	return true, ctx.Err()
}

// see records what the kernel knows of the connection.
func (s *ServiceView) see(i *transport.Info) {
	s.RTT, s.MinRTT, s.SndWnd = i.RTT.Seconds(), i.MinRTT.Seconds(), int64(i.SndWnd)
	s.TCP = TCP{
		WindowScaling: i.WindowScaling, SndScale: i.SndScale, RcvScale: i.RcvScale, SACK: i.SACK, Timestamps: i.Timestamps, ECN: i.ECN,
		SndMSS: i.SndMSS, RcvMSS: i.AdvMSS, PMTU: i.PMTU, Congestion: i.Congestion,
	}
}

// listen waits for the service to speak. If it stays silent, listen sends a request.
func (s *ServiceView) listen(conn *net.TCPConn) error {
	buf := make([]byte, 512)
	start := time.Now()
	_ = conn.SetReadDeadline(start.Add(bannerWait))
	n, err := conn.Read(buf)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		s.Asked = "HEAD / HTTP/1.0"
		start = time.Now()
		if _, err := conn.Write([]byte(httpRequest)); err != nil {
			return fmt.Errorf("ask %s: %w", s.Address, err)
		}
		_ = conn.SetReadDeadline(start.Add(requestWait))
		n, _ = conn.Read(buf)
	}
	if n == 0 {
		return nil
	}
	s.FirstByte = time.Since(start).Seconds()
	if s.Asked != "" && n == 1 && (buf[0] == iperfParamExchange || buf[0] == iperfDenied) {
		s.Guess = guessIperf
		return nil
	}
	line, _, _ := bytes.Cut(buf[:n], []byte("\n"))
	s.Banner = wire.Printable(strings.ToValidUTF8(strings.TrimSuffix(string(line), "\r"), "\ufffd"))
	for _, g := range []struct{ prefix, name string }{{"SSH-", "SSH"}, {"HTTP/", "HTTP"}, {"220", "FTP or mail"}, {"* OK", "IMAP"}, {"+OK", "POP3"}} {
		if strings.HasPrefix(s.Banner, g.prefix) {
			s.Guess = g.name
		}
	}
	return nil
}
