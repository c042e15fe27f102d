package path

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/plan"
)

// FuzzPathFlags: every value that a flag's parser accepts is within the range of the flag.
func FuzzPathFlags(f *testing.F) {
	for _, s := range []string{"17520", "64KiB", "2TB", "1gbit,15ms", "10m", "1000km", "1e-6", "1500", "9223372036854775807", "leo,20ms,loss=1%,initcwnd=3,initrwnd=44,window=64KiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, parse := range map[string]func(string) (int64, error){"window": parseWindow, "some size": parseSomeSize, "bandwidth": parseBandwidth} {
			if n, err := parse(s); err == nil {
				require.Positive(t, n, "%s %q", name, s)
			}
		}
		for name, parse := range map[string]func(string) (time.Duration, error){"some time": parseSomeTime, "rtt": parseRTT} {
			if d, err := parse(s); err == nil {
				require.GreaterOrEqual(t, d, time.Duration(0), "%s %q", name, s)
			}
		}
		if p, err := parsePathFor(s); err == nil {
			require.True(t, p.Rate > 0 && p.RTT > 0, "%q", s)
		}
		if p, err := parseProbability(s); err == nil {
			require.True(t, p >= 0 && p <= 1, "%q is %v", s, p)
		}
		if km, err := parseDistance(s); err == nil {
			require.True(t, km > 0 && km <= maxPlanKm, "%q is %d", s, km)
		}
		if l, err := parseLeg(s, true); err == nil {
			require.NoError(t, l.Link.Check(), "%q", s)
			require.True(t, l.Link.RTT > 0 && min(l.InitCwnd, l.InitRwnd) >= 0 && l.Window >= 0, "%q is %+v", s, l)
		}
		if n, err := parseMTU(s); err == nil {
			require.True(t, n >= plan.MinMTU && n <= plan.MaxMTU, "%q is %d", s, n)
		}
	})
}
