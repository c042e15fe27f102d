package probe

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

func TestGrades(t *testing.T) {
	for increase, want := range map[time.Duration]string{
		0: "A", 30*time.Millisecond - 1: "A", 30 * time.Millisecond: "B", 60 * time.Millisecond: "C", 100 * time.Millisecond: "D",
		200 * time.Millisecond: "E", 400*time.Millisecond - 1: "E", 400 * time.Millisecond: "F", time.Hour: "F",
	} {
		require.Equal(t, want, GradeOf(increase), increase)
	}
}

func TestDistribution(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	samples := make([]time.Duration, 1000)
	for i := range samples {
		samples[i] = time.Duration(i+1) * time.Millisecond
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	bins := histogram(samples)
	require.Equal(t, RTT{Count: 1000, Min: 0.001, Median: 0.5, P95: 0.95, P99: 0.99, Max: 1}, rttOf(samples))
	require.Equal(t, RTT{}, rttOf(nil))
	n, before := 0, 0.0
	for _, b := range bins {
		require.Greater(t, b.Below, before)
		if before > 0 {
			require.InDelta(t, min(b.Below, 1.001)*1000-before*1000, b.Count, 1)
		}
		n, before = n+b.Count, b.Below
	}
	require.Equal(t, 1000, n)
	require.Empty(t, histogram(nil))
}

func TestStalled(t *testing.T) {
	table := func(one, two float64) []Latency {
		return []Latency{
			{Size: 1024, Split: true, Count: 5, Median: two}, {Size: 1024, Count: 5, Median: one},
			{Size: 1024, Split: true, ClientND: true, ServerND: true, Count: 5, Median: 1},
			{Size: 1024, PerConnection: 1, Split: true, Count: 5, Median: 1}, {Size: 2048, Split: true, Count: 5, Median: 1}, {Size: 2048},
		}
	}
	require.True(t, Stalled(table(0.0001, 0.088), 0.0001))
	require.True(t, Stalled(table(0.0001, 0.044), 0.0001), "of one side only")
	require.False(t, Stalled(table(0.050, 0.150), 0.050), "Nagle's algorithm without delayed ACK costs round trips")
	require.True(t, Stalled(table(0.050, 0.230), 0.050))
	require.False(t, Stalled(table(0.0001, 0.0002), 0.0001))
	require.False(t, Stalled(nil, 0.1))
}

// A stream's figures survive the wire, and a hostile peer's values stay in range.
func TestEndOnTheWire(t *testing.T) {
	e := flowEnd{
		info: transport.Info{Congestion: "bbr", RTT: 2, MinRTT: 1, SndMSS: 1448, PMTU: 1500, DataSegs: 9, RetransSegs: 3, BusyTime: 7,
			RwndLimited: 5, SndbufLimited: 4, SndBuf: 11, RcvBuf: 12},
		early: transport.Info{DataSegs: 4, RetransSegs: 2}, sndWnd: 13, cwnd: 14, cpu: 0.5,
	}
	require.Equal(t, e, endOf(e.values()))
	bad := endOf([]wire.Value{{Name: "cpu_permille", Value: 1 << 60}, {Name: "rtt_ns", Value: -5}, {Name: "snd_wnd", Value: 1<<63 - 1}, {Name: "congestion:\x1b[2J", Value: 1}})
	require.Equal(t, flowEnd{info: transport.Info{Congestion: "\ufffd[2J"}, cpu: 1, sndWnd: 1 << 40}, bad)
}

// Goodput is what all streams together received in one span of time.
func TestGoodput(t *testing.T) {
	const ms = time.Millisecond
	line := func(begin time.Duration, bytesPerSecond, until int64) stream {
		var s stream
		for at := time.Duration(0); at <= time.Duration(until)*ms; at += 100 * ms {
			require.True(t, s.add(tick{begin + at, bytesPerSecond * int64(at) / int64(time.Second)}))
		}
		return s
	}
	streams := []stream{line(50*ms, 1e6, 2500), line(0, 2e6, 3000)}
	align(streams)
	require.InDelta(t, 8*3e6, goodput(streams, 2500*ms, 10*ms), 1)
	require.InDelta(t, 8*2e6, goodput(streams[1:], 2500*ms, 10*ms), 1)

	late := []stream{line(0, 1e6, 2500), line(2400*ms, 1e6, 100)} // one that hardly began
	require.InDelta(t, 8*(1.5e6+0.1e6)/1.5, goodput(late, 2500*ms, 10*ms), 8*0.01e6)
	short := []stream{line(0, 1e6, 300)} // ended by the limit of bytes
	require.InDelta(t, 8e6, goodput(short, 2500*ms, 10*ms), 1)
	require.Zero(t, goodput([]stream{{}}, time.Second, 0))

	var s stream
	require.True(t, s.add(tick{5, 5}))
	require.False(t, s.add(tick{4, 6}), "time runs forward")
	require.False(t, s.add(tick{6, 4}), "bytes only come")
}

// The fewest streams that fill the path are named, not those that happened to be measured.
func TestSuffice(t *testing.T) {
	flow := func(d Direction, streams int, goodput float64) Flow {
		return Flow{Direction: d, Streams: streams, Goodput: goodput}
	}
	for _, c := range []struct {
		flows []Flow
		want  int
	}{
		{nil, 0},
		{[]Flow{flow(Up, 1, 94.2e6), flow(Down, 1, 94.1e6), flow(Up, 16, 94.0e6), flow(Down, 16, 94.1e6)}, 1},
		{[]Flow{flow(Up, 1, 92e6), flow(Up, 16, 94e6)}, 1},
		{[]Flow{flow(Up, 1, 94e6), flow(Down, 1, 30e6), flow(Up, 16, 94e6), flow(Down, 16, 94e6)}, 3},
		{[]Flow{flow(Up, 1, 9e6), flow(Up, 16, 144e6)}, 16},
		{[]Flow{flow(Up, 1, 9e3)}, 1},
		{[]Flow{flow(Up, 1, 0), flow(Up, 16, 94e6)}, 0},
	} {
		require.Equal(t, c.want, Suffice(c.flows), "%v", c.flows)
	}
}

// A path that is too slow for anything ends the probe in its time, with a note and no error.
func TestOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		time.Sleep(5 * time.Second) // connecting
		r, err := Run(t.Context(), func(ctx context.Context, _ transport.Path) (Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, Options{Time: 17 * time.Second, Begun: begun})
		require.NoError(t, err)
		require.Len(t, r.Notes, 1)
		require.Contains(t, r.Notes[0], "too slow")
		require.Equal(t, 17*time.Second+extraTime, time.Since(begun))
	})
}

