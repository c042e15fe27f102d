package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/stretchr/testify/require"
)

func TestSharings(t *testing.T) {
	names := map[string]bool{}
	for _, g := range sharings(20*time.Second, true) {
		for i := range g.rows {
			r := &g.rows[i]
			name := g.name + ": " + r.fullName()
			require.False(t, names[name], "two rows %s", name)
			names[name] = true
			_, err := r.player.enter()
			require.NoError(t, err, name)
			for _, want := range r.goals {
				require.True(t, slices.ContainsFunc(g.columns, func(c column) bool { return c.title == want.column }), "%s: %s", name, want.column)
			}
			for _, c := range g.columns {
				require.Less(t, c.scene, len(r.scenes), name)
			}
			for j := range r.scenes {
				sc := &r.scenes[j]
				require.NoError(t, sc.link.Check(), name)
				require.GreaterOrEqual(t, sc.span, 20*time.Second, name)
				full := sc.limit() * 20 / 8
				require.GreaterOrEqual(t, float64(sc.load().bytes()*int64(max(1, sc.sessions))), full, name)
			}
		}
	}
	for _, want := range []string{
		"neighbours: 1 Gbit/s × 50 ms, fxfer before", "neighbours: 1 Gbit/s × 50 ms, lftp, 8 connections",
		"window-alone: 300 Mbit/s × 80 ms, queue 0.25 BDP, quic", "window-beside: 1 Gbit/s × 5 ms, normal beside 8 cubic",
		"window-low: 100 Mbit/s × 20 ms, queue 4 BDP, low, 1 cubic comes later", "window-rate: 1 Gbit/s × 50 ms, falls to 300 Mbit/s",
	} {
		require.True(t, names[want], "%s not in %v", want, names)
	}
	low := sharing{name: "window-low", page: "window"}
	require.True(t, low.named("window"))
	require.True(t, low.named("window-low"))
	require.False(t, low.named(""), "it takes hours")
}

func TestAges(t *testing.T) {
	first := scene{others: &lab.Cross{Congestion: "cubic", Flows: 1}, lead: 8 * time.Second, span: 20 * time.Second}
	from, to := first.ages()
	require.Equal(t, []time.Duration{8 * time.Second, 28 * time.Second}, []time.Duration{from, to})
	later := scene{others: &lab.Cross{Congestion: "cubic", Flows: 1, From: 10 * time.Second, To: 30 * time.Second}, span: 45 * time.Second}
	from, to = later.ages()
	require.Equal(t, []time.Duration{0, 20 * time.Second}, []time.Duration{from, to})
	alone := later.alone()
	require.Equal(t, 20*time.Second, alone.span)
	require.Zero(t, alone.others.From)
	require.Equal(t, 10*time.Second, later.others.From, "unchanged")
}

// aTake is of a line of 100 Mbit/s × 20 ms: the player has it, but for the 10 s in which a flow is
// there, and one second longer at each end.
func aTake() (*scene, *take, *take) {
	sc := &scene{link: line(100*mbit, 20*time.Millisecond, 1), others: &lab.Cross{Congestion: "cubic", Flows: 1, From: 10 * time.Second, To: 20 * time.Second}, span: 35 * time.Second}
	t := &take{to: 35 * time.Second, others: &lab.CrossReport{PerSecond: make([]int64, 20)}, sent: 1000, resent: 5}
	perTick := int64(100 * mbit / 20 / wireBits)
	c := lab.Counters{}
	for at := time.Duration(0); at <= 35*time.Second; at += tickEvery {
		t.ticks = append(t.ticks, tally{at, c})
		own := perTick
		if at >= 11*time.Second && at < 21*time.Second {
			own = perTick / 20
		}
		c.Sent += own + 100
		c.OthersSent += 100
		c.Dropped += 3
		c.OthersDropped++
		t.trips = append(t.trips, lab.Trip{At: at, Added: 2 * time.Millisecond})
	}
	for s := 10; s < 20; s++ {
		t.others.PerSecond[s] = 9 * mbit
	}
	alone := &take{others: &lab.CrossReport{PerSecond: make([]int64, 10)}}
	for s := range alone.others.PerSecond {
		alone.others.PerSecond[s] = 10 * mbit
		alone.trips = append(alone.trips, lab.Trip{At: time.Duration(s) * time.Second, Added: time.Millisecond})
	}
	t.sessions = [][]point{{{time.Second, 5 * mbit}, {10 * time.Second, 100 * mbit}, {30 * time.Second, 300 * mbit}}}
	return sc, t, alone
}

