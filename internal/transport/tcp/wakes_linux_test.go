package tcp

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A reader wakes up a few times in a round trip: for what arrives in that time, but not for so little that it
// saves nothing, nor for more than mostWake. It forgets a rate that was.
func TestWakes(t *testing.T) {
	t.Parallel()
	const rtt = 80 * time.Millisecond
	for _, c := range []struct {
		name string
		rate float64 // bytes/s
		want int
	}{
		{"a stream of many on 300 Mbit/s", 2.3e6, 46_000},
		{"a fast one", 1e9, mostWake},
		{"a modem", 1200, 1},
		{"nothing", 0, 1},
	} {
		w, now := wakes{pause: rtt / wakesInTrip}, time.Now()
		for _, rate := range []float64{1e9, c.rate} { // the line becomes slower
			for end := now.Add(4 * arrivalTime); now.Before(end); now = now.Add(time.Millisecond) {
				w.arrived(int(rate/1000), now)
			}
		}
		require.InEpsilon(t, c.want, w.bytes, 0.05, c.name)
	}
	var unknown wakes
	unknown.arrived(1<<20, time.Now())
	unknown.arrived(1<<20, time.Now().Add(time.Second))
	require.LessOrEqual(t, unknown.bytes, 1, "the path is unknown")
}

// On a far path, a reader that waits for much gets all that is sent, the end of a block too, and an end
// that comes too soon.
func TestFarReads(t *testing.T) {
	t.Parallel()
	client, server := connect(t, Config{}, Config{})
	client.Admit()
	server.Admit()
	server.near, server.wakes = false, wakes{pause: 20 * time.Millisecond, bytes: mostWake, since: time.Now()}
	require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
	want := bytes.Repeat([]byte("0123456789"), 50_000)
	read := make(chan []byte, 1)
	go func() {
		got := make([]byte, len(want))
		n, _ := io.ReadFull(restOf{server}, got)
		read <- got[:n]
	}()
	_, err := client.Write(want[:100_000])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return option(t, server, unix.SOL_SOCKET, unix.SO_RCVLOWAT) == mostWake }, time.Minute, time.Millisecond, "it waits for much")
	_, err = client.Write(want[100_000:])
	require.NoError(t, err)
	require.Equal(t, want, <-read)

	go func() {
		p := make([]byte, 200_000)
		n, _ := io.ReadFull(restOf{server}, p)
		read <- p[:n]
	}()
	_, err = client.Write(want[:1000])
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	require.Equal(t, want[:1000], <-read)
}

type restOf struct{ *Conn }

func (r restOf) Read(p []byte) (int, error) { return r.ReadRest(p) }
