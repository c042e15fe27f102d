package quic

import (
	"sync"
	"time"
)

// departures makes the sender of a connection wait until the trains of a millisecond have come
// together. quic-go hands each train to a goroutine that sends it, so each costs a wake-up otherwise.
// The zero departures is ready.
type departures struct {
	mu     sync.Mutex // guards what follows
	last   time.Time  // when a train had left last
	trains int        // of the running batch
}

const (
	// departEvery is the time between two batches.
	departEvery = time.Millisecond
	// sameBatch is the longest time after a train in which the next one belongs to its batch.
	sameBatch = 20 * time.Microsecond
	// departSoon is the longest time after a batch in which the next one waits.
	departSoon = 2 * time.Millisecond
	// departMost is how many trains show that the next batch should not wait: quic-go holds 8 of them
	// (sendQueueCapacity), and then packs no more.
	departMost = 6
)

// started is the common origin of the moments at which sockets are read and batches leave.
var started = time.Now()

// wait returns how long a train waits. All batches leave at the same moments, counted from a common
// origin.
func (d *departures) wait(now, origin time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	passed, before := now.Sub(d.last), d.trains
	if passed > sameBatch {
		d.trains = 0
	}
	d.trains++
	if passed <= sameBatch || passed > departSoon || before >= departMost {
		return 0
	}
	return departEvery - now.Sub(origin)%departEvery
}

// depart returns when a train may leave.
func (d *departures) depart() {
	if wait := d.wait(time.Now(), started); wait > 0 {
		time.Sleep(wait)
	}
}

// left notes that a train has left.
func (d *departures) left() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
}