func TestFigures(t *testing.T) {
	sc, recorded, alone := aTake()
	f := recorded.figures(sc, alone)
	require.InDelta(t, 72e6, f.flow, 1)
	require.InDelta(t, 80e6, f.flowAlone, 1)
	require.InDelta(t, 1.0, f.yields, 0.11, "the mean of half a second may begin a little earlier")
	require.InDelta(t, 1.0, f.back, 0.11)
	require.InDelta(t, 0.002, f.median, 1e-9)
	require.InDelta(t, 0.001, f.byUs, 1e-9)
	require.InDelta(t, 0.005, f.resent, 1e-9)
	require.InDelta(t, 0.01, f.othersDropped, 1e-9)
	require.InDelta(t, 80e6, f.goodput, 1)
	require.InDelta(t, 94.15e6, f.limit, 1e4)
	require.True(t, math.IsNaN(f.udpLost))
	require.True(t, math.IsNaN(f.jain))

	recorded.ticks = recorded.ticks[:20*23] // it ends before the player is back for a second
	for i := range recorded.ticks {
		recorded.ticks[i].Sent = recorded.ticks[i].OthersSent
	}
	require.True(t, math.IsInf(recorded.figures(sc, alone).back, 1))
}

func TestChangedLine(t *testing.T) {
	sc, recorded, _ := aTake()
	sc.others = nil
	sc.changes = []change{{at: 5 * time.Second}, {at: 10 * time.Second}}
	for i := range recorded.trips {
		if at := recorded.trips[i].At; at >= 5*time.Second && at < 8*time.Second {
			recorded.trips[i].Added = 50 * time.Millisecond
		}
	}
	f := recorded.figures(sc, nil)
	require.InDelta(t, 3.0, f.drains, 0.051)
	require.InDelta(t, 0.0, f.regains, 0.051, "in the first second it still has the line")
}

func TestRateAfter(t *testing.T) {
	points := []point{{time.Second, 1000}, {11 * time.Second, 11_000}, {21 * time.Second, 31_000}}
	require.InDelta(t, 31_000*8/21.0, rateAfter(points, 0), 1e-9)
	require.InDelta(t, 20_000*8/10.0, rateAfter(points, 12*time.Second), 1e-9)
	require.Zero(t, rateAfter(nil, 0))
	require.Zero(t, rateAfter(points, time.Minute), "it ended before")
}

func TestJain(t *testing.T) {
	require.InDelta(t, 1.0, jain([]float64{5, 5, 5, 5}), 1e-9)
	require.InDelta(t, 0.25, jain([]float64{1, 0, 0, 0}), 1e-9)
	require.True(t, math.IsNaN(jain([]float64{0, 0})))
}

func TestIperfRate(t *testing.T) {
	rate, err := iperfRate([]byte(`{"end":{"sum_received":{"bits_per_second":1.5e8}}}`))
	require.NoError(t, err)
	require.InDelta(t, 1.5e8, rate, 0)
	_, err = iperfRate([]byte(`{"error":"no route"}`))
	require.ErrorContains(t, err, "no route")
	_, err = iperfRate([]byte(`iperf3: error`))
	require.ErrorContains(t, err, "iperf3's output")
}

