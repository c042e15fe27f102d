package lab

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms = int64(time.Millisecond)
	us = int64(time.Microsecond)
)

func testLine(t *testing.T, l Link) *line {
	l, err := l.withDefaults()
	require.NoError(t, err)
	return newLine(l, 1)
}

// arrival is what a line delivered.
type arrival struct {
	at   int64
	pkt  []byte
	segs int
}

// offer puts a copy of pkt on the line.
func (ln *line) offer(now int64, pkt []byte) {
	ln.admit(now, ln.arena.room()[:copy(ln.arena.room(), pkt)])
}

// take returns what arrives until the given time.
func (ln *line) take(until int64) []arrival {
	var out []arrival
	for {
		p, due := ln.next(until)
		if p == nil || due > until {
			return out
		}
		out = append(out, arrival{due, append(bytes.Clone(p.hdr[:p.hdrLen]), p.body...), p.segs})
		ln.pop(p, true)
	}
}

func segmentOf(n int, seq uint32) []byte {
	return sample{options: 12, size: 1448, payload: n, seq: seq}.packet(make([]byte, n))
}

func trainOf(segs int) []byte { return segmentOf(segs*1448, 0) }

func TestLineRateAndDelay(t *testing.T) {
	for _, test := range []struct {
		name string
		link Link
		pkt  []byte
		want int64
	}{
		{"packet at 1 Gbit/s", Link{Rate: 1e9, RTT: 10 * time.Millisecond}, segmentOf(1448, 0), 5*ms + 12304},
		{"packet at 1 Mbit/s", Link{Rate: 1e6, RTT: 10 * time.Millisecond}, segmentOf(1448, 0), 5*ms + 12304*1000},
		{"acknowledgement", Link{Rate: 1e9, RTT: 10 * time.Millisecond}, segmentOf(0, 0), 5*ms + 720},
		{"train at 10 Gbit/s", Link{Rate: 1e10, RTT: 50 * time.Millisecond}, trainOf(44), 25*ms + 44*12304/10},
		{"no delay", Link{Rate: 1e9, Buffer: 1e6}, segmentOf(1448, 0), 12304},
	} {
		ln := testLine(t, test.link)
		ln.offer(7, test.pkt)
		got := ln.take(never - 1)
		require.Len(t, got, 1, test.name)
		require.Equal(t, 7+test.want, got[0].at, test.name)
		require.Equal(t, test.pkt, got[0].pkt, test.name)
	}
}

// A saturated line carries its rate over a second, to the nanosecond, however it is fed.
func TestLineSustainedRate(t *testing.T) {
	for _, rate := range []int64{1e6, 123456789, 1e9} {
		for _, segs := range []int{1, 7, 44} {
			ln := testLine(t, Link{Rate: rate, Buffer: maxQueueBytes})
			var sent, last int64
			pkt := trainOf(segs)
			for last < int64(time.Second) {
				ln.offer(0, pkt)
				for p, due := ln.next(never - 1); p != nil; p, due = ln.next(never - 1) {
					sent += int64(p.segs)
					last = due
					ln.pop(p, true)
				}
			}
			require.InDelta(t, float64(sent)*1538*8e9/float64(rate), float64(last), 1, "rate %d, %d segments", rate, segs)
		}
	}
}

// A slow line delivers packet by packet, a fast one whole trains.
func TestLineCutsLongTrains(t *testing.T) {
	for _, test := range []struct {
		rate   int64
		pieces int
	}{{1e10, 1}, {1e9, 3}, {1e8, 22}, {1e7, 44}} {
		ln := testLine(t, Link{Rate: test.rate, Buffer: 1e6})
		ln.offer(0, trainOf(44))
		got := ln.take(never - 1)
		require.Len(t, got, test.pieces, "rate %d", test.rate)
		segs := 0
		for _, a := range got {
			segs += a.segs
			require.Equal(t, int64(segs)*1538*8e9/test.rate, a.at)
			require.Equal(t, a.segs, parseTrain(a.pkt).segs)
		}
		require.Equal(t, 44, segs)
	}
}

