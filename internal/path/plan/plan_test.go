package plan

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

// within requires a relative error of at most one thousandth.
func within(t *testing.T, want, got float64) {
	t.Helper()
	require.InEpsilon(t, want, got, 1e-3)
}

func ethernet(rate float64, rtt time.Duration) Path { return Path{Rate: rate, RTT: rtt, MTU: 1500} }

func TestStoryDVD(t *testing.T) {
	p := ethernet(1e9, 10*ms)
	require.InDelta(t, 1.25e6, p.BDP(), 1e-6)
	within(t, 1448.0/1538*1e9, p.Goodput())

	slow := Transfer{Path: p, Window: 64 << 10, Streams: 1, Size: 4_700_000_000}
	rate, why := slow.Rate()
	within(t, 52.43e6, rate)
	require.Equal(t, Window, why)
	within(t, 717.3, slow.Time().Seconds()) // 12 min
	require.Equal(t, Remedy{Streams: 20, Window: 1_250_000}, slow.Fill())

	server := slow // with a socket buffer that can be set: under 2 min
	server.Window = 512 << 10
	require.Less(t, server.Time(), 2*time.Minute)

	line := slow
	line.Window = 0
	within(t, 39.99, line.Time().Seconds())
	require.Equal(t, LineRate, line.Limiter())
}

func TestStoryBackup(t *testing.T) {
	p := ethernet(1e9, 15*ms)
	within(t, 1.875e6, p.BDP())
	within(t, 9.344e6, p.Ceiling(17520))

	night := Transfer{Path: p, Window: 17520, Streams: 1, Size: 2_000_000_000_000, Within: 8 * time.Hour}
	require.False(t, night.Fits())
	within(t, 19.82*24, night.Time().Hours())
	within(t, 555.6e6, night.Need())
	require.Equal(t, Remedy{Streams: 108, Window: 1_875_000}, night.Fill())
	fit := night.Fit()
	require.Equal(t, 60, fit.Streams)
	within(t, 1.0417e6, float64(fit.Window))

	// The line can't use 6.5 MB of window: something other than the window kept the story at 200
	// Mbit/s.
	night.Window = 6_500_000
	rate, why := night.Rate()
	within(t, 941.5e6, rate)
	require.Equal(t, LineRate, why)
	require.True(t, night.Fits())
	within(t, 4.7203, night.Time().Hours())
}

// Most of what the modem's owner tried could not make a difference.
func TestStoryModem(t *testing.T) {
	p := ethernet(1.5e6, 60*ms)
	for _, window := range []int64{17520, 32768, 65535} { // all above the BDP of 11,250 B
		rate, why := Transfer{Path: p, Window: window, Streams: 1}.Rate()
		within(t, p.Goodput(), rate)
		require.Equal(t, LineRate, why)
	}
	for mtu, share := range map[int]float64{1500: 0.9415, 1492: 0.9412, 576: 0.8534, 9000: 0.9900} {
		p.MTU = mtu
		require.InDelta(t, share, p.Goodput()/p.Rate, 5e-5, "MTU %d", mtu)
	}
}

// An initial window of ten segments instead of three saves a short transfer log2(10/3) = 1.74
// round trips.
func TestStoryInitialWindow(t *testing.T) {
	page := Transfer{Path: ethernet(1e9, 100*ms), Streams: 1, Size: 63 * 3 * 1448, Initial: OldInitial}
	within(t, 0.6, page.Time().Seconds()) // 3, 6, 12, 24, 48, 96
	page.Initial = DefaultInitial
	within(t, 0.4+0.1*39.0/160, page.Time().Seconds()) // 10, 20, 40, 80, and 39 of 160
	require.Equal(t, Ramp, page.Limiter())
	page.Streams = 8
	within(t, 0.1+0.1*109.0/160, page.Time().Seconds())
	page.Size = 100
	within(t, 0.1, page.Time().Seconds())
}

func TestStoryTwoWrites(t *testing.T) {
	p := ethernet(1e9, 200*time.Microsecond)
	within(t, 5000, p.Requests(0))
	within(t, 24.75, p.Requests(p.Stall(1)))
	within(t, 12.41, p.Requests(p.Stall(2)))
}

// The mean windows in segments of RFC 9438, section 5. The RFC rounds Reno's factor to 1.2.
func TestCubicWindow(t *testing.T) {
	for _, row := range []struct {
		loss          float64
		at100ms, at10 float64
	}{
		{1e-2, 12, 12}, {1e-3, 38, 38}, {1e-4, 187, 120}, {1e-5, 1054, 379}, {1e-6, 5926, 1200}, {1e-7, 33325, 5926}, {1e-8, 187400, 33325},
	} {
		require.InEpsilon(t, row.at100ms, cubicWindow(row.loss, 100*ms), 0.025, "%g", row.loss)
		require.InEpsilon(t, row.at10, cubicWindow(row.loss, 10*ms), 0.025, "%g", row.loss)
	}
}

