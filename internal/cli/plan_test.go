package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShowSpan(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0 µs", 15 * time.Millisecond: "15.0 ms", 39990 * time.Millisecond: "40.0 s", 96 * time.Second: "1 min 36 s",
		717 * time.Second: "12 min", 8 * time.Hour: "8 h", 16993 * time.Second: "4 h 43 min", 2 * day: "48 h",
		1712329 * time.Second: "19.8 days", 400 * day: "400 days", 1000 * day: "2.7 years", math.MaxInt64: "more than a century",
	} {
		require.Equal(t, want, showSpan(d), "%v", d)
	}
}

// Whatever the flags accept has a plan, which JSON can hold.
func TestPlanExtremes(t *testing.T) {
	for _, args := range [][]string{
		{"--bandwidth", "1bit", "--rtt", "1ns", "--size", "1", "--window-of-time", "1ns"},
		{"--bandwidth", "1bit", "--rtt", "1h", "--size", "9223372036854775807", "--window-of-time", "2000000h", "--loss", "10%", "--mtu", "68"},
		{"--bandwidth", "1000000gbit", "--rtt", "1h", "--window", "1", "--size", "8388607TiB", "--window-of-time", "1ns"},
		{"--bandwidth", "1000000gbit", "--distance", "1000000km", "--streams", "2147483647", "--loss", "1e-300%", "--mtu", "65535"},
		{"--bandwidth", "1000000gbit", "--rtt", "1ns", "--streams", "2147483647", "--window", "1073725440", "--size", "1"},
	} {
		for _, form := range []string{"--json=false", "--json"} {
			var out bytes.Buffer
			c := newPlanCommand()
			c.SetArgs(append(args, form))
			c.SetOut(&out)
			require.NoError(t, c.Execute(), "%v", args)
			require.NotContains(t, out.String(), "NaN")
			require.NotContains(t, out.String(), "Inf")
			if form == "--json" {
				require.True(t, json.Valid(out.Bytes()), "%v: %s", args, out.String())
			} else {
				require.NotRegexp(t, `[ (]-\d`, out.String(), "%v", args)
			}
		}
	}
}
