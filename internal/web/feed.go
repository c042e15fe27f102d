package web

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

const (
	// feedEvery is the interval between updates of the dashboards.
	feedEvery = time.Second
	// totalsEvery is the interval at which totals are recorded for dashboards that open later.
	// maxTotals is the number of totals kept.
	totalsEvery = 2 * time.Second
	maxTotals   = 450
	// maxReaders limits the number of open dashboards.
	maxReaders = 32
)

// total is the goodput of all transfers at one time.
type total struct {
	At   int64 `json:"at"`  // ms
	In   int64 `json:"in"`  // bit/s
	Out  int64 `json:"out"` // bit/s
	Runs int   `json:"runs"`
}

// feed sends the same update to all open dashboards, once a second while there are any.
type feed struct {
	server Server
	before *view // that was sent last; only publish uses it

	mu      sync.Mutex // guards what follows
	totals  []total
	readers map[chan []byte]struct{}
}

func newFeed(server Server) *feed {
	return &feed{server: server, readers: make(map[chan []byte]struct{})}
}

// run works until ctx is done. Then it ends all readers.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			f.mu.Lock()
			for c := range f.readers {
				delete(f.readers, c)
				close(c)
			}
			f.mu.Unlock()
			return
		case <-tick.C:
			f.publish(n%int(totalsEvery/feedEvery) == 0)
		}
	}
}

// publish reads the server's state, sends it to the readers and, if sum is set, records the totals.
func (f *feed) publish(sum bool) {
	f.mu.Lock()
	wanted := len(f.readers) > 0
	f.mu.Unlock()
	if !wanted && !sum {
		return
	}
	v := viewOf(f.server)
	now := total{At: v.At, Runs: len(v.Transfers)}
	for i := range v.Transfers {
		if x := &v.Transfers[i]; x.Receive {
			now.In += int64(x.Goodput)
		} else {
			now.Out += int64(x.Goodput)
		}
	}
	v.rateDoors(f.before)
	for i := range v.AtDoors {
		now.In += v.AtDoors[i].In
		now.Out += v.AtDoors[i].Out
	}
	f.before = v
	v.Total = now
	text, err := json.Marshal(v)
	f.mu.Lock()
	defer f.mu.Unlock()
	if sum {
		if len(f.totals) >= maxTotals {
			f.totals = append(f.totals[:0], f.totals[1:]...)
		}
		f.totals = append(f.totals, now)
	}
	if err != nil {
		return
	}
	for c := range f.readers {
		select {
		case c <- text:
		default: // this reader is too slow: it skips this update
		}
	}
}

// read returns a channel of updates and a function that unsubscribes it. The channel is nil if
// there are too many readers.
func (f *feed) read() (c chan []byte, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.readers) >= maxReaders {
		return nil, func() {}
	}
	c = make(chan []byte, 1)
	f.readers[c] = struct{}{}
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.readers, c)
	}
}

func (f *feed) past() []total {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]total{}, f.totals...)
}
