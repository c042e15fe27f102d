package session

import (
	"context"
	"math"
	"sync"
	"time"
)

// throttle holds one stream to a rate where its transport cannot. It passes small steps, because
// what is written at once leaves at once. The zero throttle has no bound. One goroutine may wait
// while another changes the rate.
type throttle struct {
	mu      sync.Mutex    // guards what follows
	rate    float64       // bytes/s, 0 is no bound
	tokens  float64       // bytes that may pass, negative after a step
	at      time.Time     // of tokens
	changed chan struct{} // closed when the rate changes; nil while nobody waits
}

const (
	// throttleStep is the time that a step takes at the rate of the stream.
	throttleStep = 2 * time.Millisecond
	// leastThrottled and mostThrottled bound a step, in bytes. Less than two packets would cost a
	// packet for the rest of each step.
	leastThrottled = 2 * 1410
	mostThrottled  = 64 << 10
	// throttleBurst is how long a stream that writes nothing saves up its rate.
	throttleBurst = 4 * time.Millisecond
	// throttleLate is how much of the time that a timer was late a stream catches up on.
	throttleLate = 10 * time.Millisecond
)

// set changes the rate, in bytes/s; +Inf is no bound. It also applies to a step that waits.
func (t *throttle) set(rate float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fillLocked(time.Now(), throttleBurst)
	t.rate = max(rate, 1)
	if math.IsInf(rate, 1) {
		t.rate = 0
	}
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// step returns the most bytes to wait for at a time, 0 for no bound.
func (t *throttle) step() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate == 0 {
		return 0
	}
	return int(min(max(t.rate*throttleStep.Seconds(), leastThrottled), mostThrottled))
}

// waits reports whether a step waits now.
func (t *throttle) waits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed != nil
}

// wait returns when a step of n bytes may pass, or with the error of ctx when that is done.
func (t *throttle) wait(ctx context.Context, n int) error {
	burst := throttleBurst
	for {
		delay, changed := t.take(n, burst)
		if changed == nil {
			return nil
		}
		burst = throttleLate
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			t.giveUp()
			return err
		}
	}
}

// take lets n bytes pass if they may, and returns a nil channel. Otherwise it returns when to come
// again: after the delay, or when the channel is closed.
func (t *throttle) take(n int, burst time.Duration) (delay time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fillLocked(time.Now(), burst)
	if t.tokens >= 0 || t.rate == 0 {
		t.tokens -= float64(n)
		t.changed = nil
		return 0, nil
	}
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return time.Duration(-t.tokens/t.rate*float64(time.Second)) + 1, t.changed
}

// giveUp ends a wait whose step will not pass.
func (t *throttle) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = nil
}

// fillLocked adds the tokens since the last call, at most those of a burst.
func (t *throttle) fillLocked(now time.Time, burst time.Duration) {
	passed := now.Sub(t.at).Seconds()
	t.at = now
	if t.rate == 0 {
		t.tokens = 0
		return
	}
	t.tokens = min(t.tokens+t.rate*passed, t.rate*burst.Seconds())
}
