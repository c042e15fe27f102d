package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// uploadIdle is how long an upload measures round trips before its data flows.
	uploadIdle = 300 * time.Millisecond
	// uploadStep is the time between two decisions about the streams of an upload, as in a transfer.
	uploadStep = 25 * time.Millisecond
	// uploadExtra is how long an upload may take after its time, to send what its streams have begun.
	// A server waits longer for that: see testExtra.
	uploadExtra = 10 * time.Second
)

// Tuner decides about the streams of an upload as a transfer does. One goroutine uses it.
type Tuner interface {
	// Next is called every 25 ms with the bytes received so far. It may pace the streams, and returns
	// how many of them may send. ending says that nothing is left to claim.
	Next(now time.Time, received int64, ending bool) (streams int)
}

// Upload is the result of an upload.
type Upload struct {
	Goodput       float64       // bit/s, slow start included
	Bytes         int64         // received
	Duration      time.Duration // from the first byte to the last one, at the server
	Segments      int64
	Retransmitted int64
	Idle          RTT // before
	Loaded        RTT // while data flowed
}

// uploading is an upload that runs.
type uploading struct {
	*prober
	tuner    Tuner
	blocks   atomic.Int64 // left to claim
	received atomic.Int64 // bytes

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	active  int  // streams that may send
	dialing int  // streams that are being connected, or could not be
	over    bool // no stream waits any more
	streams []*uploadStream
}

type uploadStream struct {
	stream
	conn Conn
}

// RunUpload sends size bytes over as many streams as tuner says, or what it can within a time. The
// streams claim blocks in turn, as those of a transfer do, so fast ones send more. It dials streams
// when they are needed; those of the beginning are connected before the time runs. A path that does
// not deliver in time what has been sent is left with what has arrived.
func RunUpload(caller context.Context, dial Dial, size int64, within time.Duration, tuner Tuner) (*Upload, error) {
	ctx, cancel := context.WithTimeoutCause(caller, idleMost+within+2*uploadExtra, errOver)
	defer cancel()
	u := &uploading{prober: newProber(dial, Options{Time: within}), tuner: tuner}
	u.changed = sync.NewCond(&u.mu)
	u.blocks.Store((size + wire.FlowBlock - 1) / wire.FlowBlock)
	report, err := u.run(ctx, within)
	switch {
	case caller.Err() != nil:
		return nil, context.Cause(caller)
	case over(ctx):
		return nil, fmt.Errorf("the path is too slow: %w", errNothing)
	}
	return report, err
}

func (u *uploading) run(ctx context.Context, within time.Duration) (*Upload, error) {
	pings, err := u.dial(ctx, transport.Path{})
	if err != nil {
		return nil, err
	}
	stop, err := u.ping(pings)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	if err := u.idle(ctx, uploadIdle); err != nil {
		return nil, err
	}
	defer u.close()
	if err := u.open(ctx, u.tuner.Next(time.Now(), 0, false)); err != nil {
		return nil, err
	}
	begin := time.Since(u.start)
	if err := u.send(ctx, within); err != nil {
		return nil, err
	}
	end := time.Since(u.start)
	if err := stop(); err != nil {
		return nil, err
	}
	return u.sum(begin, end), nil
}

// open connects the streams of the beginning.
func (u *uploading) open(ctx context.Context, n int) error {
	u.active = n
	conns := make([]Conn, n)
	var dials errgroup.Group
	for i := range conns {
		dials.Go(func() (err error) {
			conns[i], err = u.dial(ctx, transport.Path{})
			return err
		})
	}
	err := dials.Wait()
	for _, c := range conns {
		if c != nil {
			u.streams = append(u.streams, &uploadStream{conn: c})
		}
	}
	return err
}

func (u *uploading) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.streams {
		_ = s.conn.Close()
	}
}