func TestLineDropTail(t *testing.T) {
	const packet = 1538
	for _, test := range []struct {
		name   string
		link   Link
		burst  []int // segments of each train offered at once
		passed int64
	}{
		{"all fit", Link{Rate: 1e9, Buffer: 100 * packet}, []int{44, 44, 12}, 100},
		{"one too many", Link{Rate: 1e9, Buffer: 100 * packet}, []int{44, 44, 13}, 100},
		{"a train shortened, the next refused", Link{Rate: 1e9, Buffer: 50 * packet}, []int{44, 44, 44, 1}, 50},
		{"single packets", Link{Rate: 1e9, Buffer: 3*packet + 500}, []int{1, 1, 1, 1, 1}, 3},
		{"one BDP", Link{Rate: 1e9, RTT: 10 * time.Millisecond}, []int{400, 400, 400}, 1_250_000 / packet},
		{"half a BDP", Link{Rate: 1e9, RTT: 10 * time.Millisecond, BufferBDP: 0.5}, []int{400, 400, 400}, 625_000 / packet},
		{"least queue", Link{Rate: 1e6, RTT: time.Millisecond}, []int{44}, minQueue},
	} {
		ln := testLine(t, test.link)
		var offered int64
		for _, segs := range test.burst {
			for ; segs > 0; segs -= min(segs, 44) {
				ln.offer(0, trainOf(min(segs, 44)))
				offered += int64(min(segs, 44))
			}
		}
		ln.take(never - 1)
		c := ln.count.snapshot()
		require.Equal(t, test.passed, c.Delivered, test.name)
		require.Equal(t, offered-test.passed, c.Dropped, test.name)
		require.Equal(t, offered, c.Sent, test.name)
		require.Equal(t, test.passed*1500, c.Bytes, test.name)
	}
}

// A packet that leaves the queue makes room in it.
func TestLineDrains(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e9, Buffer: 10 * 1538})
	ln.offer(0, trainOf(10))
	ln.offer(0, trainOf(1))
	require.EqualValues(t, 1, ln.count.dropped.Load())
	ln.offer(3*12304, trainOf(4))
	require.EqualValues(t, 2, ln.count.dropped.Load(), "three segments have left")
	ln.offer(10*ms, trainOf(10))
	require.EqualValues(t, 2, ln.count.dropped.Load(), "all have left")
	got := ln.take(never - 1)
	require.Equal(t, 10*ms+10*12304, got[len(got)-1].at, "an idle line starts at once")
}

func TestLineShortenedTrainIsWhole(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e10, Buffer: 5 * 1538})
	payload := randomPayload(rand.New(rand.NewPCG(1, 1)), 9*1448)
	ln.offer(0, sample{options: 12, size: 1448, seq: 77}.packet(payload))
	got := ln.take(never - 1)
	require.Len(t, got, 1)
	require.Equal(t, sample{options: 12, size: 1448, seq: 77}.packet(payload[:5*1448]), got[0].pkt)
}

// near fails unless got is within five standard deviations of n Bernoulli trials.
func near(t *testing.T, n, got int64, p float64, what string) {
	t.Helper()
	require.InDelta(t, float64(n)*p, float64(got), 5*math.Sqrt(float64(n)*p*(1-p))+1, what)
}

func TestLineFaultRates(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, test := range []Link{
		{Loss: 0.0001}, {Loss: 0.001}, {Loss: 0.01}, {Loss: 0.5}, {Loss: 1},
		{Reorder: 0.01}, {Duplicate: 0.05}, {Corrupt: 1e-6}, {Corrupt: 1e-5}, {Loss: 0.01, Reorder: 0.02, Corrupt: 1e-6},
	} {
		test.Rate, test.Seed, test.Buffer = 1e10, seed, 1e6
		ln := testLine(t, test)
		const n = 400_000
		pkt := sample{options: 12, size: 100, payload: 40 * 100}.packet(make([]byte, 40*100))
		for i := range int64(n / 40) {
			ln.offer(i*50*us, pkt)
			ln.take(i * 50 * us)
		}
		ln.take(never - 1)
		c := ln.count.snapshot()
		require.EqualValues(t, n, c.Sent)
		require.Zero(t, c.Dropped)
		require.Equal(t, c.Sent-c.Lost+c.Doubled, c.Delivered)
		near(t, n, c.Lost, test.Loss, "lost")
		near(t, n-c.Lost, c.Doubled, test.Duplicate, "doubled")
		near(t, n-c.Lost, c.Reordered, test.Reorder, "reordered")
		near(t, c.Delivered, c.Corrupted, 1-math.Pow(1-test.Corrupt, 8*152), "corrupted")
	}
}

