package main

import (
	"testing"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
	"github.com/stretchr/testify/require"
)

func TestParseFxfer(t *testing.T) {
	const stdout = `{"type":"progress","elapsed_seconds":1.5,"bytes_done":1000}
{"type":"file","path":"in/data00","kind":"file","outcome":"committed","digest":"aa"}
{"type":"file","path":"in","kind":"folder","outcome":"made"}
{"type":"summary","streams":16,"congestion":"bbr","retransmitted_segments":7}
{"type":"prog`
	points, digests, summary, err := parseFxfer(stdout)
	require.NoError(t, err)
	require.Equal(t, []point{{1500 * time.Millisecond, 1000}}, points)
	require.Equal(t, map[string]string{"data00": "aa"}, digests)
	require.Equal(t, 16, summary.Streams)
	require.Equal(t, "bbr", summary.Congestion)
	require.Equal(t, int64(7), summary.Retransmits)

	_, _, _, err = parseFxfer("listening\n")
	require.ErrorContains(t, err, "fxfer's output")
	require.Nil(t, fxferPoints("listening\n"))
}

func TestCheckDigests(t *testing.T) {
	want := map[string]string{"a": "1", "b": "2"}
	require.NoError(t, checkDigests(map[string]string{"b": "2", "a": "1"}, want))
	require.ErrorContains(t, checkDigests(map[string]string{"a": "1", "b": "3"}, want), "digest of b")
	require.ErrorContains(t, checkDigests(map[string]string{"a": "1"}, want), "digest of b")
	require.Error(t, checkDigests(map[string]string{"a": "1", "b": "2", "c": "3"}, want))
}

func TestBusySeconds(t *testing.T) {
	//                                user nice system idle iowait irq softirq steal guest
	got, err := busySeconds("cpu  100 20 300 99999 500 7 73 1000 5 5\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
	require.NoError(t, err)
	require.InDelta(t, 5.0, got, 1e-9)
	for _, bad := range []string{"", "cpu 1 2\n", "intr 1 2 3 4 5 6 7 8\n", "cpu a b c d e f g h\n"} {
		_, err := busySeconds(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestStatSeconds(t *testing.T) {
	//                               utime stime
	got, err := statSeconds("7 (a) b (c) S 1 1 1 0 -1 0 9 9 9 9 250 50 7 7 20 0")
	require.NoError(t, err)
	require.InDelta(t, 3.0, got, 1e-9)
	for _, bad := range []string{"", "7 (a) S 1", "7 (a) S 1 1 1 0 -1 0 9 9 9 9 x 50", "7 (a) S 1 1 1 0 -1 0 9 9 9 9 5 x"} {
		_, err := statSeconds(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestProcField(t *testing.T) {
	got, err := procField("MemTotal:       24682416 kB\nMemAvailable:   15927248 kB\n", "MemAvailable:")
	require.NoError(t, err)
	require.Equal(t, int64(15927248), got)
	_, err = procField("Name:\tinit\n", "VmHWM:")
	require.Error(t, err)
}

func TestRows(t *testing.T) {
	names := map[string]bool{}
	for _, g := range grids {
		for _, sc := range g.scenarios {
			quick := sc.scaled(2, true)
			for i, c := range sc.tests {
				name := g.name + ": " + sc.rowName(c)
				require.False(t, names[name], "two rows %s", name)
				names[name] = true
				if c.load.tree() {
					require.Zero(t, c.load.files%(len(sizes)*c.load.folders), name)
				}
				if c.stop == 0 {
					require.GreaterOrEqual(t, c.reps, 3, name)
				}
				require.LessOrEqual(t, quick.tests[i].load.size, int64(250*mb), name)
				require.Equal(t, 2, quick.tests[i].reps, name)
			}
		}
	}
	require.True(t, names["seeds: 1 Gbit/s × 10 ms, stock limits, 1 × 4.7 GB, --sock-buf 64KiB --streams 1"], "%v", names)
	require.True(t, names["loss: 1 Gbit/s × 50 ms, loss 0.01 %, stock hosts, 1 × 1.25 GB"], "%v", names)
	require.True(t, names["host: loopback, 1 × 2 GB"], "%v", names)
	require.True(t, names["trees: loopback, 1,000,000 × 1 KiB"], "%v", names)
	require.True(t, names["trees: 100 Mbit/s × 20 ms, 2,048 files of text, 67.11 MB"], "%v", names)
}

func TestShow(t *testing.T) {
	require.Equal(t, "9.41 Gbit/s", showRate(goodputLimit(10*gbit)))
	require.Equal(t, "941 Mbit/s", showRate(goodputLimit(gbit)))
	require.Equal(t, "50.3 Mbit/s", showRate(50.26e6))
	require.Equal(t, "26.4 kbit/s", showRate(26_400))
	require.Equal(t, "100 Mbit/s", showRate(99.97e6))
	require.Equal(t, "1,000,000", showCount(1_000_000))
	require.Equal(t, "999", showCount(999))
	require.Equal(t, "0.73 s", showSeconds(0.734))
	require.Equal(t, "28.7 s", showSeconds(28.72))
	require.Equal(t, "2001 s", showSeconds(2000.8))
	c := hosts.Command{Argv: []string{"/usr/bin/lftp", "-c", "pget -n 8; exit"}}
	require.Equal(t, "lftp -c 'pget -n 8; exit'", c.String())
}
