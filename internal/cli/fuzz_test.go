package cli

import (
	"math/big"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/plan"
	"github.com/fxfer/fxfer/internal/units"
)

// FuzzFlags: what a flag's parser takes is within the flag's range, and a quantity is what its number and unit say.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{
		"auto", "none", "8", "0", "17520", "64KiB", "1.5MB", "2TB", "200mbit", "20MB/s", "1gbit,15ms", "10m", "1h30m", "14d", "2w", "1000km", "0.01%", "1e-6", "0%",
		"9223372036854775807", "9223372036854775808", "0.000000000000000000001KiB", "bbr", "2026-11-21", "7d ago", "a=/b:ro", "host:7433", "[::1]:1", "ed25519:x", "digest",
	} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		for known, parse := range map[*map[string]int64]func(string) (int64, error){&units.SizeUnits: units.ParseSize, &units.RateUnits: units.ParseRate} {
			if n, err := parse(s); err == nil {
				digits := strings.TrimRight(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/")
				want, ok := new(big.Rat).SetString(digits)
				require.True(t, ok, "%q", s)
				want.Mul(want, new(big.Rat).SetInt64((*known)[s[len(digits):]]))
				require.Zero(t, want.Cmp(new(big.Rat).SetInt64(n)), "%q is %d", s, n)
			}
		}
		if n, err := parseLimit(s); err == nil {
			require.Equal(t, s == "none", n == 0, "%q", s)
		}
		if n, err := parseSockBuf(s); err == nil {
			require.True(t, n > 0 && n <= maxSockBuf || n == 0 && s == auto, "%q is %d", s, n)
		}
		if n, err := parseAutoCount(s); err == nil {
			require.True(t, n > 0 || n == 0 && s == auto, "%q is %d", s, n)
		}
		for name, parse := range map[string]func(string) (int64, error){"entries": parseEntries, "max-size": parseMaxSize, "window": parseWindow, "some size": parseSomeSize, "bandwidth": parseBandwidth} {
			if n, err := parse(s); err == nil {
				require.Positive(t, n, "%s %q", name, s)
			}
		}
		for name, parse := range map[string]func(string) (time.Duration, error){"age": units.ParseTime, "partial-age": parsePartialAge, "time": units.ParseTime, "some time": parseSomeTime, "rtt": parseRTT} {
			if d, err := parse(s); err == nil {
				require.GreaterOrEqual(t, d, time.Duration(0), "%s %q", name, s)
			}
		}
		if at, err := parseNewer(s, now); err == nil && strings.HasSuffix(s, " ago") {
			require.False(t, at.After(now), "%q is %v", s, at)
		}
		if p, err := parsePathFor(s); err == nil {
			require.True(t, p.Rate > 0 && p.RTT > 0, "%q", s)
		}
		if part, err := units.ParsePercent(s); err == nil {
			require.True(t, part >= 0 && part <= 1, "%q is %v", s, part)
		}
		if p, err := parseProbability(s); err == nil {
			require.True(t, p >= 0 && p <= 1, "%q is %v", s, p)
		}
		if km, err := parseDistance(s); err == nil {
			require.True(t, km > 0 && km <= maxPlanKm, "%q is %d", s, km)
		}
		if n, err := parseMTU(s); err == nil {
			require.True(t, n >= plan.MinMTU && n <= plan.MaxMTU, "%q is %d", s, n)
		}
		if name, err := parseCongestion(s); err == nil && name != "" {
			require.NotContains(t, name, "/")
			require.LessOrEqual(t, len(name), 15)
		}
		if host, err := parseName(s); err == nil {
			require.NotEmpty(t, host)
		}
		share := parseShareFlag(s)
		require.NotContains(t, share.Name, "/")
		require.Contains(t, s, share.Dir)
	})
}

// FuzzConfig: a configuration file is refused or understood, whatever is in it, and what is understood are flags that there are.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "streams: 4\nsend:\n  rate-limit: 200mbit\n", "serve:\n  share: [a=/a, 'b=/b:ro']\n", "a: &x [*x]\n", "? [a]\n: b\n", "{a: {b: {c: d}}}", "--- !!map\nx: |\n  y\n",
		"streams: 0x10\n", "streams: .inf\n", "\"quiet\": yes\n", "<<: *x\n", "streams: 1\n---\nstreams: 2\n", "send: {streams: 1, streams: 2}\n",
	} {
		f.Add(text)
	}
	root, _, _ := testCommands()
	commands := root.Commands()
	known := func(command, flag string) bool {
		for _, c := range commands {
			if c.Annotations[settable] != "" && (command == "" || command == c.Name()) && c.Flags().Lookup(flag) != nil {
				return true
			}
		}
		return false
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		settings, err := parseSettings("c.yaml", []byte(text), commands)
		if err != nil {
			_, code := classify(err)
			require.Equal(t, 2, code)
			return
		}
		for command, section := range settings {
			for flag := range section {
				require.True(t, known(command, flag), "%q of %q", flag, command)
			}
		}
	})
}

// FuzzEnvironment: a variable sets its flag, or says what is wrong with it.
func FuzzEnvironment(f *testing.F) {
	f.Add("streams", "8")
	f.Add("rate-limit", "200mbit")
	f.Add("exclude", "*.o\n!a.o\n")
	f.Add("newer-than", "7d")
	f.Add("pin", "ed25519:x")
	f.Fuzz(func(t *testing.T, flag, text string) {
		_, send, _ := testCommands()
		x := send.Flags().Lookup(flag)
		if x == nil || !isSetting(x) || flag == "exclude-from" || strings.Contains(text, "\x00") {
			return
		}
		t.Setenv("FXFER_HOME", filepath.Join(t.TempDir(), "none"))
		t.Setenv("FXFER_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_")), text)
		if err := applySettings(send); err != nil {
			_, code := classify(err)
			require.Equal(t, 2, code)
			require.NotContains(t, err.Error(), "\x1b", strconv.Quote(err.Error()))
		}
	})
}
