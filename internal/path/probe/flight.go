package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/transport"
)

// Flight is how much a server sends before the first acknowledgement: its initial window.
type Flight struct {
	Segments int    `json:"segments"` // median
	Least    int    `json:"least_segments"`
	Most     int    `json:"most_segments"`
	Runs     int    `json:"runs"`
	Bytes    int64  `json:"bytes"` // of the run with the median
	Asked    string `json:"asked"`
	// AtLeast says that the answer ended within the flight, so that more may be allowed.
	AtLeast bool `json:"at_least"`
}

const (
	flightRuns = 5
	// flightMSS makes short answers take many segments: 88 is the least that Linux takes
	// (TCP_MIN_MSS in include/net/tcp.h).
	flightMSS = 88
	// flightTries bounds the connections for that: a run counts only if nothing held this program up.
	flightTries = 3 * flightRuns
	// flightShare is the share of a round trip in which a first flight arrives, also if it is paced.
	// The second one follows a round trip later.
	flightShare, flightLate = 0.6, 0.9
	// recordHandshake is the first byte of a server's answer in TLS (RFC 8446, section 5.1).
	recordHandshake = 22
	flightWait      = 3 * time.Second      // for the first byte
	flightLeast     = 2 * time.Millisecond // on a shorter path flights can't be told apart
)

// errShortPath says that the flights of a server can't be told apart.
var errShortPath = errors.New("the path is too short to see a first flight")

// errLate says that a run may have seen the second flight, too.
var errLate = errors.New("this host was too busy")

// firstFlight counts the segments that a server sends at first, on several new connections.
func firstFlight(ctx context.Context, addr string, overTLS bool) (*Flight, error) {
	f := &Flight{Asked: "GET /"}
	if overTLS {
		f.Asked = "ClientHello"
	}
	type run struct {
		segments int
		bytes    int64
		ended    bool
	}
	var runs []run
	for try := 0; try < flightTries && len(runs) < flightRuns; try++ {
		var r run
		var err error
		if r.segments, r.bytes, r.ended, err = oneFlight(ctx, addr, overTLS); errors.Is(err, errShortPath) || ctx.Err() != nil {
			return nil, err
		}
		if err == nil && r.segments > 0 { // some servers limit connections
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, errors.New("the server sent nothing")
	}
	slices.SortFunc(runs, func(a, b run) int { return a.segments - b.segments })
	middle := runs[len(runs)/2]
	f.Runs, f.Segments, f.Bytes, f.AtLeast = len(runs), middle.segments, middle.bytes, middle.ended
	f.Least, f.Most = runs[0].segments, runs[len(runs)-1].segments
	return f, nil
}

// oneFlight asks once. ended says that the answer was over before the flight was.
func oneFlight(ctx context.Context, addr string, overTLS bool) (segments int, bytes int64, ended bool, err error) {
	d := net.Dialer{Timeout: 5 * time.Second, Control: func(_, _ string, raw syscall.RawConn) error {
		transport.ClampSegments(raw, flightMSS)
		return nil
	}}
	d.SetMultipathTCP(false)
	start := time.Now()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, 0, false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	rtt := time.Since(start)
	i, ok := transport.InfoOf(conn.(*net.TCPConn))
	if ok && i.MinRTT > 0 {
		rtt = i.MinRTT
	}
	if rtt < flightLeast {
		return 0, 0, false, errShortPath
	}
	host, _, _ := net.SplitHostPort(addr)
	_ = conn.SetDeadline(time.Now().Add(flightWait))
	if overTLS {
		err = sendHello(conn, host)
	} else {
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+addr+"\r\nUser-Agent: fxfer\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n")
	}
	if err != nil {
		return 0, 0, false, err
	}
	buf := make([]byte, 64<<10)
	var first time.Time
	for {
		n, err := conn.Read(buf)
		if bytes == 0 && n > 0 {
			if overTLS && buf[0] != recordHandshake {
				return 0, 0, false, errors.New("the server does not speak TLS")
			}
			first = time.Now()
			_ = conn.SetReadDeadline(first.Add(time.Duration(flightShare * float64(rtt))))
		}
		if bytes += int64(n); err != nil {
			ended = !errors.Is(err, os.ErrDeadlineExceeded)
			break
		}
	}
	i, ok = transport.InfoOf(conn.(*net.TCPConn))
	if !ok {
		return 0, 0, false, errors.ErrUnsupported
	}
	if !ended && time.Since(first) > time.Duration(flightLate*float64(rtt)) {
		return 0, 0, false, errLate
	}
	return int(i.DataSegsIn), bytes, ended, nil
}

// sendHello sends a short ClientHello, so that it takes one flight.
func sendHello(conn net.Conn, host string) error {
	hello := &helloConn{Conn: conn}
	conf := &tls.Config{ServerName: host, CurvePreferences: []tls.CurveID{tls.X25519}, MinVersion: tls.VersionTLS12}
	if err := tls.Client(hello, conf).Handshake(); !hello.sent {
		return err
	}
	return nil
}

// helloConn lets the first message of a handshake through, and ends it there.
type helloConn struct {
	net.Conn
	sent bool
}

func (c *helloConn) Write(p []byte) (int, error) {
	if c.sent {
		return 0, io.ErrClosedPipe
	}
	c.sent = true
	return c.Conn.Write(p)
}

func (c *helloConn) Read([]byte) (int, error) { return 0, io.EOF }
