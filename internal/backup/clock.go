package backup

import (
	"context"
	"hash/fnv"
	"os"
	"time"
)

// Clock returns the time of day and waits. Somebody may set it at any time.
type Clock interface {
	Now() time.Time
	// Sleep waits until the duration is over or ctx ends, even if the clock is set meanwhile.
	Sleep(ctx context.Context, d time.Duration)
}

// SystemClock is the clock of this host.
type SystemClock struct{}

// Now implements Clock. It drops the monotonic reading, which would hide that the clock was set or
// that the host was suspended.
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

// upTo returns how long to sleep until t, but no longer than most. A zero t means never.
func upTo(t, now time.Time, most time.Duration) time.Duration {
	if t.IsZero() {
		return most
	}
	return max(0, min(most, t.Sub(now)))
}

// spread returns a duration from 0 to less than within. It depends only on the key and the host, so
// a restart does not change it.
func spread(within time.Duration, key string) time.Duration {
	if within <= 0 {
		return 0
	}
	host, _ := os.Hostname()
	h := fnv.New64a()
	_, _ = h.Write([]byte(key + "\x00" + host))
	x := h.Sum64()
	x ^= x >> 33 // the last bytes barely change FNV's upper bits
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(within))
}