func TestLineSeedDecides(t *testing.T) {
	run := func(seed uint64) (seqs []uint32) {
		ln := testLine(t, Link{Rate: 1e9, Loss: 0.1, Reorder: 0.1, Buffer: 1e9, Seed: seed})
		for i := range uint32(1000) {
			ln.offer(0, segmentOf(1000, i))
		}
		for _, a := range ln.take(never - 1) {
			seqs = append(seqs, binary.BigEndian.Uint32(a.pkt[vnetLen+24:]))
		}
		return seqs
	}
	first, again := run(7), run(7)
	require.Equal(t, first, again)
	require.NotEqual(t, first, run(8))
}

// On a busy line, three or more segments overtake each held one. None is lost or doubled.
func TestLineReorderOvertakes(t *testing.T) {
	for _, rate := range []int64{1e6, 1e8, 1e10} {
		ln := testLine(t, Link{Rate: rate, Reorder: 0.02, Buffer: 1 << 31, Seed: 3})
		const n = 5000
		for i := range uint32(n) {
			ln.offer(0, segmentOf(1448, i))
		}
		got := ln.take(never - 1)
		require.Len(t, got, n)
		seen := make(map[uint32]bool)
		highest, overtaken := int64(-1), int64(0)
		for _, a := range got {
			seq := binary.BigEndian.Uint32(a.pkt[vnetLen+24:])
			require.False(t, seen[seq])
			seen[seq] = true
			if int64(seq) < highest {
				overtaken++
				require.GreaterOrEqual(t, highest-int64(seq), int64(3))
			}
			highest = max(highest, int64(seq))
		}
		reordered := ln.count.reordered.Load()
		require.Positive(t, reordered)
		require.InDelta(t, reordered, overtaken, 3, "only the last ones have nothing behind them")
	}
}

// The receiver rejects a damaged segment. All others are right.
func TestLineDamageIsNoticed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ln := testLine(t, Link{Rate: 1e9, Corrupt: 2e-5, Buffer: 1e9, Seed: seed})
	for range 300 {
		s := sample{v6: rng.IntN(2) == 0, udp: rng.IntN(3) == 0, size: 1400}
		ln.offer(0, s.packet(randomPayload(rng, 1+rng.IntN(20*1400))))
	}
	damaged := int64(0)
	for _, a := range ln.take(never - 1) {
		if a.pkt[0]&vnetNeedsCsum != 0 {
			continue // the receiver trusts it
		}
		require.False(t, intact(t, a.pkt))
		damaged++
	}
	require.Positive(t, damaged)
	require.Equal(t, ln.count.corrupted.Load(), damaged)
}

// A forged segment passes its receiver's check, with one bit changed.
func TestLineForgeIsNotNoticed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ln := testLine(t, Link{Rate: 1e9, Forge: 1, Buffer: 1e9, Seed: seed})
	for range 50 {
		s := sample{v6: rng.IntN(2) == 0, size: 1400}
		n := 1 + rng.IntN(3*1400)
		ln.offer(0, s.packet(make([]byte, n)))
		flipped := 0
		for _, a := range ln.take(never - 1) {
			require.True(t, intact(t, a.pkt))
			for _, b := range a.pkt[s.head()+vnetLen:] {
				flipped += bits.OnesCount8(b)
			}
		}
		require.Equal(t, (n+1399)/1400, flipped)
	}
	ln.offer(0, sample{size: 1400}.packet(nil))
	require.Len(t, ln.take(never-1), 1, "there is nothing to forge")
}

// If a segment is doubled and held back, one copy is on time and the other late. Both are
// complete.
func TestLineDuplicates(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e8, Duplicate: 0.1, Reorder: 0.1, Buffer: 1 << 31, Seed: 3})
	const n = 3000
	for i := range uint32(n) {
		ln.offer(0, segmentOf(1448, i))
	}
	times, inOrder, late := make(map[uint32]int), make(map[uint32]bool), 0
	highest := int64(-1)
	for _, a := range ln.take(never - 1) {
		complete(a.pkt, nil)
		require.True(t, intact(t, a.pkt))
		seq := binary.BigEndian.Uint32(a.pkt[vnetLen+24:])
		times[seq]++
		if int64(seq) >= highest {
			inOrder[seq] = true
		} else if inOrder[seq] {
			late++
		}
		highest = max(highest, int64(seq))
	}
	require.Len(t, times, n)
	twice := int64(0)
	for _, k := range times {
		if k > 1 {
			twice++
		}
	}
	require.Equal(t, ln.count.doubled.Load(), twice)
	require.Positive(t, twice)
	require.Positive(t, late, "some copies come after others")
}