// send moves the data, and returns when all of it has arrived, or the path has had its time.
func (u *uploading) send(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within+uploadExtra, errOver)
	defer cancel()
	defer context.AfterFunc(ctx, u.close)()
	var work errgroup.Group
	start := func(i int, s *uploadStream) {
		work.Go(func() error {
			err := u.carry(i, s, within)
			if err != nil { // the others would send for nothing
				u.close()
				u.release()
			}
			return err
		})
	}
	for i, s := range u.streams {
		start(i, s)
	}
	done := make(chan struct{})
	dials, stop := context.WithCancel(ctx)
	defer stop()
	var control sync.WaitGroup
	control.Go(func() {
		tick := time.NewTicker(uploadStep)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-done:
				return
			case <-ctx.Done():
				u.release()
				return
			case now := <-tick.C:
				if now.Sub(began) >= within {
					u.blocks.Store(0)
				}
				ending := u.blocks.Load() <= 0
				n := u.tuner.Next(now, u.received.Load(), ending)
				if ending {
					u.release()
					continue
				}
				for range u.allow(n) {
					control.Go(func() { u.add(dials, start) })
				}
			}
		}
	})
	err := work.Wait()
	close(done)
	stop()
	control.Wait()
	err = errors.Join(err, work.Wait()) // those that were added last
	switch {
	case !errors.Is(context.Cause(ctx), errOver):
		return err
	case u.received.Load() == 0:
		return fmt.Errorf("the path is too slow: %w", errNothing)
	}
	return nil
}

// allow lets the first n streams send. It returns how many have to be connected for that.
func (u *uploading) allow(n int) (missing int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.active = n
	u.changed.Broadcast()
	missing = max(0, n-len(u.streams)-u.dialing)
	u.dialing += missing
	return missing
}

// release lets all streams come to their end.
func (u *uploading) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	u.changed.Broadcast()
}

// add connects another stream while others send. One that can't be connected is left out.
func (u *uploading) add(ctx context.Context, start func(int, *uploadStream)) {
	c, err := u.dial(ctx, transport.Path{})
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err != nil: // it still counts, so that nobody tries again and again
	case u.over || ctx.Err() != nil || u.blocks.Load() <= 0:
		_ = c.Close()
	default:
		u.dialing--
		s := &uploadStream{conn: c}
		u.streams = append(u.streams, s)
		start(len(u.streams)-1, s)
	}
}

// carry sends blocks on one stream until none is left, and waits until they have arrived.
func (u *uploading) carry(i int, s *uploadStream, within time.Duration) error {
	c := s.conn
	if _, err := c.Write(wire.Append(nil, &wire.Test{Kind: wire.Upload, Time: uint64(within.Milliseconds())})); err != nil {
		return err
	}
	var reports errgroup.Group
	reports.Go(func() error { return s.follow(c, func(bytes int64) { u.received.Add(bytes) }) })
	failed := u.write(i, c)
	if failed != nil {
		_ = c.Close()
	}
	err := reports.Wait()
	s.sender.info, _ = c.Info()
	if failed != nil && err == nil {
		err = failed
	}
	return err
}

// write sends blocks that it claims, and marks a last one.
func (u *uploading) write(i int, c Conn) error {
	c.LimitUnsent(unsent)
	block := make([]byte, wire.FlowBlock)
	for u.turn(i) && u.blocks.Add(-1) > 0 {
		if _, err := c.Write(block); err != nil {
			return err
		}
	}
	block[0] = 1
	_, err := c.Write(block)
	return err
}

// turn waits until stream i may send. It reports false if nothing is left to claim.
func (u *uploading) turn(i int) bool {
	if u.blocks.Load() <= 0 {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i >= u.active && !u.over {
		u.changed.Wait()
	}
	return !u.over
}

// sum puts the streams together. Data flowed from begin to end, since the start of the prober.
func (u *uploading) sum(begin, end time.Duration) *Upload {
	streams := make([]stream, len(u.streams))
	r := &Upload{Idle: u.report.Idle, Loaded: u.rttBetween(begin, end)}
	for i, s := range u.streams {
		streams[i] = s.stream
		r.Segments += int64(s.sender.info.DataSegs)
		r.Retransmitted += int64(s.sender.info.RetransSegs)
		r.Bytes += s.received()
	}
	align(streams)
	for i := range streams {
		if n := len(streams[i].ticks); n > 0 {
			r.Duration = max(r.Duration, streams[i].ticks[n-1].at)
		}
	}
	if r.Duration > 0 {
		r.Goodput = 8 * float64(r.Bytes) / r.Duration.Seconds()
	}
	return r
}
