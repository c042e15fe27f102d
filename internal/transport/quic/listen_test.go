package quic

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/auth"
)

// TestStrangersByPrefix: connections that are not admitted are counted by IPv4 address and by IPv6
// /64, and by network, so that many addresses of one owner do not take the places of others.
func TestStrangersByPrefix(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for _, tt := range []struct {
		addresses []string
		most      int
	}{
		{[]string{"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1:ffff::3", "2001:db8:0:1::4"}, maxUnadmittedFrom},
		{[]string{"192.0.2.9", "::ffff:192.0.2.9"}, maxUnadmittedFrom},
		{
			[]string{"2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:1:3::1", "2001:db8:1:4::1", "2001:db8:1:5::1"},
			maxUnadmitted/2 + 1,
		},
	} {
		// A new one each time: who is gone is not counted any more, but only soon.
		l, err := Listen("127.0.0.1:0", ListenConfig{Auth: auth.Config{Identity: key}})
		require.NoError(t, err)
		t.Cleanup(func() { l.Shutdown(context.Background()) })
		begin := func(ip string) (gone context.CancelFunc, err error) {
			ctx, cancel := context.WithCancel(t.Context())
			_, err = l.begin(ctx, &quic.ClientInfo{RemoteAddr: &net.UDPAddr{IP: net.ParseIP(ip), Port: 1}})
			return cancel, err
		}
		addresses := tt.addresses
		var open []context.CancelFunc
		for _, ip := range addresses {
			for range 2 * maxUnadmittedFrom {
				gone, err := begin(ip)
				if err != nil {
					gone()
					continue
				}
				open = append(open, gone)
			}
		}
		require.LessOrEqual(t, len(open), tt.most, "%v", addresses)
		require.Greater(t, len(open), tt.most*9/10, "%v", addresses) // neighbours find a place, too
		for _, ip := range []string{"2001:db8:0:2::1", "192.0.2.10", "2001:db8:1:ff::1"} {
			gone, err := begin(ip)
			require.NoError(t, err, "%s beside %v", ip, addresses)
			open = append(open, gone)
		}
		for _, gone := range open {
			gone()
		}
		require.Eventually(t, func() bool { // their places come back on goroutines
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.unadmitted.Taken() == 0
		}, 10*time.Second, time.Millisecond)
	}
}
