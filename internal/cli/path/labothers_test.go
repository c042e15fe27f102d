package path

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestParseCross(t *testing.T) {
	for s, want := range map[string]lab.Cross{
		"cubic:1":          {Congestion: "cubic", Flows: 1},
		"bbr:8,10":         {Congestion: "bbr", Flows: 8, From: 10 * time.Second},
		"udp:2mbit,5,12.5": {Rate: 2e6, From: 5 * time.Second, To: 12500 * time.Millisecond},
		"cubic:2,down,0,9": {Congestion: "cubic", Flows: 2, To: 9 * time.Second, Direction: lab.RightToLeft},
		"cubic:2,1,9,up":   {Congestion: "cubic", Flows: 2, From: time.Second, To: 9 * time.Second},
	} {
		got, err := parseCross(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "cubic", "cubic:", "cubic:0", "cubic:-1", "cubic:x", "udp:2", ":1", "cubic:1,x", "cubic:1,-1", "cubic:1,NaN", "cubic:1,2,1", "cubic:1,1,2,3"} {
		_, err := parseCross(s)
		require.Error(t, err, s)
	}
}

func TestLabRunOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "summary.json")
	_, errs, err := runLab(t, "--rate", "20mbit", "--cross", "reno:2", "--cross", "udp:1mbit,down", "--ping", "--json", file, "--",
		"sh", "-c", "sleep 0.5")
	require.NoError(t, err)
	require.Contains(t, errs, "fxfer lab: reno:2 got ")
	require.Regexp(t, `udp:1mbit,down got .*, \d+ of \d+ packets lost`, errs)
	require.Regexp(t, `ping: .* added \(median\)`, errs)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var s labSummary
	require.NoError(t, json.Unmarshal(b, &s))
	require.Len(t, s.Cross, 2)
	require.Len(t, s.Cross[0].PerFlow, 2)
	require.Positive(t, s.Cross[0].Goodput)
	require.Positive(t, s.LeftToRight.Others.Sent)
	require.Zero(t, s.LeftToRight.Command.Sent)
	require.Len(t, s.Ping.Samples, s.Ping.Answered)

	_, _, err = runLab(t, "--cross", "no-such:1", "true")
	require.ErrorContains(t, err, `no congestion control "no-such"`)
	require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err))
	_, _, err = runLab(t, "--cross", "cubic", "true")
	require.ErrorContains(t, err, "--cross")
	_, _, err = runLab(t, "--json", "/no/such/file", "true")
	require.ErrorContains(t, err, "/no/such/file")
}