func TestLossLimit(t *testing.T) {
	p := ethernet(1e9, 50*ms)
	require.True(t, math.IsInf(p.LossLimit(Reno), 1))
	p.Loss = 1e-4
	within(t, math.Sqrt(0.75)/0.01*1448*8/0.05, p.LossLimit(Reno)) // 20.1 Mbit/s
	within(t, math.Sqrt(1.5)/0.01*1448*8/0.05, p.LossLimit(Cubic)) // 28.4 Mbit/s, in the Reno-friendly region
	require.True(t, math.IsInf(p.LossLimit(BBR), 1))

	lossy := Transfer{Path: p, Streams: 4}
	rate, why := lossy.Rate()
	within(t, 4*p.LossLimit(Cubic), rate)
	require.Equal(t, Loss, why)
	require.Equal(t, Remedy{Streams: 34}, lossy.Fill()) // and no window
}

func TestFit(t *testing.T) {
	base := Transfer{Path: ethernet(1e9, 15*ms), Streams: 1, Size: 2_000_000_000_000, Within: 8 * time.Hour}
	for _, c := range []struct {
		name   string
		change func(*Transfer)
		want   Remedy
	}{
		{"as it is", func(*Transfer) {}, Remedy{Streams: 1, Window: 1_041_670}},
		{"line too slow", func(t *Transfer) { t.Within = 4 * time.Hour }, Remedy{}},
		{"loss allows a part", func(t *Transfer) { t.Path.Loss, t.Size = 1e-3, 50_000_000_000 }, Remedy{Streams: 1, Window: 26042}},
		{"loss does not", func(t *Transfer) { t.Path.Loss = 1e-3 }, Remedy{Streams: 19}},
		{"slow start", func(t *Transfer) { t.Size, t.Within = 1_000_000, 50*ms }, Remedy{Streams: 8}},
		{"less than a round trip", func(t *Transfer) { t.Size, t.Within = 1, 10*ms }, Remedy{}},
	} {
		transfer := base
		c.change(&transfer)
		require.Equal(t, c.want, transfer.Fit(), c.name)
	}
}

func TestExtremes(t *testing.T) {
	longest := Transfer{Path: Path{Rate: 1, RTT: time.Hour, Loss: MaxLoss, MTU: MinMTU}, Window: 1, Streams: 1, Size: math.MaxInt64, Within: 1}
	require.Equal(t, time.Duration(math.MaxInt64), longest.Time())
	require.Equal(t, Remedy{}, longest.Fit())
	fattest := Transfer{Path: ethernet(1e15, time.Hour), Window: 1, Streams: 1, Size: 1, Within: time.Hour}
	require.Equal(t, Remedy{Streams: 450_000_000_000_000_000, Window: 450_000_000_000_000_000}, fattest.Fill())
	require.True(t, fattest.Fits())
	require.Equal(t, Buffers{math.MaxInt32, math.MaxInt32}, BuffersFor(fattest.Path, 1))
}

func TestDistance(t *testing.T) {
	require.Equal(t, 14700*time.Microsecond, RTTOver(1000))
	for _, g := range Guides() {
		require.InEpsilon(t, g.RTT.Seconds(), RTTOver(float64(g.Km)).Seconds(), 0.2, "%d km", g.Km)
	}
}

func TestBuffers(t *testing.T) {
	require.EqualValues(t, 2_796_202, StockBuffers().Window())
	for _, c := range []struct {
		path    Path
		streams int
		want    Buffers
	}{
		{ethernet(1e9, 10*ms), 1, StockBuffers()},                 // 2.5 MB
		{ethernet(1e9, 12*ms), 1, Buffers{stockReceive, 8 << 20}}, // 3 MB: two thirds of 4 MiB are less than half of 6
		{ethernet(1e9, 15*ms), 1, Buffers{8 << 20, 8 << 20}},
		{ethernet(1e9, 120*ms), 1, Buffers{64 << 20, 64 << 20}},
		{ethernet(1e9, 120*ms), 8, Buffers{8 << 20, 8 << 20}},
		{ethernet(1e9, 120*ms), 12, StockBuffers()},
		{Path{Rate: 1e9, RTT: 120 * ms, MTU: 1500, Loss: 0.01}, 1, Buffers{64 << 20, 64 << 20}},
	} {
		require.Equal(t, c.want, BuffersFor(c.path, c.streams), "%+v", c.path)
	}
	b := Buffers{32 << 20, 32 << 20}
	require.EqualValues(t, 16<<20, b.Window())
	require.Equal(t, []Sysctl{{"net.ipv4.tcp_rmem", "4096 131072 33554432"}, {"net.core.rmem_max", "16777216"}}, b.ReceiverSysctls())
	require.Equal(t, []Sysctl{{"net.ipv4.tcp_wmem", "4096 16384 33554432"}, {"net.core.wmem_max", "16777216"}}, b.SenderSysctls())
}

