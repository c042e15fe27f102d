package compress

import (
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how often Meter.Tick should be called.
const Interval = 100 * time.Millisecond

const (
	// assumedSpeed is what a core is taken to encode, in bytes/s, until it was measured.
	assumedSpeed = 200e6
	// headroom is how many times the path's rate the cores at hand must encode before it is tried. Less would be eaten by the other work
	// that more goodput brings.
	headroom = 2
	// gain is how many times the goodput without compression it must reach to be kept.
	gain = 1.2

	// The path is the limiter if streams spend at least this share of their time blocked in Write, and is not below the other one.
	blockedShare, idleShare = 0.5, 0.3
	// The CPU is the limiter if the encoders, or all cores, are busy for at least this share of the time.
	busyEncoders, busyCores = 0.7, 0.85
	// cpuTicks is how many times in a row that must be seen.
	cpuTicks = 2

	// A rate that grows by more than this factor from tick to tick is still in slow start and says nothing of the path.
	steadyGrowth = 1.5
	// poorRatio is the ratio of coded to raw bytes above which encoding does too little to be judged, or to cost anything.
	poorRatio = 0.8

	// settleOff and settleOn are how long a mode must last before its goodput is judged: buffers hold what was coded otherwise.
	settleOff, settleOn = 500 * time.Millisecond, 2 * time.Second
	// What a comparison found holds for firstPause, the next one for twice that, and so on up to lastPause.
	firstPause, lastPause = 10 * time.Second, 160 * time.Second
	// memory is the time constant of averages.
	memory = 500 * time.Millisecond
)

// Path is what was seen of a session's streams since the Tick before. All of it counts what is under way as well: a Write that has not
// returned is blocked, and what the kernel has sent of it was sent.
type Path struct {
	// Rate is what the streams together deliver, in bytes/s as they travel: as the peer's kernel acknowledged them, where that is known,
	// else as Write took them. 0 where nothing is known.
	Rate float64
	// Blocked is the share of time, 0 to 1, that streams spent in Write. Where it is known that the peer's window was closed, and not
	// the network slow, that time should be left out.
	Blocked float64
	// CPU is the share, 0 to 1, of all cores that are busy: at least those that this process keeps busy.
	CPU float64
}

// Meter decides whether to compress: only where the path is the limiter, and encoding clearly isn't. It starts off. It turns on as soon as
// the streams wait for a path that the idle cores can encode for with ease. It turns off when the cores become the limiter, or goodput
// is no better for it, and then looks whether it was better without; the outcome of that comparison holds for 10 s at first, for longer each
// time. Data that doesn't shrink doesn't turn it off, since recognising it costs next to nothing.
//
// Its methods may be called concurrently. It reads no clock.
type Meter struct {
	cores float64
	fixed bool // nothing turns it off
	on    atomic.Bool

	mu sync.Mutex
	// Since the last Tick.
	raw, coded, spent float64 // bytes and seconds of all blocks
	shrunk, shrunkIn  float64 // raw bytes and seconds of those that shrank

	// Averages; 0 until known. Of plain and dense one is of the present mode, the other of the last time in the other mode.
	speed float64 // raw bytes/s that a core encodes, of blocks that shrink
	ratio float64 // of coded to raw bytes
	plain float64 // goodput while off, bytes/s
	dense float64 // goodput while on, bytes/s

	began   bool
	last    time.Time     // of the last Tick
	rate    float64       // at the last Tick
	changed time.Time     // when it was turned on or off
	starved int           // ticks in a row that the CPU was the limiter
	doubt   time.Time     // until then the last comparison of dense and plain holds
	pause   time.Duration // for which the next one will
}

// NewMeter returns a Meter for a host with that many cores.
func NewMeter(cores int) *Meter {
	return &Meter{cores: float64(cores), pause: firstPause}
}

// Always returns a Meter that is on, whatever it sees.
func Always() *Meter {
	m := &Meter{fixed: true}
	m.on.Store(true)
	return m
}

// Assume turns it on before the first Tick. That is right on a path with a long round trip: whatever its rate, slow start makes it the
// limiter at first, and what is in the streams' buffers before the first Tick would take a slow one seconds.
func (m *Meter) Assume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.began {
		m.on.Store(true)
	}
}

