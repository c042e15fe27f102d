package hostile

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var flood = flag.Int("flood", 0, "rounds of TestFlood, 0 to skip it")

// floodRate is the honest client's limit in bit/s. The machine also has to do the attackers' work.
const floodRate = 400e6

// attack attacks a server from other addresses until ctx is done.
type attack func(ctx context.Context, addr string, known key)

// dialFrom connects from the address of this host whose last number is last.
func dialFrom(ctx context.Context, last int, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(last))}, Timeout: patience}
	return d.DialContext(ctx, "tcp", addr)
}

// keepHalfOpen opens connections that send nothing. When the server ends one, it opens another.
func keepHalfOpen(ctx context.Context, addr string, _ key) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range *halfOpen {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := dialFrom(ctx, 2+i%3, addr)
				if err == nil {
					stop := context.AfterFunc(ctx, func() { c.Close() })
					_, _ = c.Read(make([]byte, 1))
					stop()
					c.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Second): // a steady number of connections is wanted, not as many as possible
				}
			}
		})
	}
}

// shakeHands makes unauthenticated clients repeat TLS handshakes.
func shakeHands(ctx context.Context, addr string, _ key) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 16 {
		all.Go(func() {
			conf := mustKey().config()
			for ctx.Err() == nil {
				c, err := dialFrom(ctx, 2+i%3, addr)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				t := tls.Client(c, conf)
				if t.HandshakeContext(ctx) == nil {
					_, _ = t.Write(request{session: byte(i), intent: list, share: ""}.bytes())
					_, _ = t.Read(make([]byte, 1))
				}
				stop()
				c.Close()
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
}

// shakeQUIC makes unauthenticated clients repeat QUIC handshakes.
func shakeQUIC(ctx context.Context, addr string, _ key) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 16 {
		all.Go(func() {
			conf := mustKey().quic()
			udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%3))})
			if err != nil {
				return
			}
			defer udp.Close()
			tr := &quic.Transport{Conn: udp}
			defer tr.Close()
			for ctx.Err() == nil {
				if c, err := tr.Dial(ctx, to, conf, nil); err == nil {
					_ = c.CloseWithError(0, "")
				}
			}
		})
	}
}

// holdSessions makes an admitted client use all of its sessions. Each session has data streams on
// which a byte arrives now and then.
func holdSessions(ctx context.Context, addr string, known key) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range fxfer.DefaultMaxSessionsPerClient {
		all.Go(func() {
			open := func(first []byte) net.Conn {
				c, err := dialFrom(ctx, 2, addr)
				if err != nil {
					return nil
				}
				t := tls.Client(c, known.config())
				context.AfterFunc(ctx, func() { c.Close() })
				_, _ = t.Write(first)
				return t
			}
			id := byte(100 + i)
			control := open(cat(request{session: id, secret: id, intent: push, share: "data", paths: []string{"slow"}}.bytes(), message(manifest, []byte{0, 0}),
				announce(0, fileOf(fmt.Sprint("slow", i), 3<<16))))
			data := open(cat(joining(id, id, 1), block{kind: 1, length: 1 << 16}.bytes()))
			for control != nil && data != nil && ctx.Err() == nil {
				_, _ = control.Write(message(ping, iv(1)))
				_, _ = data.Write([]byte{0})
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
}

// TestFlood measures how much slower an honest client's transfer gets during attacks: the loss has
// to be negligible.
func TestFlood(t *testing.T) {
	if *flood == 0 {
		t.Skip("a measurement: -flood 5 -half-open 10000")
	}
	if carrier != "" {
		t.Skip("the path of this test carries TCP")
	}
	dir := t.TempDir()
	share, home, at := filepath.Join(dir, "share"), filepath.Join(dir, "server"), filepath.Join(dir, "client")
	require.NoError(t, os.Mkdir(share, 0o700))
	pinOf := func(home string) string {
		s, err := identity.OpenStore(home)
		require.NoError(t, err)
		k, err := s.Key()
		require.NoError(t, err)
		return string(identity.PinOf(k.Public().(ed25519.PublicKey)))
	}
	pin, known := pinOf(home), newKey(t)
	require.NoError(t, os.WriteFile(filepath.Join(home, "authorized_clients"), []byte(pinOf(at)+" *=rw\n"+known.pin+" *=rw\n"), 0o600))
	server := startServer(t, home, "--share", "data="+share)
	source := filepath.Join(dir, "source")
	b := make([]byte, 100<<20)
	_, _ = rand.Read(b)
	require.NoError(t, os.WriteFile(source, b, 0o600))
	var names atomic.Int64
	send := func() float64 {
		c, err := fxfer.NewClient(fxfer.Options{Home: at, Pin: pin, RateLimit: floodRate, RetryFor: time.Minute})
		require.NoError(t, err)
		u, err := fxfer.ParseURL("fxfer://" + server.addr + "/data/" + strconv.FormatInt(names.Add(1), 10))
		require.NoError(t, err)
		start := time.Now()
		_, err = c.Send(t.Context(), []string{source}, u, fxfer.Transfer{})
		require.NoError(t, err)
		return 8 * float64(len(b)) / time.Since(start).Seconds()
	}
	send() // fills caches
	kinds := []struct {
		name string
		do   attack
	}{{fmt.Sprintf("%d half-open connections", *halfOpen), keepHalfOpen}, {"handshakes of strangers", shakeHands}, {"handshakes of strangers over QUIC", shakeQUIC}, {"slow sessions of a client", holdSessions}}
	ratios := make([][]float64, len(kinds))
	for range *flood {
		for i, k := range kinds {
			alone := send()
			ctx, cancel := context.WithCancel(t.Context())
			var attacking sync.WaitGroup
			attacking.Go(func() { k.do(ctx, server.addr, known) })
			time.Sleep(2 * time.Second) // the transfer gets under way
			under := send()
			cancel()
			attacking.Wait()
			ratios[i] = append(ratios[i], under/alone)
			t.Logf("%s: %.0f Mbit/s alone, %.0f under attack", k.name, alone/1e6, under/1e6)
		}
	}
	for i, k := range kinds {
		slices.Sort(ratios[i])
		median := ratios[i][len(ratios[i])/2]
		t.Logf("%s: goodput of others %.1f %% (%.1f to %.1f); server's peak memory %d MiB", k.name, 100*median, 100*ratios[i][0], 100*ratios[i][len(ratios[i])-1], server.peak(t)>>20)
		require.GreaterOrEqual(t, median, 0.9, k.name)
	}
}
