package server

import (
	"context"
	"crypto/ed25519"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// A relay that asks for many connections, and then does not answer on them, gets no more than clients
// at its address could have.
func TestRelayAsksForMuch(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	relay, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: key})
	require.NoError(t, err)
	defer relay.Close()
	at := session.URL{Host: "127.0.0.1", Port: relay.Addr().(*net.TCPAddr).Port, Pin: identity.PinOfPrivate(key)}
	s, err := New(Options{Home: t.TempDir(), Listen: "127.0.0.1:0", Call: []session.URL{at}, MaxConnectionsPerAddress: 8,
		Shares: []Share{{Name: "data", Dir: t.TempDir(), Rights: identity.Read}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	defer func() { require.NoError(t, <-ended) }()
	defer cancel()

	control, err := relay.Accept()
	require.NoError(t, err)
	defer control.Close()
	require.NoError(t, control.Handshake(t.Context()))
	require.NoError(t, control.SetDeadline(time.Now().Add(time.Minute)))
	in := wire.NewReader(control, wire.MaxFirstMessage)
	m, err := in.Next()
	require.NoError(t, err)
	require.IsType(t, &wire.Await{}, m)
	var out []byte
	for i := range 100 {
		out = wire.Append(out, &wire.Called{ID: [16]byte{byte(i)}})
	}
	_, err = control.Write(wire.Append(out, &wire.Ping{}))
	require.NoError(t, err)
	m, err = in.Next()
	require.NoError(t, err)
	require.IsType(t, &wire.Pong{}, m)
	require.Equal(t, 2, s.conns.Count(), "a quarter of those of its address")
}

func TestPauseAfter(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ before, lasted, want time.Duration }{
		{0, 0, time.Second}, {0, time.Hour, time.Second}, {time.Second, 0, 2 * time.Second}, {32 * time.Second, 59 * time.Second, time.Minute},
		{time.Minute, 0, time.Minute}, {time.Minute, time.Minute, time.Second},
	} {
		require.Equal(t, x.want, pauseAfter(x.before, x.lasted), "%v", x)
	}
}
