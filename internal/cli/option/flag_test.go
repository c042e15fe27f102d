package option

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestCheckPin(t *testing.T) {
	const pin = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
	u, err := fxfer.ParseURL("fxfer://q83vEjRWeJCrze8SNFZ4kKvN:" + pin + "@h/s")
	require.NoError(t, err)
	require.NoError(t, CheckPin("", u))
	require.NoError(t, CheckPin("ed25519:"+pin, u))
	require.ErrorContains(t, CheckPin("ed25519:other", u), "another key")
	require.NoError(t, CheckPin("ed25519:other", fxfer.URL{Host: "h"}))
}

func TestNearestFlag(t *testing.T) {
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	for _, name := range []string{"exclude", "max-size", "files-from", "delete", "sync", "rate-limit", "retry-for", "streams", "max-streams", "transport", "sock-buf", "pin", "report", "json", "quiet"} {
		flags.String(name, "", "")
	}
	for name, want := range map[string]string{
		"strems": "streams", "stream": "streams", "sockbuf": "sock-buf", "rate": "rate-limit", "max-str": "max-streams", "jsno": "json", "bwlimit": "", "x": "",
	} {
		require.Equal(t, want, nearestFlag(flags, name), name)
	}
	plan := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	plan.String("bandwidth", "", "")
	plan.String("rtt", "", "")
	require.Equal(t, "bandwidth", nearestFlag(plan, "rate"))
}

// A flag of another program has a hint where the flags exist that the hint names.
func TestForeignFlags(t *testing.T) {
	send := pflag.NewFlagSet("send", pflag.ContinueOnError)
	for _, name := range []string{"rate-limit", "compress", "streams", "quiet", "json"} {
		send.String(name, "", "")
	}
	for name, want := range map[string]string{
		"bwlimit": "--rate-limit bounds", "progress": "--quiet hides", "parallel": "--streams sets", "transfers": "--streams sets",
		"compress-level": "--compress zstd", "archive": "always sent whole", "D": "always sent whole", "l": "--rate-limit",
		"link-dest": "", "exclude": "", "nonsense": "",
	} {
		got := ofCopyTool(send, name)
		require.Equal(t, want == "", got == "", "%s: %s", name, got)
		require.Contains(t, got, want, name)
	}
	require.Empty(t, ofCopyTool(pflag.NewFlagSet("ls", pflag.ContinueOnError), "archive"))
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"same", "same", 0}} {
		require.Equal(t, c.want, distance(c.a, c.b), c)
	}
}

func TestParseDeadline(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"none":                      {},
		"06:00":                     time.Date(2026, 4, 1, 6, 0, 0, 0, zone),
		"12:00":                     time.Date(2026, 4, 1, 12, 0, 0, 0, zone),
		"12:01":                     time.Date(2026, 3, 31, 12, 1, 0, 0, zone),
		"3h":                        now.Add(3 * time.Hour),
		"2d":                        now.Add(48 * time.Hour),
		"2026-04-01 08:15":          time.Date(2026, 4, 1, 8, 15, 0, 0, zone),
		"2026-04-01T08:15:30+02:00": time.Date(2026, 4, 1, 7, 15, 30, 0, zone),
	} {
		got, err := ParseDeadline(text, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), "%s: %s", text, got)
	}
	for _, text := range []string{"", "24:00", "6", "0s", "-1h", "tomorrow", "2026-03-31 11:59", "2026-03-31"} {
		_, err := ParseDeadline(text, now)
		require.Error(t, err, text)
	}
}

// At the end of summer time a time of day is the next one that clocks show.
func TestParseDeadlineClockChange(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	now := time.Date(2026, 10, 24, 22, 0, 0, 0, zone)
	got, err := ParseDeadline("06:00", now)
	require.NoError(t, err)
	require.Equal(t, 9*time.Hour, got.Sub(now))
}

func TestParseNewer(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2026-03-01":                time.Date(2026, 3, 1, 0, 0, 0, 0, zone),
		"2026-03-01 08:15":          time.Date(2026, 3, 1, 8, 15, 0, 0, zone),
		"2026-03-01 08:15:30":       time.Date(2026, 3, 1, 8, 15, 30, 0, zone),
		"2026-03-01T08:15:30+02:00": time.Date(2026, 3, 1, 7, 15, 30, 0, zone),
		"36h":                       now.Add(-36 * time.Hour),
		"7d ago":                    time.Date(2026, 3, 24, 12, 0, 0, 0, zone),
		"2w":                        time.Date(2026, 3, 17, 12, 0, 0, 0, zone),
		"1h30m ago":                 now.Add(-90 * time.Minute),
	} {
		got, err := ParseNewer(text, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), "%s: %s", text, got)
	}
	for _, text := range []string{"", "ago", "7", "d", "0s", "2026-13-01", "tomorrow", "1d2h", "7 d"} {
		_, err := ParseNewer(text, now)
		require.Error(t, err, text)
	}
}