// One stream that carries as much as several is not held back, however busy the hosts are.
func TestJudgeFilled(t *testing.T) {
	one := Flow{Direction: Up, Streams: 1, Goodput: 93.6e6, SenderCPU: 1}
	several := Flow{Direction: Up, Streams: 16, Goodput: 94.1e6, Loss: 0.1}
	verdicts := Judge(&Report{Flows: []Flow{one, several}})
	require.Len(t, verdicts, 1)
	require.Equal(t, diagnose.LineRate, verdicts[0].Limiter)
	several.Goodput = 200e6
	require.Equal(t, diagnose.SenderCPU, Judge(&Report{Flows: []Flow{one, several}})[0].Limiter)
}

func TestJudge(t *testing.T) {
	idle := RTT{Count: 100, Median: 0.020}
	load := func(median float64) RTT { return RTT{Count: 100, Median: median} }
	remedy := func(v diagnose.Verdict) string {
		if len(v.Remedies) == 0 {
			return ""
		}
		return words.PartsOf(&v.Remedies[0]).Flag
	}
	for name, c := range map[string]struct {
		one, several Flow // up
		limiter      diagnose.Limiter
		side         diagnose.Side
		streams      int // of the flow of the first verdict
		flag         string
	}{
		"the receiver's window":            {Flow{Goodput: 9e6, RwndLimited: 0.9}, Flow{Goodput: 72e6, RwndLimited: 0.1}, diagnose.ReceiverWindow, diagnose.Receiver, 1, "--streams 8"},
		"its window with all streams, too": {Flow{Goodput: 9e6, RwndLimited: 0.9}, Flow{Goodput: 72e6, RwndLimited: 0.95}, diagnose.ReceiverWindow, diagnose.Receiver, 8, ""},
		"the send buffer":                  {Flow{Goodput: 9e6, SndbufLimited: 0.6, RwndLimited: 0.3}, Flow{Goodput: 72e6}, diagnose.SenderBuffer, diagnose.Sender, 1, "--streams 8"},
		"random loss":                      {Flow{Goodput: 9e6, Loss: 0.001, Congestion: "cubic", RTT: load(0.0205)}, Flow{Goodput: 72e6, Loss: 0.001, RTT: load(0.021)}, diagnose.RandomLoss, diagnose.Path, 1, "--streams 8"},
		"a full line":                      {Flow{Goodput: 180e6, Loss: 0.02, RTT: load(0.03)}, Flow{Goodput: 185e6, Loss: 0.1, RTT: load(0.04)}, diagnose.LineRate, diagnose.Path, 8, ""},
		"a full line and BBR":              {Flow{Goodput: 180e6, Loss: 0.002, RTT: load(0.021)}, Flow{Goodput: 185e6, Loss: 0.01, RTT: load(0.021)}, diagnose.LineRate, diagnose.Path, 8, ""},
		"a full, deep queue":               {Flow{Goodput: 180e6, RTT: load(0.3)}, Flow{Goodput: 185e6, Loss: 0.1, RTT: load(0.5)}, diagnose.Bufferbloat, diagnose.Path, 8, "--congestion bbr"},
		"a narrow line":                    {Flow{Goodput: 120e3, Loss: 0.05, Congestion: "bbr", RTT: load(1.1)}, Flow{Goodput: 121e3, Loss: 0.2, RTT: load(1.2)}, diagnose.NarrowLine, diagnose.Path, 8, ""},
		"the sender's CPU":                 {Flow{Goodput: 18e9, SenderCPU: 0.98, ReceiverCPU: 0.5}, Flow{Goodput: 17e9, SenderCPU: 0.99, ReceiverCPU: 0.5}, diagnose.SenderCPU, diagnose.Sender, 8, ""},
		"the receiver's CPU":               {Flow{Goodput: 18e9, SenderCPU: 0.5, ReceiverCPU: 0.95}, Flow{Goodput: 17e9, ReceiverCPU: 0.99}, diagnose.ReceiverCPU, diagnose.Receiver, 8, ""},
		"a large window that is not emptied": {Flow{Goodput: 17e9, RwndLimited: 0.6, SndWnd: 33e6, BDP: 50e3, ReceiverCPU: 0.95},
			Flow{Goodput: 17e9, RwndLimited: 0.6, SndWnd: 33e6, BDP: 50e3, ReceiverCPU: 1}, diagnose.ReceiverCPU, diagnose.Receiver, 8, ""},
		"a busy host, no cause": {Flow{Goodput: 180e6, SenderCPU: 1, Loss: 0.02, RTT: load(0.03)}, Flow{Goodput: 185e6, SenderCPU: 1, Loss: 0.1, RTT: load(0.04)}, diagnose.LineRate, diagnose.Path, 8, ""},
	} {
		c.one.Direction, c.several.Direction, c.one.Streams, c.several.Streams = Up, Up, 1, 8
		all := Judge(&Report{Host: "there", Idle: idle, Flows: []Flow{c.one, c.several}})
		for _, v := range Judge(&Report{Loopback: true, Idle: idle, Flows: []Flow{c.one, c.several}}) {
			require.Contains(t, []diagnose.Limiter{diagnose.SenderCPU, diagnose.ReceiverCPU}, v.Limiter, "%s, within one host", name)
		}
		require.NotEmpty(t, all, name)
		require.Equal(t, c.limiter, all[0].Limiter, name)
		require.Equal(t, c.side, all[0].Side, name)
		require.Equal(t, c.flag, remedy(all[0]), name)
		require.Contains(t, words.Fact(&all[0].Evidence[0]), units.Count(int64(c.streams), "stream", "streams")+":", name)
		if c.side == diagnose.Receiver {
			require.Equal(t, "there", all[0].Host, name)
		}
		asked := Judge(&Report{Host: "there", SockBuf: 65536, Idle: idle, Flows: []Flow{c.one, c.several}})
		if c.limiter == diagnose.ReceiverWindow || c.limiter == diagnose.SenderBuffer { // it is as small as the user wanted
			require.Equal(t, "--sock-buf auto", remedy(asked[0]), name)
		} else {
			require.Equal(t, all, asked, name)
		}
	}
	hole := Judge(&Report{MTU: []PathMTU{{Direction: Down, Measured: true, MTU: 1308, Failed: []int{1309}, BlackHole: true}}})
	require.Equal(t, diagnose.BlackHole, hole[0].Limiter)
	require.Contains(t, words.Fact(&hole[0].Evidence[0]), "1308")
	require.Empty(t, Judge(&Report{}))
}

// A note about the table says what is in it: cells without a figure, or with few exchanges.
func TestShortTable(t *testing.T) {
	require.Contains(t, shortTable([]Latency{{Count: 200}, {}}), "too slow to measure the whole")
	require.Contains(t, shortTable([]Latency{{Count: 200}, {Count: 2}}), "from few exchanges")
}
