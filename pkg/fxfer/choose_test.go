package fxfer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	const gbit = 1e9 / 8
	for name, c := range map[string]struct {
		signs signs
		want  Transport // "" goes on as it is
		says  string
	}{
		"at first":                    {signs{}, "", ""},
		"at first, with a history":    {signs{history: TransportQUIC}, TransportQUIC, "last time"},
		"a history of TCP":            {signs{history: TransportTCP}, "", ""},
		"TCP is slow to connect":      {signs{quic: true, waited: otherWithin / 2}, "", ""},
		"TCP is blocked":              {signs{quic: true, waited: otherWithin}, TransportQUIC, "TCP does not connect"},
		"QUIC is blocked":             {signs{tcp: true, waited: otherWithin, history: TransportQUIC}, TransportTCP, "QUIC does not connect"},
		"QUIC may be blocked":         {signs{tcp: true, waited: otherWithin, rtt: 50 * time.Millisecond, streams: 32}, "", ""},
		"nothing answers":             {signs{waited: time.Minute}, "", ""},
		"no scaling, far":             {signs{tcp: true, unscaled: true, rtt: 50 * time.Millisecond, streams: 32}, TransportQUIC, "32 streams of 64 KiB at 50ms get 336 Mbit/s at most"},
		"no scaling, many make it up": {signs{tcp: true, unscaled: true, rtt: 5 * time.Millisecond, streams: 32}, "", ""},
		"no scaling, one stream":      {signs{tcp: true, unscaled: true, rtt: 5 * time.Millisecond, streams: 1}, TransportQUIC, "105 Mbit/s"},
		"no scaling, RTT unknown":     {signs{tcp: true, unscaled: true, streams: 32}, "", ""},
		"a small window": {signs{tcp: true, rtt: 50 * time.Millisecond, streams: 32, full: true, window: 1 << 16, capped: 0.9, lasts: cappedFor, goodput: 0.3 * gbit},
			TransportQUIC, "90 % of the time, with 32 streams"},
		"more streams may come":   {signs{tcp: true, streams: 32, window: 1 << 16, capped: 0.9, lasts: cappedFor, goodput: 0.3 * gbit}, "", ""},
		"only for a moment":       {signs{tcp: true, streams: 32, full: true, window: 1 << 16, capped: 0.9, lasts: cappedFor / 2, goodput: 0.3 * gbit}, "", ""},
		"a slow disk, not a host": {signs{tcp: true, streams: 32, full: true, window: 4 << 20, capped: 0.9, lasts: cappedFor, goodput: 0.3 * gbit}, "", ""},
		"faster than QUIC":        {signs{tcp: true, streams: 32, full: true, window: 1 << 16, capped: 0.9, lasts: cappedFor, goodput: 3 * gbit}, "", ""},
	} {
		got := choose(&c.signs)
		require.Equal(t, c.want, got.of, name)
		require.Contains(t, got.reason, c.says, name)
		require.Equal(t, got.of == "", got.reason == "", name)
	}
}
