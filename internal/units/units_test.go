package units

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShow(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 17520: "17.5 kB", 999499: "999 kB", 999500: "1.00 MB", 4_700_000_000: "4.70 GB", 1 << 60: "1153 PB",
	} {
		require.Equal(t, want, Bytes(n))
	}
	for n, want := range map[float64]string{0: "0 bit/s", 9.4e6: "9.40 Mbit/s", 941.5e6: "942 Mbit/s", 99.94e6: "99.9 Mbit/s", 99.96e6: "100 Mbit/s"} {
		require.Equal(t, want, Rate(n))
	}
	for d, want := range map[time.Duration]string{
		0: "0 µs", 31 * time.Microsecond: "31 µs", 1500 * time.Microsecond: "1.5 ms", 10200 * time.Microsecond: "10.2 ms", 123456 * time.Microsecond: "123 ms",
		1234 * time.Millisecond: "1.23 s", 40940 * time.Millisecond: "40.9 s", 75 * time.Second: "1m15s", 3*time.Hour + 20*time.Minute + 31*time.Second: "3h21m",
	} {
		require.Equal(t, want, Time(d))
	}
	for d, want := range map[time.Duration]string{0: "0:00", 65 * time.Second: "1:05", 2*time.Hour + 3*time.Minute + 4*time.Second: "2:03:04"} {
		require.Equal(t, want, Clock(d))
	}
	require.Equal(t, "99 %", PercentDone(999, 1000))
	require.Equal(t, "100 %", PercentDone(1001, 1000))
	require.Empty(t, PercentDone(0, 0))
}

func TestShowSpan(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0 µs", 15 * time.Millisecond: "15.0 ms", 39990 * time.Millisecond: "40.0 s", 96 * time.Second: "1 min 36 s",
		717 * time.Second: "12 min", 8 * time.Hour: "8 h", 16993 * time.Second: "4 h 43 min", 2 * day: "48 h",
		1712329 * time.Second: "19.8 days", 400 * day: "400 days", 1000 * day: "2.7 years", math.MaxInt64: "more than a century",
	} {
		require.Equal(t, want, Span(d), "%v", d)
	}
}

func TestParseTime(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0s": 0, "1h30m": 90 * time.Minute, "14d": 14 * day, "2w": 14 * day, "36500d": 36500 * day,
		"1d2h": 26 * time.Hour, "7 d": 7 * day, "7 days": 7 * day, "1 day": day, "4 h 43 min": 283 * time.Minute, "19.5 days": 468 * time.Hour, "40.9 s": 40900 * time.Millisecond,
	} {
		got, err := ParseTime(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "10", "-1m", "1y", "36501d", "999999999999999999999d", "7  d", " 7d", "7 x", "d", "1h 30"} {
		_, err := ParseTime(in)
		require.ErrorContains(t, err, "is not a time such as", in)
	}
}