// On reports whether the next block should be handed to Encode.
func (m *Meter) On() bool {
	return m.on.Load()
}

// Block takes note of a block that was handed to Encode: of its length, what Encode made of it, and the time that it spent.
func (m *Meter) Block(length, n int, spent time.Duration) {
	if m.fixed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raw += float64(length)
	m.spent += spent.Seconds()
	if n == 0 {
		m.coded += float64(length)
		return
	}
	m.coded += float64(n)
	m.shrunk += float64(length)
	m.shrunkIn += spent.Seconds()
}

// Tick takes note of the path and decides anew. Now must not go back.
func (m *Meter) Tick(now time.Time, p Path) {
	if m.fixed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.began {
		m.began, m.last, m.changed, m.rate = true, now, now, p.Rate
		return
	}
	passed := now.Sub(m.last)
	if passed <= 0 {
		return
	}
	busy := m.averageLocked(passed, p)
	if m.on.Load() {
		m.offLocked(now, p, busy)
	} else {
		m.onLocked(now, p)
	}
	m.last, m.rate = now, p.Rate
}

// workers is the number of blocks that can be encoded at once.
func (m *Meter) workers() float64 {
	return min(m.cores, maxWorkers)
}

// averageLocked updates the averages and returns the share of their time that encoders were busy.
func (m *Meter) averageLocked(passed time.Duration, p Path) (busy float64) {
	mix := func(average *float64, value float64) {
		if *average == 0 {
			*average = value
		}
		*average += min(1, passed.Seconds()/memory.Seconds()) * (value - *average)
	}
	if m.shrunkIn > 0 {
		mix(&m.speed, m.shrunk/m.shrunkIn)
	}
	if m.raw > 0 {
		mix(&m.ratio, m.coded/m.raw)
	}
	switch {
	case !m.on.Load():
		mix(&m.plain, p.Rate)
	case m.ratio > 0:
		mix(&m.dense, p.Rate/m.ratio)
	}
	busy = m.spent / passed.Seconds() / m.workers()
	m.raw, m.coded, m.spent, m.shrunk, m.shrunkIn = 0, 0, 0, 0, 0
	return busy
}

// onLocked turns it on if that promises more.
func (m *Meter) onLocked(now time.Time, p Path) {
	if p.Blocked < blockedShare || p.Rate > steadyGrowth*m.rate {
		return
	}
	rate := max(p.Rate, m.plain)
	if now.Before(m.doubt) {
		if now.Sub(m.changed) >= settleOff && m.dense > gain*rate {
			m.turnLocked(true, now)
		}
		return
	}
	speed := m.speed
	if speed == 0 {
		speed = assumedSpeed
	}
	if idle := min(m.workers(), m.cores*(1-p.CPU)); idle*speed >= headroom*rate {
		m.turnLocked(true, now)
	}
}

// offLocked turns it off if it may be worse than nothing.
func (m *Meter) offLocked(now time.Time, p Path, busy float64) {
	m.starved++
	if p.Blocked >= idleShare || busy < busyEncoders && p.CPU < busyCores {
		m.starved = 0
	}
	useless := now.Sub(m.changed) >= settleOn && m.ratio < poorRatio && m.dense > 0 && m.dense < gain*m.plain
	if (m.starved >= cpuTicks || useless) && !now.Before(m.doubt) {
		m.turnLocked(false, now)
		m.doubt = now.Add(m.pause)
		m.pause = min(2*m.pause, lastPause)
	}
}

// turnLocked turns it on or off, and forgets what goodput that mode had when it was last tried.
func (m *Meter) turnLocked(on bool, now time.Time) {
	m.on.Store(on)
	m.changed, m.starved = now, 0
	if on {
		m.dense = 0
	} else {
		m.plain = 0
	}
}
