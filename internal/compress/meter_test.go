package compress

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Unix(1000, 0)

// world is a model of a sender, its path and a receiver. Rates are in bytes/s.
type world struct {
	cores  int
	work   float64 // core seconds for each raw byte, without encoding
	speed  float64 // raw bytes that a core encodes in a second
	ratio  float64 // of encoded to raw bytes
	probe  float64 // core seconds for each raw byte that doesn't shrink
	link   func(at time.Duration) float64
	sink   float64 // raw bytes/s that the receiver takes; 0 is without limit
	source float64 // raw bytes/s that the source gives; 0 is without limit
	blind  bool    // the path's rate is not known
	never  bool    // do not compress, whatever the Meter says
}

// seen is what a Meter did in a world.
type seen struct {
	first time.Duration // when it was first on; -1 is never
	on    float64       // share of the time
	turns int
	raw   float64 // bytes delivered
}

// run ticks through a world for some time.
func (w world) run(m *Meter, length time.Duration) seen {
	s := seen{first: -1}
	was := false
	m.Tick(epoch, Path{})
	tick := Interval.Seconds()
	for at := time.Duration(0); at < length; at += Interval {
		on := m.On() && !w.never
		if on && s.first < 0 {
			s.first = at
		}
		if on != was {
			s.turns++
		}
		was = on
		ratio, work := 1.0, w.work
		if on {
			ratio = w.ratio
			if work += w.probe; ratio < 1 {
				work += 1 / w.speed
			}
			s.on += tick / length.Seconds()
		}
		link := w.link(at) / ratio
		most := func(limit, v float64) float64 {
			if limit > 0 {
				return min(limit, v)
			}
			return v
		}
		cpu := float64(w.cores) / work
		if on && ratio < 1 {
			cpu = min(cpu, float64(min(w.cores, maxWorkers))*w.speed)
		}
		raw := most(w.source, most(w.sink, min(link, cpu)))
		p := Path{Rate: raw * ratio, CPU: raw * work / float64(w.cores)}
		if raw < cpu && (w.source == 0 || raw < w.source) {
			p.Blocked = 0.9
		}
		if w.blind {
			p.Rate = 0
		}
		s.raw += raw * tick
		if blocks := raw * tick; on && blocks > 0 {
			n, spent := int(blocks*ratio), blocks/w.speed
			if ratio == 1 {
				n, spent = 0, blocks*w.probe
			}
			m.Block(int(blocks), n, time.Duration(spent*float64(time.Second)))
		}
		m.Tick(epoch.Add(at+Interval), p)
	}
	return s
}

func steady(bits float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return bits / 8 * 0.94 }
}

// slowStart doubles the rate each round trip up to the line's.
func slowStart(bits float64, rtt time.Duration, streams int) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		window := float64(streams) * 14480
		for ; at > rtt; at -= rtt {
			if window *= 2; window/rtt.Seconds() > bits {
				break
			}
		}
		return min(bits/8*0.94, window/rtt.Seconds())
	}
}

func TestMeterDecides(t *testing.T) {
	const core = 1 / 800e6 // digest, encryption and system calls
	text := world{cores: 2, work: core, speed: 285e6, ratio: 0.22, probe: 1e-11}
	with := func(change func(*world)) world {
		w := text
		change(&w)
		return w
	}
	tests := []struct {
		name        string
		world       world
		within      time.Duration // first on; -1 is never
		least, most float64       // share of a minute that it is on
		turns       int           // at most
		gains       float64       // raw bytes, against always off
	}{
		{"text, 100 Mbit/s", with(func(w *world) { w.link = steady(100e6) }), 300 * time.Millisecond, 0.99, 1, 1, 4},
		{"text, 100 Mbit/s, 20 ms, slow start", with(func(w *world) { w.link = slowStart(100e6, 20*time.Millisecond, 16) }),
			500 * time.Millisecond, 0.98, 1, 1, 4},
		{"text, 100 Mbit/s, 200 ms, slow start", with(func(w *world) { w.link = slowStart(100e6, 200*time.Millisecond, 16) }),
			500 * time.Millisecond, 0.98, 1, 1, 4},
		{"text, 100 Mbit/s, rate unknown", with(func(w *world) { w.link, w.blind = steady(100e6), true }),
			300 * time.Millisecond, 0.99, 1, 1, 4},
		{"text, 100 Mbit/s, one slow core", with(func(w *world) { w.link, w.cores, w.speed = steady(100e6), 1, 60e6 }),
			300 * time.Millisecond, 0.95, 1, 11, 3},
		{"random, 100 Mbit/s: stays on, costs nothing", with(func(w *world) { w.link, w.ratio = steady(100e6), 1 }),
			300 * time.Millisecond, 0.99, 1, 1, 0.999},
		{"text, 1 Gbit/s: the cores become the limiter and it is better still", with(func(w *world) { w.link = steady(1e9) }),
			300 * time.Millisecond, 0.95, 1, 9, 2.5},
		{"text, 1 Gbit/s, one core", with(func(w *world) { w.link, w.cores = steady(1e9), 1 }), -1, 0, 0, 0, 1},
		{"text, 1 Gbit/s, eight cores", with(func(w *world) { w.link, w.cores = steady(1e9), 8 }),
			300 * time.Millisecond, 0.99, 1, 1, 4},
		{"machine code that encodes slowly, 1 Gbit/s: worse, tried rarely",
			with(func(w *world) { w.link, w.speed, w.ratio = steady(1e9), 60e6, 0.45 }), 300 * time.Millisecond, 0, 0.03, 2, 0.98},
		{"text, 10 Gbit/s", with(func(w *world) { w.link = steady(10e9) }), -1, 0, 0, 0, 1},
		{"text, 10 Gbit/s, 32 cores", with(func(w *world) { w.link, w.cores = steady(10e9), 32 }), -1, 0, 0, 0, 1},
		{"text, 10 Gbit/s, 50 ms, slow start", with(func(w *world) { w.link, w.cores = slowStart(10e9, 50*time.Millisecond, 16), 32 }),
			-1, 0, 0, 0, 1},
		{"text, loopback: the cores are the limiter", with(func(w *world) { w.link = steady(100e9) }), -1, 0, 0, 0, 1},
		{"text, loopback, the receiver is the limiter", with(func(w *world) { w.link, w.sink = steady(100e9), 1e9 }), -1, 0, 0, 0, 1},
		{"text, 10 Gbit/s, a slow disk receives: tried rarely", with(func(w *world) { w.link, w.sink = steady(10e9), 100e6 }),
			300 * time.Millisecond, 0, 0.15, 8, 1},
		{"text, 10 Gbit/s, a slow disk sends", with(func(w *world) { w.link, w.source = steady(10e9), 100e6 }), -1, 0, 0, 0, 1},
		{"text, the line fails to 100 Mbit/s", with(func(w *world) {
			w.link = func(at time.Duration) float64 {
				if at < 30*time.Second {
					return 1.17e9
				}
				return 11.7e6
			}
		}), 33 * time.Second, 0.45, 0.5, 3, 1.03},
		{"text, the line recovers to 10 Gbit/s", with(func(w *world) {
			w.link = func(at time.Duration) float64 {
				if at < 10*time.Second {
					return 11.7e6
				}
				return 1.17e9
			}
		}), 300 * time.Millisecond, 0.16, 0.25, 4, 0.97},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const length = time.Minute
			got := test.world.run(NewMeter(test.world.cores), length)
			off := test.world
			off.never = true
			without := off.run(NewMeter(off.cores), length).raw
			t.Logf("first on at %v, on for %.3f, %d turns, %.3f times the bytes", got.first, got.on, got.turns, got.raw/without)
			if test.within < 0 {
				require.Negative(t, got.first)
			} else {
				require.GreaterOrEqual(t, got.first, time.Duration(0))
				require.LessOrEqual(t, got.first, test.within)
			}
			require.GreaterOrEqual(t, got.on, test.least)
			require.LessOrEqual(t, got.on, test.most+1e-9)
			require.LessOrEqual(t, got.turns, test.turns)
			require.GreaterOrEqual(t, got.raw/without, test.gains-1e-9)
		})
	}
}

