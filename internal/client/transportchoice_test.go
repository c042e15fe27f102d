package client

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	small := func(but func(*evidence)) evidence {
		x := evidence{tcp: true, rtt: 50 * time.Millisecond, streams: 32, window: unscaledWindow, capped: 0.9, filled: 0.9, lasts: cappedFor}
		if but != nil {
			but(&x)
		}
		return x
	}
	for name, c := range map[string]struct {
		evidence evidence
		want     session.Transport // "" goes on as it is
		says     string
	}{
		"at first":                    {evidence{}, "", ""},
		"at first, with a history":    {evidence{history: session.TransportQUIC}, session.TransportQUIC, "last time"},
		"a history of TCP":            {evidence{history: session.TransportTCP}, "", ""},
		"TCP is slow to connect":      {evidence{quic: true, waited: otherAfter / 2}, "", ""},
		"TCP is blocked":              {evidence{quic: true, waited: otherAfter}, session.TransportQUIC, "TCP does not connect"},
		"QUIC is blocked":             {evidence{tcp: true, waited: otherAfter, history: session.TransportQUIC}, session.TransportTCP, "QUIC does not connect"},
		"QUIC may be blocked":         {evidence{tcp: true, waited: otherAfter, rtt: 50 * time.Millisecond, streams: 32}, "", ""},
		"nothing answers":             {evidence{waited: time.Minute}, "", ""},
		"no scaling, far":             {evidence{tcp: true, unscaled: true, rtt: 50 * time.Millisecond, streams: 32}, session.TransportQUIC, "32 streams of 64 KiB at 50ms get 336 Mbit/s at most"},
		"no scaling, many make it up": {evidence{tcp: true, unscaled: true, rtt: 5 * time.Millisecond, streams: 32}, "", ""},
		"no scaling, one stream":      {evidence{tcp: true, unscaled: true, rtt: 5 * time.Millisecond, streams: 1}, session.TransportQUIC, "105 Mbit/s"},
		"no scaling, RTT unknown":     {evidence{tcp: true, unscaled: true, streams: 32}, "", ""},
		"a small window":              {small(nil), session.TransportQUIC, "90 % of the time: 32 streams of 64 KiB at 50ms get 336 Mbit/s at most"},
		"only for a moment":           {small(func(x *evidence) { x.lasts = cappedFor / 2 }), "", ""},
		"a few round trips":           {small(func(x *evidence) { x.rtt = cappedFor / 2 }), "", ""},
		"a slow disk, not a host":     {small(func(x *evidence) { x.window = 4 << 20 }), "", ""},
		"a slow reader":               {small(func(x *evidence) { x.filled = 0.3 }), "", ""},
		"not the limit":               {small(func(x *evidence) { x.capped = 0.3 }), "", ""},
		"faster than QUIC":            {small(func(x *evidence) { x.rtt = 5 * time.Millisecond }), "", ""},
	} {
		got := choose(&c.evidence)
		require.Equal(t, c.want, got.transport, name)
		require.Contains(t, got.reason, c.says, name)
		require.Equal(t, got.transport == "", got.reason == "", name)
	}
}

// TestWindowWatch: the measurement starts again when the window grows or is not the limit for a while.
func TestWindowWatch(t *testing.T) {
	var w windowWatch
	x := evidence{streams: 32}
	o := diagnose.Sample{At: 100 * time.Millisecond, Streams: 16, MinRTT: 50 * time.Millisecond, SndWnd: 64 << 10}
	pass := func(d, capped time.Duration) {
		o.At, o.Busy, o.RwndLimited = o.At+d, o.Busy+16*d, o.RwndLimited+16*capped
		o.Acked += int64(16 * float64(o.SndWnd) * d.Seconds() / o.MinRTT.Seconds())
		o.Payload = o.Acked
	}
	w.add(&o, &x)
	require.Zero(t, x.lasts)
	pass(time.Second, time.Second)
	require.InDelta(t, 16*(64<<10)/0.05, w.add(&o, &x), 1)
	require.Equal(t, time.Second, x.lasts)
	require.InDelta(t, 1, x.capped, 1e-9)
	require.InDelta(t, 1, x.filled, 1e-6)
	w.add(&o, &x) // the same sample once more
	require.Equal(t, time.Second, x.lasts)
	o.SndWnd *= 2
	pass(time.Second, time.Second)
	w.add(&o, &x)
	require.Zero(t, x.lasts, "it has grown")
	pass(time.Second, 900*time.Millisecond)
	o.SndWnd /= 2
	w.add(&o, &x)
	require.Equal(t, time.Second, x.lasts)
	require.InDelta(t, 0.9, x.capped, 1e-9)
	pass(time.Second, 100*time.Millisecond)
	w.add(&o, &x)
	require.Zero(t, x.lasts, "it was not the limit")
}

// TestRestartedServer: a client that was refused while a server was down stays with its transport
// once the server is up again. The other transport is for a server that has no more than that one.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	refused := &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}
	for _, x := range []struct {
		has, first session.Transport
		err        error
		want       session.Transport
	}{
		{session.TransportAuto, session.TransportTCP, refused, session.TransportTCP},
		{session.TransportAuto, session.TransportQUIC, refused, session.TransportQUIC},
		{session.TransportAuto, session.TransportTCP, errors.New("a middle box ends it"), session.TransportQUIC},
		{session.TransportQUIC, session.TransportTCP, refused, session.TransportQUIC},
		{session.TransportTCP, session.TransportQUIC, refused, session.TransportTCP},
	} {
		s := serveWith(t, server.Options{Transport: x.has}, identity.Read)
		u := s.invited(t)
		d := dialer{client: newClient(t, t.TempDir(), Options{}), url: u, via: choice{transport: x.first}}
		d.prepare(0)
		got := d.instead(t.Context(), x.err)
		require.Equal(t, x.want, got.transport, "%+v", x)
		require.Equal(t, x.want == x.first, got.reason == "", "%+v: %s", x, got.reason)
		d.group.Close(0)
		s.stop()
		require.Zero(t, d.instead(t.Context(), x.err), "nobody answers")
	}
}

// TestChoiceIsForgotten: what a network made necessary does not hold for ever.
func TestChoiceIsForgotten(t *testing.T) {
	t.Parallel()
	c := newClient(t, t.TempDir(), Options{})
	c.keepChoice("nas:7433", session.TransportQUIC)
	require.Equal(t, session.TransportQUIC, c.firstChoice("nas:7433").transport)
	past := time.Now().Add(-chosenFor - time.Minute)
	require.NoError(t, os.Chtimes(c.pathFile("nas:7433"+chosen), past, past))
	require.Equal(t, session.TransportTCP, c.firstChoice("nas:7433").transport)
	c.keepChoice("nas:7433", session.TransportQUIC)
	require.Equal(t, session.TransportQUIC, c.firstChoice("nas:7433").transport, "it was necessary again")
}
