package quic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDepartures(t *testing.T) {
	const us = time.Microsecond
	origin := time.Unix(1, 0)
	for name, c := range map[string]struct {
		at    []time.Duration // when trains come; each leaves as soon as it may
		waits []time.Duration
	}{
		"the first leaves at once":            {[]time.Duration{100 * us}, []time.Duration{0}},
		"the next waits for the next moment":  {[]time.Duration{100 * us, 400 * us}, []time.Duration{0, 600 * us}},
		"what came meanwhile leaves with it":  {[]time.Duration{100 * us, 400 * us, 500 * us, 600 * us}, []time.Duration{0, 600 * us, 0, 0}},
		"what comes later is another batch":   {[]time.Duration{100 * us, 400 * us, 1300 * us}, []time.Duration{0, 600 * us, 700 * us}},
		"a slow flow waits for nothing":       {[]time.Duration{100 * us, 3000 * us, 6000 * us}, []time.Duration{0, 0, 0}},
		"after a large batch the next leaves": {[]time.Duration{0, 5 * us, 10 * us, 15 * us, 20 * us, 25 * us, 400 * us, 700 * us}, []time.Duration{0, 0, 0, 0, 0, 0, 0, 300 * us}},
	} {
		var d departures
		var got []time.Duration
		var free time.Time // when the sender is back
		for _, at := range c.at {
			now := origin.Add(at)
			if now.Before(free) {
				now = free
			}
			wait := d.wait(now, origin)
			got = append(got, wait)
			d.last = now.Add(wait)
			free = d.last.Add(us)
		}
		require.Equal(t, c.waits, got, name)
	}
}