// If the port of a connection is rebound, the other side sees another port, in both directions.
// Segments to the old port vanish.
func TestLineReboundPort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for _, v6 := range []bool{false, true} {
		for _, whole := range []bool{false, true} { // whether the checksum is complete
			ln := testLine(t, Link{Rate: 1e9, Rebound: []uint16{50001}})
			for _, test := range []struct{ from, to, seenFrom, seenTo uint16 }{
				{50001, 7433, 50001 ^ otherPort, 7433}, {7433, 50001 ^ otherPort, 7433, 50001}, {50002, 7433, 50002, 7433}, {7433, 50001, 0, 0},
			} {
				s := sample{v6: v6, size: 1400}
				pkt := s.packet(randomPayload(rng, 1000))
				l4 := tcpHeader(pkt)
				binary.BigEndian.PutUint16(pkt[l4:], test.from)
				binary.BigEndian.PutUint16(pkt[l4+2:], test.to)
				if whole {
					complete(pkt, nil)
				}
				ln.offer(0, pkt)
				got := ln.take(never - 1)
				if test.seenFrom == 0 {
					require.Empty(t, got)
					continue
				}
				require.Len(t, got, 1)
				require.Equal(t, test.seenFrom, binary.BigEndian.Uint16(got[0].pkt[l4:]))
				require.Equal(t, test.seenTo, binary.BigEndian.Uint16(got[0].pkt[l4+2:]))
				complete(got[0].pkt, nil)
				require.True(t, intact(t, got[0].pkt))
			}
		}
	}
}

func TestLineBlockedPort(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		ln := testLine(t, Link{Rate: 1e9, Blocked: []uint16{50001}})
		for i, ports := range [][2]uint16{{50001, 7433}, {7433, 50001}, {50002, 7433}} {
			s := sample{v6: v6, size: 1400}
			pkt := s.packet(make([]byte, 2000))
			l4 := tcpHeader(pkt)
			binary.BigEndian.PutUint16(pkt[l4:], ports[0])
			binary.BigEndian.PutUint16(pkt[l4+2:], ports[1])
			ln.offer(0, pkt)
			require.Equal(t, i == 2, len(ln.take(never-1)) > 0)
		}
		ln.offer(0, sample{v6: v6, udp: true, size: 1400}.packet(make([]byte, 2000)))
		require.NotEmpty(t, ln.take(never-1), "it is of TCP")
		require.EqualValues(t, 4, ln.count.outage.Load())
	}
}

func TestLineOutage(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e9, RTT: 10 * time.Millisecond})
	ln.offer(0, trainOf(3))
	ln.downUntil = 2 * ms
	ln.offer(1*ms, trainOf(4))
	ln.offer(2*ms, trainOf(5))
	ln.take(never - 1)
	c := ln.count.snapshot()
	require.EqualValues(t, 4, c.Outage)
	require.EqualValues(t, 8, c.Delivered, "what was on the line arrives")
}

// A shorter delay or a higher rate never makes a packet arrive before one sent earlier.
func TestLineChangesKeepOrder(t *testing.T) {
	l, err := Link{Rate: 1e8, RTT: 100 * time.Millisecond}.withDefaults()
	require.NoError(t, err)
	ln := newLine(l, 1)
	ln.offer(0, segmentOf(1448, 1))
	l.Rate, l.RTT = 1e9, time.Millisecond
	ln.configure(l)
	ln.offer(0, segmentOf(1448, 2))
	ln.offer(80*ms, segmentOf(1448, 3))
	got := ln.take(never - 1)
	require.Len(t, got, 3)
	require.Equal(t, 50*ms+123040, got[0].at)
	require.Equal(t, got[0].at, got[1].at)
	require.Equal(t, 80*ms+500*us+12304, got[2].at)
}