// TestMeterAssumes begins with a Meter that is switched on.
func TestMeterAssumes(t *testing.T) {
	const core = 1 / 800e6
	const rtt = 50 * time.Millisecond
	for name, c := range map[string]struct {
		world       world
		least, most float64 // share of a minute that it is on
		gains       float64
	}{
		"text, 100 Mbit/s":             {world{cores: 2, speed: 285e6, ratio: 0.22, link: slowStart(100e6, rtt, 16)}, 1, 1, 4},
		"random, 100 Mbit/s":           {world{cores: 2, speed: 285e6, ratio: 1, link: slowStart(100e6, rtt, 16)}, 1, 1, 0.999},
		"text, 10 Gbit/s":              {world{cores: 2, speed: 285e6, ratio: 0.22, link: slowStart(10e9, rtt, 16)}, 0, 0.1, 0.97},
		"text, 10 Gbit/s, a slow core": {world{cores: 1, speed: 60e6, ratio: 0.22, link: slowStart(10e9, rtt, 16)}, 0, 0.1, 0.97},
		"random, 10 Gbit/s":            {world{cores: 2, speed: 285e6, ratio: 1, link: slowStart(10e9, rtt, 16)}, 0, 1, 0.97},
	} {
		c.world.work, c.world.probe = core, 1e-11
		m := NewMeter(c.world.cores)
		m.Assume()
		require.True(t, m.On())
		got := c.world.run(m, time.Minute)
		off := c.world
		off.never = true
		without := off.run(NewMeter(off.cores), time.Minute).raw
		t.Logf("%s: on for %.3f, %d turns, %.3f times the bytes", name, got.on, got.turns, got.raw/without)
		require.GreaterOrEqual(t, got.on, c.least-1e-9, name)
		require.LessOrEqual(t, got.on, c.most+1e-9, name)
		require.GreaterOrEqual(t, got.raw/without, c.gains, name)
	}
}

func TestMeterIgnoresTimeThatStandsStill(t *testing.T) {
	m := NewMeter(2)
	for range 10 {
		m.Tick(epoch, Path{Rate: 12.5e6, Blocked: 1})
	}
	require.False(t, m.On())
}

func TestMeterConcurrently(t *testing.T) {
	m := NewMeter(2)
	var streams sync.WaitGroup
	for range 4 {
		streams.Go(func() {
			for range 1000 {
				if !m.On() {
					m.Block(MaxBlock, 0, time.Microsecond)
				}
				m.Block(MaxBlock, MaxBlock/4, 3*time.Millisecond)
			}
		})
	}
	for i := range 100 {
		m.Tick(epoch.Add(time.Duration(i)*Interval), Path{Rate: 12.5e6, Blocked: 1})
	}
	streams.Wait()
	require.True(t, m.On())
}

func TestAlways(t *testing.T) {
	m := Always()
	now := time.Unix(1000, 0)
	for range 100 {
		m.Block(MaxBlock, 0, time.Second)
		m.Tick(now, Path{Rate: 1e9, CPU: 1})
		now = now.Add(Interval)
		require.True(t, m.On())
	}
}
