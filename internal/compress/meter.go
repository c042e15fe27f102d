package compress

import (
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how often Meter.Tick should be called.
const Interval = 100 * time.Millisecond

const (
	// assumedSpeed is how fast a core encodes, in bytes/s, until it has been measured.
	assumedSpeed = 200e6
	// headroom is how many times the path's rate the idle cores must be able to encode before
	// compression is tried. With less, the other work that more goodput brings would use it up.
	headroom = 2
	// gain is how many times the goodput without compression it must reach to stay on.
	gain = 1.2

	// The path is the limiter if streams are blocked in Write for at least blockedShare of the
	// time. It is not the limiter if they are blocked for less than idleShare.
	blockedShare, idleShare = 0.5, 0.3
	// The CPU is the limiter if the encoders, or all cores, are busy for at least so much of the
	// time.
	busyEncoders, busyCores = 0.7, 0.85
	// cpuTicks is how many times in a row the CPU must be the limiter.
	cpuTicks = 2

	// A rate that grows by more than this factor from tick to tick is in slow start and says
	// nothing about the path.
	steadyGrowth = 1.5
	// poorRatio is a ratio of encoded to raw bytes. Above it, encoding changes too little to be
	// judged, and costs nearly nothing.
	poorRatio = 0.8

	// A mode must last for settleOff or settleOn before its goodput is judged: until then, buffers
	// hold blocks of the other mode.
	settleOff, settleOn = 500 * time.Millisecond, 2 * time.Second
	// The result of a comparison holds for firstPause, the next one for twice that, up to
	// lastPause.
	firstPause, lastPause = 10 * time.Second, 160 * time.Second
	// memory is the time constant of averages.
	memory = 500 * time.Millisecond
)

// Path describes a session's streams since the previous Tick. It includes what is still under way:
// a Write that has not returned counts as blocked, and what the kernel has sent of it as sent.
type Path struct {
	// Rate is what all streams deliver together, in encoded bytes/s: what the peer's kernel
	// acknowledged if that is known, otherwise what Write accepted. 0 is unknown.
	Rate float64
	// Blocked is the share of time that streams spent in Write, 0 to 1. The caller leaves out time
	// in which the peer's window was closed, if it knows it: then the network was not slow.
	Blocked float64
	// CPU is the share of all cores that are busy, 0 to 1: at least what this process uses.
	CPU float64
}

// Meter decides whether to compress: only if the path is the limiter and encoding clearly is not.
//
// It begins switched off. It switches on when the streams wait for a path for which the idle cores
// can easily encode. It switches off when the cores become the limiter, or when goodput is not
// better than before. Then it measures the goodput without compression. The result of that
// comparison holds for 10 s at first, and longer each time. Incompressible data does not switch it
// off, since recognising such data costs nearly nothing.
//
// Its methods are safe for concurrent use. It reads no clock.
type Meter struct {
	cores float64
	fixed bool // always on
	on    atomic.Bool

	mu sync.Mutex // guards what follows

	// Since the last Tick.
	raw, coded, spent float64 // bytes and seconds of all blocks
	shrunk, shrunkIn  float64 // raw bytes and seconds of the blocks that shrank

	// Averages, 0 until known. plain and dense are those of the last time in that mode.
	speed float64 // raw bytes/s that a core encodes, in blocks that shrink
	ratio float64 // encoded to raw bytes
	plain float64 // goodput while off, bytes/s
	dense float64 // goodput while on, bytes/s

	began   bool
	last    time.Time     // the last Tick
	rate    float64       // at the last Tick
	changed time.Time     // when it switched on or off
	starved int           // ticks in a row in which the CPU was the limiter
	doubt   time.Time     // the last comparison of dense and plain holds until then
	pause   time.Duration // how long the next comparison will hold
}

// NewMeter returns a Meter for a host with so many cores.
func NewMeter(cores int) *Meter {
	return &Meter{cores: float64(cores), pause: firstPause}
}

// Always returns a Meter that is always on.
func Always() *Meter {
	m := &Meter{fixed: true}
	m.on.Store(true)
	return m
}

// Assume switches the Meter on before the first Tick. That is right for a path with a long round
// trip: slow start makes it the limiter at first, whatever its rate. And if the path is slow, it
// would take seconds to send the uncompressed data that fills the buffers before the first Tick.
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

// Block records a block that was handed to Encode: its length, and the results of Encode.
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

// Tick records the state of the path and decides again. now must not go back.
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

// workers returns how many blocks can be encoded at the same time.
func (m *Meter) workers() float64 {
	return min(m.cores, maxWorkers)
}

// averageLocked updates the averages and returns the share of time that the encoders were busy.
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

// onLocked switches on if that promises more goodput.
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

// offLocked switches off if compression may be worse than none.
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

// turnLocked switches on or off, and forgets the goodput that this mode had the last time.
func (m *Meter) turnLocked(on bool, now time.Time) {
	m.on.Store(on)
	m.changed, m.starved = now, 0
	if on {
		m.dense = 0
	} else {
		m.plain = 0
	}
}