func TestHosts(t *testing.T) {
	p := ethernet(1e9, 50*ms)
	var fill []int
	for _, h := range Hosts(BuffersFor(p, 1)) {
		fill = append(fill, Transfer{Path: p, Window: h.Window, Streams: 1, Control: h.Control}.Fill().Streams)
	}
	require.Equal(t, []int{357, 96, 3, 1}, fill)
}

func anyTransfer(t *rapid.T) Transfer {
	return Transfer{
		Path: Path{
			Rate: rapid.Float64Range(1, 1e15).Draw(t, "rate"),
			RTT:  time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "rtt")),
			Loss: rapid.SampledFrom([]float64{0, 1e-9, 1e-6, 1e-4, 0.01, MaxLoss}).Draw(t, "loss"),
			MTU:  rapid.IntRange(MinMTU, MaxMTU).Draw(t, "mtu"),
		},
		Window:  rapid.Int64Range(0, MaxWindow).Draw(t, "window"),
		Streams: rapid.IntRange(1, 1000).Draw(t, "streams"),
		Control: rapid.SampledFrom([]Control{Cubic, Reno, BBR}).Draw(t, "control"),
		Size:    rapid.Int64Range(1, 1<<50).Draw(t, "size"),
		Within:  time.Duration(rapid.Int64Range(1, int64(1000*time.Hour)).Draw(t, "within")),
	}
}

// A longer path, more loss, a smaller window, fewer streams or a slower line never makes a
// transfer faster.
func TestMonotone(t *testing.T) {
	for name, worsen := range map[string]func(*rapid.T, *Transfer){
		"rtt": func(r *rapid.T, t *Transfer) {
			t.Path.RTT += time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(r, "more"))
		},
		"loss": func(r *rapid.T, t *Transfer) {
			t.Path.Loss += rapid.Float64Range(0, MaxLoss-t.Path.Loss).Draw(r, "more")
		},
		"rate":    func(r *rapid.T, t *Transfer) { t.Path.Rate *= rapid.Float64Range(0.01, 1).Draw(r, "part") },
		"streams": func(r *rapid.T, t *Transfer) { t.Streams = rapid.IntRange(1, t.Streams).Draw(r, "fewer") },
		"window": func(r *rapid.T, t *Transfer) {
			most := t.Window
			if most == 0 {
				most = MaxWindow
			}
			t.Window = rapid.Int64Range(1, most).Draw(r, "less")
		},
		"size": func(r *rapid.T, t *Transfer) { t.Size += rapid.Int64Range(0, 1<<50).Draw(r, "more") },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				good := anyTransfer(r)
				bad := good
				worsen(r, &bad)
				goodRate, _ := good.Rate()
				badRate, _ := bad.Rate()
				require.LessOrEqual(r, badRate, goodRate*(1+1e-9))
				require.LessOrEqual(r, badRate, bad.Path.Goodput())
				require.GreaterOrEqual(r, bad.seconds(), good.seconds()*(1-1e-9))
			})
		})
	}
}

// A remedy does what it promises, and a smaller one would not.
func TestRemedies(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		base := anyTransfer(r)
		line := base.Path.Goodput()
		rate := func(streams int, window int64) float64 {
			u := base
			u.Streams, u.Window = streams, window
			got, _ := u.Rate()
			return got
		}
		fill := base.Fill()
		require.InEpsilon(r, line, rate(fill.Streams, base.Window), 1e-9)
		if fill.Window > 0 {
			require.InEpsilon(r, line, rate(base.Streams, fill.Window), 1e-9)
		} else {
			require.Less(r, rate(base.Streams, 0), line)
		}

		fits := func(streams int, window int64) bool {
			u := base
			u.Streams, u.Window = streams, window
			return u.Fits()
		}
		fit := base.Fit()
		require.Equal(r, base.Fits(), fit.Streams > 0 && fit.Streams <= base.Streams)
		if fit.Streams > 0 {
			require.True(r, fits(fit.Streams, base.Window))
		}
		if fit.Streams > 1 {
			require.False(r, fits(fit.Streams-1, base.Window))
		}
		if fit.Window > 0 {
			require.True(r, fits(base.Streams, fit.Window))
		}
		if fit.Window > 1 {
			require.False(r, fits(base.Streams, fit.Window-1))
		}
	})
}