func TestSharedSection(t *testing.T) {
	sc := scene{link: line(gbit, 50*time.Millisecond, 1)}
	nan := math.NaN()
	row := sharedRow{name: "low", scenes: []scene{sc}, goals: []goal{atLeast(keeps, 0.9), atMost(backColumn.title, 10), atMost(byUs, 0.005)}}
	g := sharing{
		name: "window-low", page: windowPage, title: "Low", about: "About it.",
		columns: []column{goodputColumn, keepsShare(keeps, 0), keepsColumn("the flow", 0), byUsColumn, againColumn, backColumn},
	}
	run := func(flow, back float64) figures {
		return figures{goodput: 90e6, flow: flow, flowAlone: 500e6, byUs: 0.001, resent: nan, back: back}
	}
	other := sharedRow{name: "other", scenes: row.scenes, goals: row.goals}
	again := sharedRow{name: "again", scenes: row.scenes}
	g.rows = []sharedRow{{name: "older"}, row, other, again, {name: "new"}}
	results := []sharedResult{
		{row: &row, takes: [][]figures{{run(400e6, 3), run(300e6, math.Inf(1)), run(410e6, math.Inf(1))}}},
		{row: &other, takes: [][]figures{nil}, failed: errors.New("not installed: scp")},
		{row: &again, takes: [][]figures{nil}, failed: errors.New("not installed: scp")},
	}
	require.Equal(t, `## Low

About it.

|  | goodput | keeps | the flow | delay by fxfer | sent again | is back after | measured |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| older | 1 | 2 | 3 | 4 | 5 | 6 | 1 January, 1× |
| low | 90.0 Mbit/s | 0.800 ✗ (≥ 0.900) | 500 Mbit/s → 400 Mbit/s | +1.0 ms (2 %) | – | never ✗ (≤ 10.0 s) | 2 January, 3× |
| other | – | – | – | – | – | – | 2 January, 3× |
| again | 1 | 2 | 3 | 4 | 5 | 6 | 1 January, 1× |

Not measured:

- other; again: not installed: scp

The figures are medians of the runs. The newest rows: 2 January 2026. 2 processors, Some CPU, 8 GiB of memory, Linux 6.1; tcp_rmem 1 2 3. iperf3 3.12, rsync 3.2.
`, sharedSection(&g, &testMachine, results, 3, "|  | goodput |\n| low | 1 | 2 | 3 | 4 | 5 | 6 | 1 January, 1× |\n| older | 1 | 2 | 3 | 4 | 5 | 6 | 1 January, 1× |\n| again | 1 | 2 | 3 | 4 | 5 | 6 | 1 January, 1× |\n| gone | 1 |\n"))
}

func TestOfficeChart(t *testing.T) {
	g := neighbours(20*time.Second, false)
	sc := g.rows[0].scenes
	results := []sharedResult{
		{row: &g.rows[0], takes: [][]figures{{{goodput: 900e6, limit: 939e6}}, {{flow: 250e6, flowAlone: 500e6}}, {{flow: 100e6, flowAlone: 500e6}}}},
		{row: &sharedRow{name: "<scp>", scenes: sc}, takes: make([][]figures, 3)},
	}
	decoder := xml.NewDecoder(strings.NewReader(officeChart(results)))
	rects := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
		}
	}
	require.Equal(t, 3+3, rects, "the bars of one row, and the legend")
	section := sharedSection(&g, &testMachine, results, 1, "")
	require.Contains(t, section, "| 1 Gbit/s × 50 ms | goodput | ping beside it | dropped at the queue | a cubic flow that was there first |\n")
	require.Contains(t, section, "| fxfer | 900 Mbit/s | +0.0 ms (0 %) | 0.00 % | 500 Mbit/s → 250 Mbit/s |\n")
}

func TestWriteShared(t *testing.T) {
	dir := t.TempDir()
	write := func(name, page, section string) {
		g := sharing{name: name, page: page}
		require.NoError(t, writeShared(dir, &g, func(string) string { return section }, nil))
	}
	write("window-rate", windowPage, "text of rate")
	write("window-alone", windowPage, "old text")
	write("window-alone", windowPage, "text of alone")
	text, err := os.ReadFile(filepath.Join(dir, "window.md"))
	require.NoError(t, err)
	require.Regexp(t, `(?s)^# The path window\n.*text of alone.*text of rate`, string(text))
	require.NotContains(t, string(text), "old text")

	write("neighbours", neighboursPage, "text of neighbours")
	text, err = os.ReadFile(filepath.Join(dir, "neighbours.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "text of neighbours")
	require.FileExists(t, filepath.Join(dir, "neighbours.svg"))
}
