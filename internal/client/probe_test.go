package client

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	c := newClient(t, t.TempDir(), Options{})
	opt := ProbeOptions{Time: minProbeTime, Streams: 2, Bytes: 1 << 30}
	r, err := c.Probe(t.Context(), s.invited(t), opt)
	require.NoError(t, err)
	exchanges := func() (n int) {
		for _, x := range r.Exchanges { // on a busy host, none of a kind may be over in its time
			n += x.Count
		}
		return n
	}
	for try := 0; try < 20 && (len(r.Flows) < 4 || exchanges() == 0); try++ { // a busy host has no time for all
		r, err = c.Probe(t.Context(), s.plain(t, ""), opt)
		require.NoError(t, err)
	}
	require.Equal(t, serverOf(s.plain(t, "")), r.Server)
	require.Positive(t, r.Idle.Min)
	require.LessOrEqual(t, r.Idle.Min, r.Idle.Median)
	require.Len(t, r.Flows, 4)
	var moved int64
	for _, f := range r.Flows {
		require.Positive(t, f.Goodput, "%+v", f)
		moved += f.Bytes
	}
	require.LessOrEqual(t, moved, int64(1<<30)+8*2*wire.FlowBlock)
	require.Len(t, r.Exchanges, 112)
	require.Positive(t, exchanges())
	require.Positive(t, r.Rate.PerSecond)
	require.NotEmpty(t, r.Series)
	require.Positive(t, r.Choice.Streams)
	if runtime.GOOS == "linux" {
		// A probe that finds no MTU in time says so, and goes on. On a busy host, another one finds it.
		unknown := func(m probe.PathMTU) bool { return !m.Measured }
		for try := 0; try < 20 && slices.ContainsFunc(r.MTU, unknown); try++ {
			r, err = c.Probe(t.Context(), s.plain(t, ""), ProbeOptions{Time: minProbeTime})
			require.NoError(t, err)
		}
		for i, d := range []probe.Direction{probe.Up, probe.Down} {
			require.Equal(t, d, r.MTU[i].Direction)
			require.Equal(t, 65535, r.MTU[i].MTU, "of the loopback")
		}
		require.True(t, r.TCP.SACK)
	}

	_, err = c.Probe(t.Context(), s.plain(t, ""), ProbeOptions{Time: time.Hour})
	require.Equal(t, session.KindUsage, session.KindOf(err))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Probe(ctx, s.plain(t, ""), ProbeOptions{Time: minProbeTime})
	require.Error(t, err)
}

// TestMeasureUpload: an upload moves its size over as many streams as are asked for, or what it can
// within its time.
func TestMeasureUpload(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	for _, opt := range []Options{{Streams: 3}, {}, {Streams: 2, Transport: session.TransportQUIC}} {
		c := newClient(t, t.TempDir(), opt)
		r, err := c.MeasureUpload(t.Context(), s.invited(t), 8e6, time.Minute)
		require.NoError(t, err)
		require.InDelta(t, 8e6, r.Bytes, 40*wire.FlowBlock, "each stream ends with a block of its own")
		require.Positive(t, r.Goodput)
		require.Positive(t, r.Idle.Min)
		require.Positive(t, r.CPU)
	}
	_, err := newClient(t, t.TempDir(), Options{}).MeasureUpload(t.Context(), s.plain(t, ""), 0, time.Minute)
	require.Equal(t, session.KindUsage, session.KindOf(err))
}

// TestUploadRate: the server's rate holds for an upload, which ends when its time is over.
func TestUploadRate(t *testing.T) {
	t.Parallel()
	const limit = 40 * 1000 * 1000
	s := serveWith(t, server.Options{ClientRateLimit: limit}, identity.Read)
	defer s.stop()
	r, err := newClient(t, t.TempDir(), Options{Streams: 4}).MeasureUpload(t.Context(), s.invited(t), 1e9, time.Second)
	require.NoError(t, err)
	require.Positive(t, r.Goodput)
	require.Less(t, r.Goodput, 2.0*limit)
	require.Less(t, r.Bytes, int64(1e8))
}

// TestProbeRate: the rate limits of transfers bound a probe, too.
func TestProbeRate(t *testing.T) {
	t.Parallel()
	const limit = 40 * 1000 * 1000
	s := serveWith(t, server.Options{RateLimit: 4 * limit, ClientRateLimit: limit}, identity.Read)
	defer s.stop()
	r, err := newClient(t, t.TempDir(), Options{}).Probe(t.Context(), s.invited(t), ProbeOptions{Time: minProbeTime, Streams: 4})
	require.NoError(t, err)
	for _, f := range r.Flows {
		require.Positive(t, f.Goodput)
		require.Less(t, f.Goodput, 2.0*limit, "%+v", f)
	}
}

// TestProbeAdmission lets only admitted clients probe, and few at a time.
func TestProbeAdmission(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	member := newClient(t, t.TempDir(), Options{Pin: s.Pin()})
	_, err := member.Probe(t.Context(), s.plain(t, ""), ProbeOptions{})
	require.Equal(t, session.KindTrust, session.KindOf(err), "%v", err)
	_, err = member.List(t.Context(), s.invited(t))
	require.NoError(t, err)

	begin := func(id byte) (transport.Conn, wire.Message) {
		x := &dialer{client: member, url: s.plain(t, ""), hello: wire.Hello{Intent: wire.Probe, Session: [16]byte{id}}, cfg: transport.Config{Identity: member.key}}
		conn, err := x.open(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		m, err := wire.NewReader(conn, wire.MaxMessage).Next()
		require.NoError(t, err)
		return conn, m
	}
	var conns []transport.Conn
	for i := range server.MaxProbes {
		conn, m := begin(byte(i))
		require.IsType(t, &wire.Welcome{}, m)
		conns = append(conns, conn)
	}
	_, m := begin(server.MaxProbes)
	require.Equal(t, wire.CodeBusy, m.(*wire.Refuse).Code)
	require.NoError(t, conns[0].Close())
	require.Eventually(t, func() bool {
		conn, m := begin(server.MaxProbes)
		defer conn.Close()
		_, welcome := m.(*wire.Welcome)
		return welcome
	}, 20*time.Second, 10*time.Millisecond, "one that ends makes room")

	s.stop() // which tells those that are left
	m, err = wire.NewReader(conns[1], wire.MaxMessage).Next()
	require.NoError(t, err)
	require.Equal(t, wire.CodeDraining, m.(*wire.Refuse).Code)
	for _, c := range conns {
		_ = c.Close()
	}
}

// A probe fills queues, which lose packets of those that connect then: it does not take that for a black hole.
func TestProbeDoubts(t *testing.T) {
	t.Parallel()
	for intent, doubts := range map[wire.Intent]bool{wire.Probe: false, wire.Push: true} {
		d := &dialer{hello: wire.Hello{Intent: intent}}
		require.False(t, d.doubts(), "the path may be dead")
		d.opened.Store(true)
		require.Equal(t, doubts, d.doubts(), "%v", intent)
	}
}
