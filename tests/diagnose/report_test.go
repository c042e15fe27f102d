package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/stretchr/testify/require"
)

const printed = `{"type":"file","path":"data","kind":"file","bytes":5,"outcome":"sent"}
{"type":"progress","elapsed_seconds":1.0,"limiter":"receiver window"}
{"type":"summary","duration_seconds":4.5,"bytes":5,"goodput_bits_per_second":2.5e7,"streams":2,"limits":[{"limiter":"receiver window","side":"receiver",` +
	`"host":"right","share":0.84,"seconds":3.8,"evidence":["a","b"],"remedies":[{"sysctl":{"name":"net.ipv4.tcp_rmem","value":"4096 131072 16777216"},` +
	`"expect_bits_per_second":5e7},{"flag":"--streams 4","expect_bits_per_second":5e7}]},{"limiter":"slow start","side":"path","share":0.16}],"timeline":[]}
`

func TestParse(t *testing.T) {
	s, failure, err := parse(printed + `{"type":"error","kind":"network","message":"it broke","exit_code":5}` + "\n" + `{"type":"progr`)
	require.NoError(t, err)
	require.Equal(t, "it broke", failure)
	require.Equal(t, int64(5), s.Bytes)
	require.Len(t, s.Limits, 2)
	require.Equal(t, `sysctl -w net.ipv4.tcp_rmem="4096 131072 16777216"`, s.Limits[0].Remedies[0].String())
	require.Equal(t, "--streams 4", s.Limits[0].Remedies[1].String())
	_, _, err = parse("Usage:\n")
	require.ErrorContains(t, err, "fxfer's output")
}

// Each row and seed gives one trial that a lab can have, the same each time.
func TestCauses(t *testing.T) {
	known := map[diagnose.Limiter]bool{}
	for _, l := range limiters {
		known[l] = true
	}
	names := map[string]bool{}
	for _, c := range causes {
		require.False(t, names[c.name], c.name)
		names[c.name] = true
		require.NotEmpty(t, c.right, c.name)
		for _, a := range c.right {
			require.True(t, known[a.limiter], "%s: %s", c.name, a.limiter)
		}
		for seed := range uint64(50) {
			x := c.trial(newDraws(c.name, seed))
			require.NoError(t, x.link.Check(), c.name)
			require.Positive(t, x.bytes, c.name)
			require.LessOrEqual(t, x.bytes, int64(largest), c.name)
			require.Zero(t, x.bytes%int64(max(1, x.files)), c.name)
			require.Equal(t, x, c.trial(newDraws(c.name, seed)), c.name)
		}
	}
}

func TestReport(t *testing.T) {
	s, _, err := parse(printed)
	require.NoError(t, err)
	window := cause{name: "small window", about: "a cap", right: []answer{{diagnose.ReceiverWindow, diagnose.Receiver}}}
	disk := cause{name: "slow disk", about: "a disk", right: []answer{{diagnose.SourceDisk, diagnose.Sender}}}
	link := trial{link: lab.Link{Rate: 100 * mbit, RTT: 50 * time.Millisecond}}
	good := result{cause: window, seed: 1, trial: link, run: run{summary: s, command: "fxfer send"}}
	good.cure = &cure{remedy: s.Limits[0].Remedies[0], goodput: 45e6}
	poor := good
	poor.seed, poor.cure = 2, &cure{remedy: s.Limits[0].Remedies[0], goodput: 44e6}
	otherSide := good
	otherSide.seed, otherSide.cure = 3, nil
	otherSide.run.Limits = []limit{{Limiter: "receiver window", Side: "sender", Share: 1, Evidence: []string{"x"}}}
	wrong := good
	wrong.cause, wrong.cure = disk, nil
	failed := result{cause: disk, seed: 2, trial: link, err: fmt.Errorf("no disk")}

	require.True(t, good.correct() && good.cured())
	require.InDelta(t, 0.8, good.gain(), 1e-9)
	require.False(t, poor.cured())
	line := good
	line.cause, line.run.Limits = cause{right: []answer{{diagnose.LineRate, diagnose.Path}}}, []limit{{Limiter: "line rate", Side: "path", Share: 1}}
	line.run.Peak = 30e6
	require.False(t, line.correct(), "a third of the line")
	line.run.Peak = 90e6
	require.True(t, line.correct())
	text := report([]result{good, poor, otherSide, wrong, failed}, "21 November 2026. 2 processors.")
	for _, part := range []string{
		"21 November 2026. 2 processors.\n\nThe verdict was right in 2 of 5 runs (40.0 %). The remedy brought at least 80 % of the gain it foretold in 1 of 2.",
		"The least gain was 76 % of the foretold one, the largest 80 %.\n\n",
		"| | receiver window | source disk | failed |\n| --- | ---: | ---: | ---: |\n",
		"| small window | **2** + 1 |  |  |\n| slow disk | 1 |  | 1 |\n",
		"| small window | 2 | `sysctl -w net.ipv4.tcp_rmem=\"4096 131072 16777216\"` | 25.0 | 50.0 | 44.0 | 76 % |",
		"| small window | a cap | receiver window (receiver) | 25.0 (27 %), 25.0 (27 %), 25.0 (27 %) |",
		"slow disk, seed 2: 100 Mbit/s × 50.0 ms: no disk",
		"  - receiver window, receiver, 84 %: a; b\n",
	} {
		require.Contains(t, text, part)
	}
	_, bad, _ := strings.Cut(text, "## Wrong")
	good.cure.goodput = 60e6
	require.Contains(t, report([]result{good}, ""), "So a forecast is a floor")
	require.NotContains(t, bad, "seed 1: 100 Mbit/s × 50.0 ms: 4.5 s, 25.0 Mbit/s (27 %), 2 streams: receiver window (receiver, 84 %); sysctl", "what went well")
}

// A device does one thing after another.
func TestDevice(t *testing.T) {
	require.Equal(t, 20*time.Millisecond, spell(200_000, 10_000_000))
	require.Zero(t, spell(1000, 0))
	v := &device{}
	begin := time.Now()
	done := make(chan bool)
	for range 3 {
		go func() { v.take(10 * time.Millisecond); done <- true }()
	}
	for range 3 {
		<-done
	}
	require.GreaterOrEqual(t, time.Since(begin), 30*time.Millisecond)
}

// The files on a slow disk have the same content, and take their time.
func TestSlowDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: nothing can be mounted")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("no /dev/fuse")
	}
	backing, point := t.TempDir(), t.TempDir()
	unmount, err := disk{read: 20_000_000, write: 20_000_000, sync: 50 * time.Millisecond}.mount(backing, point)
	if err != nil {
		t.Skip(err)
	}
	defer func() { require.NoError(t, unmount()) }()
	content := []byte(strings.Repeat("0123456789abcdef", 1<<16))
	took := slowly(t, point, content)
	require.GreaterOrEqual(t, took, 50*time.Millisecond+2*spell(len(content), 20_000_000))
	got, err := os.ReadFile(backing + "/second")
	require.NoError(t, err)
	require.Equal(t, content, got)
}

// slowly writes, syncs, renames and reads a file in another process, because the process that
// serves a disk must not use it.
func slowly(t *testing.T, dir string, content []byte) time.Duration {
	t.Helper()
	// Between fork and exec a process must not touch the disk either, because its parent does not
	// run then.
	cmd := exec.Command("sh", "-c", `cd "$1" && cat >first && sync first && mv first second && cat second`, "sh", dir)
	cmd.Stdin = bytes.NewReader(content)
	begin := time.Now()
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, content, out)
	return time.Since(begin)
}
