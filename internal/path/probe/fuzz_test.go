package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// scriptedConn is a stream whose peer has sent all of its data and accepts only a limited amount.
type scriptedConn struct {
	io.Reader
	room int
}

var errNoRoom = errors.New("the peer takes no more")

func (c *scriptedConn) Write(p []byte) (int, error) {
	if c.room -= len(p); c.room < 0 {
		return 0, errNoRoom
	}
	return len(p), nil
}
func (c *scriptedConn) Close() error                 { return nil }
func (c *scriptedConn) SetDeadline(time.Time) error  { return nil }
func (c *scriptedConn) SetNoDelay(bool) error        { return nil }
func (c *scriptedConn) SetCork(bool) error           { return nil }
func (c *scriptedConn) LimitUnsent(int)              {}
func (c *scriptedConn) LocalAddr() net.Addr          { return &net.UnixAddr{} } // not a UDP address
func (c *scriptedConn) RemoteAddr() net.Addr         { return &net.UnixAddr{} }
func (c *scriptedConn) Info() (transport.Info, bool) { return transport.Info{}, false }

// FuzzSession checks that Serve ends with the stream, whatever a client requests.
func FuzzSession(f *testing.F) {
	test := func(m wire.Test) []byte { return wire.Append(nil, &m) }
	f.Add(append(test(wire.Test{Kind: wire.Exchange, Size: wire.MinExchange, Split: true, Time: 9}), 1))
	f.Add(test(wire.Test{Kind: wire.Plain, Size: wire.MinExchange, Cork: true, Time: 9}))
	f.Add(append(test(wire.Test{Kind: wire.Upload, Time: 1}), append(make([]byte, wire.FlowBlock), 1)...))
	f.Add(test(wire.Test{Kind: wire.Download, Size: 1, Time: 1}))
	f.Add(append(test(wire.Test{Kind: wire.Sound, Time: 1}), wire.Append(nil, &wire.Volley{Sizes: []uint64{64}})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewSession(&net.TCPAddr{Port: 1})
		late := time.AfterFunc(30*time.Second, func() { panic("a probe does not end with its client") })
		defer late.Stop()
		err := s.Serve(context.Background(), &scriptedConn{bytes.NewReader(b), 1 << 20})
		require.True(t, err == nil || len(b) > 0)
		require.Zero(t, s.conns)
	})
}

// FuzzEnd checks that the results are valid numbers, whatever a peer says about its end of a flow
// or about datagrams.
func FuzzEnd(f *testing.F) {
	f.Add(wire.Append(nil, &wire.Sample{Values: (&flowEnd{}).values()}), int64(1<<20), int64(time.Second))
	f.Add(wire.Append(nil, &wire.Sample{Values: []wire.Value{{Name: "rtt_ns", Value: math.MaxInt64}, {Name: "mss", Value: math.MinInt64}, {Name: "end", Value: 1}}}), int64(-1), int64(math.MaxInt64))
	f.Add(wire.Append(nil, &wire.Sample{Values: []wire.Value{{Name: "congestion:\x1b[2J", Value: 1}, {Name: "segments", Value: 5}, {Name: "retrans", Value: 9}}}), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, sent, at int64) {
		m, err := wire.NewReader(bytes.NewReader(b), wire.MaxMessage).Next()
		said, ok := m.(*wire.Sample)
		if err != nil || !ok {
			return
		}
		end := endOf(said.Values)
		r := &Report{Idle: RTT{Count: 1, Min: 0.01, Median: 0.01}}
		for _, d := range []Direction{Up, Down} {
			x := stream{sender: end, target: end}
			x.add(tick{0, 0})
			x.add(tick{time.Duration(at), sent})
			r.Flows = append(r.Flows, *flowOf(d, []stream{x}, time.Second, 10*time.Millisecond), *flowOf(d, []stream{x, x}, time.Second, 10*time.Millisecond))
		}
		_ = Judge(r)
		_, err = json.Marshal(r) // it rejects NaN and infinities
		require.NoError(t, err)
		for i := range r.Flows {
			require.GreaterOrEqual(t, r.Flows[i].Goodput, 0.0)
			require.NotContains(t, r.Flows[i].Congestion, "\x1b")
		}
	})
}

// FuzzDatagram checks that a head survives parsing and writing.
func FuzzDatagram(f *testing.F) {
	b := make([]byte, wire.DatagramHead)
	putHead(b, [16]byte{1}, 2, 3)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		mark, number, size, ok := parseHead(b)
		require.Equal(t, len(b) >= wire.DatagramHead, ok)
		if ok {
			again := make([]byte, 24)
			putHead(again, mark, number, size)
			require.Equal(t, b[:24], again)
		}
	})
}
