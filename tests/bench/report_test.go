package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testMachine = machine{
	date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), cpus: 2, model: "Some CPU", memory: 8 << 30, kernel: "6.1",
	network: "tcp_rmem 1 2 3", tools: []string{"iperf3 3.12", "rsync 3.2"},
}

func runs(seconds ...float64) []run {
	var rs []run
	for _, s := range seconds {
		rs = append(rs, run{seconds: s, cpu: 3, sent: 1000, dropped: 5})
	}
	return rs
}

func gigabitResults() []result {
	load := payload{files: 1, size: 1000 * mb}
	return []result{
		{
			name: "1 Gbit/s × 10 ms", load: load, limit: goodputLimit(gbit), best: &bestOf{streams: 8, rates: []float64{900e6, 940e6, 950e6}},
			tools: []outcome{
				{name: fxferName, runs: runs(9, 8.6, 8.7)}, {name: fxferNetAdminName, runs: runs(8)}, {name: "rsync", runs: runs(16)},
				{name: "scp", err: errors.New("not installed: sshd")},
			},
			fxfer: details{command: "fxfer send data URL", streams: 4, congestion: "bbr", retransmits: []float64{3, 1, 2}, senderPeak: 30 << 20, receiverPeak: 40 << 20, checked: true},
		},
		{
			name: "1 Gbit/s × 50 ms", load: load, limit: goodputLimit(gbit), best: &bestOf{err: errors.New("iperf3: broken")},
			tools: []outcome{
				{name: fxferName, runs: runs(20)}, {name: "rsync", runs: []run{{seconds: 10, projected: true}}},
				{name: "scp", err: errors.New("not installed: sshd")},
			},
		},
	}
}

func TestSection(t *testing.T) {
	g := grid{name: "rtt", title: "Distance", about: "About it.", measure: goodput}
	section := renderSection(&g, &testMachine, gigabitResults())
	require.Equal(t, `## Distance

About it.

![Share of what the line can carry, longer is better](benchmarks-rtt.svg)

|  | limit | iperf3 | fxfer | of the limit | of iperf3 | with CAP_NET_ADMIN | rsync, in clear | scp |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1 Gbit/s × 10 ms | 941 Mbit/s | 940 Mbit/s (8) | **920 Mbit/s** | 0.977 | 0.978 | 1 Gbit/s | 500 Mbit/s | – |
| 1 Gbit/s × 50 ms | 941 Mbit/s | – | 400 Mbit/s | 0.425 | – |  | **≈ 800 Mbit/s** | – |

Where fxfer is not the best:

- 1 Gbit/s × 50 ms: rsync has 800 Mbit/s, fxfer 400 Mbit/s

fxfer in detail, as an ordinary user. Memory is the most that was resident; the receiver's is over all rows on the same hosts:

|  | runs | at the limit | streams | congestion control | sent again | dropped by the queue | sender | receiver | digests |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1 Gbit/s × 10 ms | 9.00, 8.60, 8.70 s | 8.50 s | 4 | bbr | 2 | 0.50 % | 30 MiB | 40 MiB | as b3sum |
| 1 Gbit/s × 50 ms | 20.00 s | 8.50 s | – | – | – | 0.50 % | – | – | – |

Not measured:

- scp: not installed: sshd (everywhere)
- iperf3: broken (1 Gbit/s × 50 ms)

Commands and settings:

- 1 Gbit/s × 10 ms: `+"`fxfer send data URL`"+`
- rsync: to an rsync daemon, whole files, no compression; a tree with -a
- scp: to OpenSSH's sshd, AES-128-GCM, no compression, 1024 requests in flight

2 January 2026. 2 processors, Some CPU, 8 GiB of memory, Linux 6.1; tcp_rmem 1 2 3. iperf3 3.12, rsync 3.2.
`, section)
}

