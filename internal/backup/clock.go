package backup

import (
	"context"
	"hash/fnv"
	"os"
	"time"
)

// Clock tells the time of the day, which may be set, and waits.
type Clock interface {
	Now() time.Time
	// Sleep waits until the duration is over or ctx ends, even if the clock is set meanwhile.
	Sleep(ctx context.Context, d time.Duration)
}

// SystemClock is the clock of this host.
type SystemClock struct{}

// Now implements Clock. The monotonic reading is dropped: it would hide that the clock was set, or the host suspended.
func (SystemClock) Now() time.Time { return time.Now().Round(0) }

// Sleep implements Clock.
func (SystemClock) Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lookEvery is how often waiting code checks the clock, because somebody may have set it.
const lookEvery = 30 * time.Second

// upTo returns how long to sleep until t, at most most. A zero t is never.
func upTo(t, now time.Time, most time.Duration) time.Duration {
	if t.IsZero() {
		return most
	}
	return max(0, min(most, t.Sub(now)))
}

// spread returns a duration from 0 to less than within. It is always the same for one key on one
// host, so a restart does not move it.
func spread(within time.Duration, key string) time.Duration {
	if within <= 0 {
		return 0
	}
	host, _ := os.Hostname()
	h := fnv.New64a()
	_, _ = h.Write([]byte(key + "\x00" + host))
	x := h.Sum64()
	x ^= x >> 33 // FNV's last bytes change the upper bits little
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(within))
}
