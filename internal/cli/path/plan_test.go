package path

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every combination of flags that is accepted has a plan, and JSON can represent it.
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
			c := NewPlan()
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
