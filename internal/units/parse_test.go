package units

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRate(t *testing.T) {
	for in, want := range map[string]int64{
		"1bit": 1, "64kbit": 64e3, "200mbit": 200e6, "1gbit": 1e9, "2.5gbit": 2.5e9, "0.001kbit": 1,
		"1B/s": 8, "10KB/s": 80e3, "20MB/s": 160e6, "1.25GB/s": 10e9,
		"1KiB/s": 8192, "3MiB/s": 3 << 23, "1GiB/s": 8 << 30,
	} {
		got, err := ParseRate(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{
		"", "0", "0mbit", "1", "200", "mbit", "200Mbit", "200MBit", "200mb", "200Mb/s", "200MB", "20mB/s", "20mb/s", "20kB/s",
		"1tbit", "200 mbit", " 1gbit", "1gbit ", "-1mbit", "+1mbit", "1e3mbit", "1,5mbit", ".5gbit", "1.gbit", "0.5bit",
		"10000000000gbit", "1kibit", "1KIB/s", "1gbit/s", "0x10mbit", "infgbit",
	} {
		_, err := ParseRate(in)
		require.ErrorContains(t, err, "is not a rate: give bits as", in)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "17520": 17520, "1B": 1, "64KB": 64e3, "1MB": 1e6, "4.7GB": 4.7e9, "2TB": 2e12,
		"64KiB": 64 << 10, "1MiB": 1 << 20, "1.5GiB": 3 << 29, "1TiB": 1 << 40, "9223372036854775807": 1<<63 - 1,
	} {
		got, err := ParseSize(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{
		"", "B", "64K", "64k", "64kB", "64kb", "64Kib", "64kib", "1mb", "1gbit", "1MB/s", "-1", "1.5", "0.3KiB", "1 MB",
		"1e6", "9223372036854775808", "9000000TiB", "1PB", "١MB",
	} {
		_, err := ParseSize(in)
		require.ErrorContains(t, err, "is not a size: give bytes as", in)
	}
}