// What waits in the queue leaves at the new rate.
func TestLineChangeOfRate(t *testing.T) {
	for _, test := range []struct{ from, to int64 }{{1e9, 1e8}, {1e8, 1e9}} {
		l, err := Link{Rate: test.from, RTT: 10 * time.Millisecond, Buffer: 1e6}.withDefaults()
		require.NoError(t, err)
		ln := newLine(l, 1)
		ln.offer(0, trainOf(40))
		ln.offer(0, trainOf(40))
		first := ln.free // of what the line is sending
		l.Rate = test.to
		ln.configure(l)
		got := ln.take(never - 1)
		left := 80*1538*8 - first*test.from/1e9
		require.Equal(t, 5*ms+first+left*1e9/test.to, got[len(got)-1].at)
		require.EqualValues(t, 80, ln.count.delivered.Load())
	}
}

// What waits in a deep queue, for longer than others that come and go, leaves it unchanged.
func TestLineKeepsBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ln := testLine(t, Link{Rate: 1e8, RTT: 200 * time.Millisecond, Buffer: 9e6})
	var sent, got []byte
	head := sample{options: 12, size: 1448}.head() + vnetLen
	take := func(until int64) {
		for _, a := range ln.take(until) {
			got = append(got, a.pkt[head:]...)
		}
	}
	for now := int64(0); now < 900*ms; now += 3 * ms {
		trains := rng.IntN(3)
		if now == 0 {
			trains = 100
		}
		for range trains {
			payload := randomPayload(rng, 1+rng.IntN(40*1448))
			sent = append(sent, payload...)
			ln.offer(now, sample{options: 12, size: 1448}.packet(payload))
		}
		take(now)
	}
	take(never - 1)
	require.Zero(t, ln.count.dropped.Load())
	require.True(t, bytes.Equal(sent, got))
}

func TestLinkDirections(t *testing.T) {
	there, back := Link{Rate: 1e6, RateBack: 8e6, RTT: 10 * time.Millisecond}.directions()
	require.Equal(t, []int64{1e6, 0, 8e6, 0}, []int64{there.Rate, there.RateBack, back.Rate, back.RateBack})
	there, back = Link{Rate: 1e6}.directions()
	require.Equal(t, there, back)
}

// Memory follows what is on its way, and is reused.
func TestLineMemory(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e10, RTT: 10 * time.Millisecond})
	pkt := trainOf(36)
	for i := range int64(10_000) { // 0.3 s, overloaded by half
		now := i * 30 * us
		ln.offer(now, pkt)
		ln.take(now)
	}
	require.Positive(t, ln.count.dropped.Load())
	chunks := len(ln.arena.free) + 1
	const onTheWay = 12_500_000 * 3 / 2 // queue and half a BDP
	require.Less(t, chunks*chunkSize, onTheWay*5/4)
	require.Less(t, len(ln.onTime.slots), 4096)
}

func TestLinkChecks(t *testing.T) {
	good := Link{Rate: 1e9, RTT: time.Millisecond}
	l, err := good.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 1500, l.MTU)
	for name, spoil := range map[string]func(*Link){
		"rate":    func(l *Link) { l.Rate = 0 },
		"time":    func(l *Link) { l.RTT = -1 },
		"loss":    func(l *Link) { l.Loss = 1.1 },
		"reorder": func(l *Link) { l.Reorder = -0.1 },
		"dupl":    func(l *Link) { l.Duplicate = 2 },
		"corrupt": func(l *Link) { l.Corrupt = math.NaN() },
		"MTU":     func(l *Link) { l.MTU = 100 },
		"packet":  func(l *Link) { l.Buffer = 1000 },
		"buffer":  func(l *Link) { l.Buffer = -1 },
		"BDP":     func(l *Link) { l.BufferBDP = 1e9 },
		"jitter":  func(l *Link) { l.Jitter = l.RTT + 1 },
		"burst":   func(l *Link) { l.PoliceBurst = -1 },
		"policer": func(l *Link) { l.Police = 1 },
	} {
		bad := good
		spoil(&bad)
		_, err := bad.withDefaults()
		require.ErrorContains(t, err, name)
	}

	rate, loss, bdp := int64(1e8), 0.1, 0.5
	l.Buffer = 5000
	changed, err := l.with(Change{Rate: &rate, Loss: &loss, BufferBDP: &bdp})
	require.NoError(t, err)
	require.Equal(t, Link{Rate: 1e8, RTT: time.Millisecond, Loss: 0.1, BufferBDP: 0.5, MTU: 1500, PMTU: 1500}, changed)
	_, err = l.with(Change{Down: -1})
	require.Error(t, err)
}
