package web

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

const (
	// feedEvery is how often the dashboard hears of the server.
	feedEvery = time.Second
	// totalsEvery is how often the sums are kept for a dashboard that is opened later, and maxTotals how many.
	totalsEvery = 2 * time.Second
	maxTotals   = 450
	// maxReaders bounds the dashboards.
	maxReaders = 32
)

// total is the goodput of all transfers at a time.
type total struct {
	At   int64 `json:"at"`  // ms
	In   int64 `json:"in"`  // bit/s
	Out  int64 `json:"out"` // bit/s
	Runs int   `json:"runs"`
}

// feed tells all dashboards the same, once a second while there are any.
type feed struct {
	server Server

	mu      sync.Mutex
	totals  []total
	readers map[chan []byte]struct{}
}

func newFeed(server Server) *feed {
	return &feed{server: server, readers: make(map[chan []byte]struct{})}
}

// run works until ctx is done, when all readers are at their end.
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
			f.tell(n%int(totalsEvery/feedEvery) == 0)
		}
	}
}

// tell looks at the server, for the readers and for the totals.
func (f *feed) tell(sum bool) {
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
		default: // it reads too slowly, and gets a later one
		}
	}
}

// read returns what is told from now on, until leave. It is nil if there are too many readers.
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
