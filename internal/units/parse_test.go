package units

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseRate(t *testing.T) {
	for in, want := range map[string]int64{
		"1bit": 1, "64kbit": 64e3, "200mbit": 200e6, "1gbit": 1e9, "2.5gbit": 2.5e9, "0.001kbit": 1,
		"1B/s": 8, "10KB/s": 80e3, "20MB/s": 160e6, "1.25GB/s": 10e9,
		"1KiB/s": 8192, "3MiB/s": 3 << 23, "1GiB/s": 8 << 30,
		"100Mbit/s": 100e6, "100Mbit": 100e6, "100mbit/s": 100e6, "100Mbps": 100e6, "64kbps": 64e3, "1Gbps": 1e9, "1tbit": 1e12,
		"20kB/s": 160e3, "941 Mbit/s": 941e6, "200 mbit": 200e6, "12 bit/s": 12, "2.5 MB/s": 20e6,
	} {
		got, err := ParseRate(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{
		"", "0", "0mbit", "1", "200", "mbit", "200MBit", "200  mbit", " 1gbit", "1gbit ", "-1mbit", "+1mbit", "1e3mbit", "1,5mbit", ".5gbit", "1.gbit", "0.5bit",
		"10000000000gbit", "1kibit", "1KIB/s", "1gbit/h", "0x10mbit", "200MiB", "20Mibit", "20m/h", "infgbit",
	} {
		_, err := ParseRate(in)
		require.ErrorContains(t, err, "is not a rate: give bits as", in)
	}
	for _, unit := range []string{"M", "m", "MB", "mb", "Mb", "mB", "Mb/s", "mb/s", "mB/s", "M/s", "mbps", "MBps", "Mps", " MB"} {
		_, err := ParseRate("1.5" + unit)
		require.ErrorContains(t, err, "is not a rate: write 1.5mbit for bits or 1.5MB/s for bytes", unit)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "17520": 17520, "1B": 1, "64KB": 64e3, "1MB": 1e6, "4.7GB": 4.7e9, "2TB": 2e12,
		"64KiB": 64 << 10, "1MiB": 1 << 20, "1.5GiB": 3 << 29, "1TiB": 1 << 40, "9223372036854775807": 1<<63 - 1,
		"64kB": 64e3, "1PB": 1e15, "1PiB": 1 << 50, "1.25 MB": 1.25e6, "17.5 kB": 17500, "12 B": 12,
	} {
		got, err := ParseSize(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{
		"", "B", "64Kib", "64kib", "1mB", "1Gbit", "1gbit", "1MB/s", "-1", "1.5", "0.3KiB", "1  MB", "1EB",
		"1e6", "9223372036854775808", "9000000TiB", "١MB",
	} {
		_, err := ParseSize(in)
		require.ErrorContains(t, err, "is not a size: give bytes as", in)
	}
	for _, unit := range []string{"G", "g", "Gb", "gb", " G"} {
		_, err := ParseSize("2" + unit)
		require.ErrorContains(t, err, "is not a size: write 2GB for powers of 1000 or 2GiB for powers of 1024", unit)
	}
}

// What is printed can be typed in. The printed text has three digits.
func TestParsePrinted(t *testing.T) {
	near := func(want, got float64, text string) { require.InEpsilon(t, want, got, 0.02, text) }
	for n := int64(1); n < 1e18; n = n*3 + 1 {
		size, err := ParseSize(Bytes(n))
		require.NoError(t, err)
		near(float64(n), float64(size), Bytes(n))
		if n < 1e15 {
			rate, err := ParseRate(Rate(float64(n)))
			require.NoError(t, err)
			near(float64(n), float64(rate), Rate(float64(n)))
		}
		d := time.Duration(n)
		if d < time.Millisecond || d > 2*year-day {
			continue
		}
		for _, text := range []string{Time(d), Span(d)} {
			got, err := ParseTime(text)
			require.NoError(t, err)
			near(float64(d), float64(got), text)
		}
		_, err = ParseTime(Age(d))
		require.NoError(t, err)
	}
	part, err := ParsePercent(Percent(0.42))
	require.NoError(t, err)
	near(0.42, part, Percent(0.42))
}