func TestOtherMeasures(t *testing.T) {
	short := []result{{name: "short", load: payload{files: 1, size: mb}, rtt: 100 * time.Millisecond, tools: []outcome{
		{name: fxferName, runs: runs(0.7)}, {name: "rsync", runs: runs(1.8)},
	}}}
	require.Equal(t, []string{"short", "**7.0 RTT**", "18.0 RTT"}, roundTrips.table(short)[1])
	require.Empty(t, losses(roundTrips, short))

	slow := runs(5, 6, 7)
	slow[0].summary = fxferLine{Limits: []fxferLimit{{"narrow line"}, {"slow start"}}}
	slow[2].summary = slow[0].summary
	narrow := []result{{name: "narrow", load: payload{files: 1, size: 290_000}, tools: []outcome{
		{name: fxferName, runs: slow}, {name: "rsync", runs: runs(8)},
	}}}
	require.Equal(t, []string{"narrow", "**6.00 s**", "0.750", "narrow line, nothing", "8.00 s"}, narrowTime.table(narrow)[1])

	host := []result{{name: "host", load: payload{files: 1, size: 2 * gb}, tools: []outcome{
		{name: fxferName, runs: runs(2)}, {name: "lftp", runs: runs(1)},
	}}}
	require.Equal(t, []string{"host", "1.00 GB/s, 1.50 CPU s/GB", "**2.00 GB/s, 1.50 CPU s/GB**"}, hostCost.table(host)[1])
	require.Equal(t, []string{"host: lftp has 2.00 GB/s, fxfer 1.00 GB/s"}, losses(hostCost, host))

	trees := []result{{name: "tree", load: payload{files: 10_000, size: 4 * kib, folders: 10}, tools: []outcome{
		{name: fxferName, runs: []run{{seconds: 1, again: 0.5}}}, {name: fxferAutoName, runs: runs(0.5)},
		{name: "tar", runs: runs(0.8)}, {name: "rsync", runs: []run{{seconds: 4, again: 0.25}}},
	}}}
	require.Equal(t, [][]string{
		{"", "fxfer", "of tar's time", "with --compress auto", "times as fast", "tar, in clear", "rsync, in clear"},
		{"tree", "1.00 s, 10,000 files/s; again 0.50 s", "1.250", "0.50 s, 20,000 files/s", "2.000", "**0.80 s, 12,500 files/s**", "4.00 s, 2,500 files/s; again 0.25 s"},
	}, treeTime.table(trees))
	require.Equal(t, []string{"tree: tar has 0.80 s, fxfer 1.00 s", "tree, again: rsync has 0.25 s, fxfer 0.50 s"}, losses(treeTime, trees))

	pair := []result{
		{name: "line", load: payload{files: 1, size: 2 * gb}, limit: 1e9, tools: []outcome{
			{name: fxferQUICName, runs: []run{
				{seconds: 20, sender: 10, receiver: 12, sent: 1000, summary: fxferLine{Streams: 16, Connections: 17, Retransmits: 10}},
				{seconds: 18, sender: 8, receiver: 14, sent: 1000, summary: fxferLine{Streams: 16, Connections: 17, Retransmits: 30}},
				{seconds: 32, sender: 11, receiver: 8, sent: 1000, summary: fxferLine{Streams: 20, Connections: 20, Retransmits: 20}},
			}},
			{name: fxferTCPName, runs: []run{{seconds: 16, sender: 2, receiver: 3, sent: 1000, summary: fxferLine{Streams: 16}}}},
		}},
		{name: "loopback", load: payload{files: 1, size: gb}, tools: []outcome{
			{name: fxferQUICName, runs: []run{{seconds: 8, sender: 2, receiver: 3, summary: fxferLine{Streams: 4, Connections: 4, Retransmits: 7}}}},
			{name: fxferTCPName, err: errors.New("refused")},
		}},
	}
	require.Equal(t, [][]string{
		{"", "goodput", "of the limit", "runs", "sender, CPU s/GB", "receiver, CPU s/GB", "streams", "connections", "sent again"},
		{"line, QUIC", "800 Mbit/s", "0.800", "20.00, 18.00, 32.00 s", "5.00", "6.00", "16", "17", "2.00 %"},
		{"line, TCP", "1 Gbit/s", "1.000", "16.00 s", "1.00", "1.50", "16", "16", "0.00 %"},
		{"loopback, QUIC", "1 Gbit/s", "–", "8.00 s", "2.00", "3.00", "4", "4", "7"},
	}, transports.table(pair))
	require.NotContains(t, renderSection(&grid{measure: transports}, &testMachine, pair), "congestion control")

	alone := []result{{name: "alone", load: payload{files: 1, size: gb}, limit: 1e9, tools: []outcome{{name: fxferName, runs: runs(9)}}}}
	require.Empty(t, goodput.winner(&alone[0]), "without rivals nobody wins")
}

func TestNothingMeasured(t *testing.T) {
	results := []result{{name: "row", load: payload{files: 1, size: gb}, limit: 1e9, failed: errors.New("2 GB of memory are needed, 1 GB are free")}}
	g := grid{name: "rtt", title: "Distance"}
	require.Contains(t, renderSection(&g, &testMachine, results), "- 2 GB of memory are needed, 1 GB are free (row)")
	require.NotPanics(t, func() { renderChart(&g, results) })
}

func TestReplaceSection(t *testing.T) {
	all := []string{"a", "b", "c"}
	doc := replaceSection("", intro, "b", "text of b\n", all)
	require.Equal(t, intro+"\n"+beginMark("b")+"\n\ntext of b\n\n"+endMark("b")+"\n", doc)

	doc = replaceSection(doc, intro, "a", "text of a", all)
	require.Less(t, strings.Index(doc, "text of a"), strings.Index(doc, "text of b"))

	again := replaceSection(doc+"\n## By hand\n", intro, "b", "new b", all)
	require.Contains(t, again, "text of a")
	require.Contains(t, again, "new b")
	require.NotContains(t, again, "text of b")
	require.Equal(t, again, replaceSection(again, intro, "b", "new b", all), "nothing piles up")
	last := replaceSection(again, intro, "c", "text of c", all)
	require.True(t, strings.HasSuffix(last, endMark("c")+"\n\n## By hand\n"), last)
}

func TestChart(t *testing.T) {
	for _, m := range []measure{goodput, roundTrips, hostCost, treeTime, narrowTime, transports} {
		results := gigabitResults()
		for i := range results {
			results[i].rtt = time.Second
			results[i].name += " <&>"
		}
		chart := renderChart(&grid{title: "Distance", measure: m}, results)
		decoder := xml.NewDecoder(strings.NewReader(chart))
		rects := 0
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, chart)
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				rects++
			}
		}
		// These are the bars and the legend: fxfer twice, with CAP_NET_ADMIN once, rsync twice;
		// iperf3 once if there is a limit.
		want := 5 + 3
		if m == goodput {
			want += 2
		}
		require.Equal(t, want, rects)
	}
}

func TestTick(t *testing.T) {
	for top, want := range map[float64]float64{0: 1, 0.05: 0.005, 0.98: 0.1, 1: 0.1, 1.9: 0.2, 7: 1, 34: 5, 100: 10} {
		require.InDelta(t, want, tick(top), 1e-9, "%v", top)
	}
}
