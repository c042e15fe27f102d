// Package session is what the two ends of a session share: the engine that moves files, the data
// streams with their pacing and tuning, measurements, progress and reports, and the kinds of errors.
package session

import (
	"context"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// Engine is one end of a transfer: the part of a session that moves the files. NewSender makes the
// end that sends, NewReceiver the one that receives. A session treats both alike; where an action
// makes sense at one end only, the other end does nothing.
//
// All methods are safe for concurrent use.
type Engine interface {
	// Run transfers everything. It returns nil when the outcome of each entry is known, whether the
	// entry succeeded or failed. It closes the data streams but not the control stream, and returns
	// after its goroutines have ended. It may be called once.
	Run(ctx context.Context) error
	// Done is closed when this end has finished, before its streams are closed.
	Done() <-chan struct{}
	// Send queues a message for the peer. It may be called before Run.
	Send(m wire.Message)
	// Stats returns the counters so far.
	Stats() transfer.Stats
	// Sends reports whether this is the end that sends files.
	Sends() bool

	// AddStream uses a data stream of the session. The engine closes it.
	AddStream(d *DataStream)
	// Retire stops the use of streams. Blocks on their way still arrive; then the sending end closes
	// the streams. The receiving end asks the sending end to do so.
	Retire(streams ...*DataStream)
	// Tune chooses the number of streams, and whether compression pays, until ctx is done. The
	// receiving end leaves that to its peer and returns at once.
	Tune(ctx context.Context, set *StreamSet, t Tuning)

	// Drain makes everything written so far durable and ends the session with CodeDraining. The
	// sending end has nothing to make durable and returns at once.
	Drain(ctx context.Context)
	// AtRisk returns the age of the oldest data that a power cut would destroy; 0 at the sending end.
	AtRisk() time.Duration
}

// Tuning holds the bounds and effects of Engine.Tune.
type Tuning struct {
	// Fixed is set where the user chose the number of streams: it is then what Most returns.
	Fixed bool
	// Most returns the largest number of streams allowed now.
	Most func() int
	// Priority returns how the session shares the line with others, now; nil is always normal.
	Priority func() congestion.Priority
	// Relayed says that the streams end at a relay: their windows and their RTT are those of one leg.
	Relayed bool
	// Siblings is what the server says of sessions that share the path; nil is never anything.
	Siblings *Siblings
	// Want is called to have n streams in total. dead are those that have just been dropped.
	Want func(n int, dead []uint64)
}

// controlStream is a control stream that tells the engine how slow its path is.
type controlStream struct{ transport.Conn }

// Timeout is the kernel's time until it sends a segment again (RFC 6298).
func (c controlStream) Timeout() time.Duration {
	i, _ := c.Info()
	return timeoutOf(&i)
}

// TimeoutOf returns the function Timeout of a control stream.
func TimeoutOf(control transport.Conn) func() time.Duration { return controlStream{control}.Timeout }

func timeoutOf(i *transport.Info) time.Duration { return i.RTT + 4*i.RTTVar }

// sendingEnd is the Engine that sends.
type sendingEnd struct {
	*transfer.Sender
	control transport.Conn
	coder   *compress.Meter // nil without compression
}

// NewSender makes an Engine that sends source. control is the control stream, on which Hello has
// been exchanged, and r its reader.
func NewSender(control transport.Conn, r *wire.Reader, source transfer.Source, opt transfer.SenderOptions) Engine {
	assumePath(opt.Coder, control)
	sender := transfer.NewSender(controlStream{control}, r, source, opt)
	sender.SetActive(lowStreams) // until Tune
	return &sendingEnd{sender, control, opt.Coder}
}

func (e *sendingEnd) Sends() bool { return true }

func (e *sendingEnd) AddStream(d *DataStream) {
	d.begin()
	e.Sender.AddStream(d.ID, d)
}

func (e *sendingEnd) Retire(streams ...*DataStream) {
	for _, d := range streams {
		d.Retired.Store(true)
		e.Sender.Retire(d.ID)
	}
}

func (e *sendingEnd) Tune(ctx context.Context, set *StreamSet, t Tuning) {
	if e.coder != nil {
		var feeding sync.WaitGroup
		feeding.Go(func() { feedMeter(ctx, set, e.coder) })
		defer feeding.Wait()
	}
	w := newWindow(set)
	tuner := tuner{sender: e.Sender, set: set, Tuning: t, window: w, silent: make(silences), moved: make(movements)}
	w.relayed = t.Relayed
	low := tuner.priority() == congestion.Low
	if low {
		w.every = congestion.LeastEvery
	}
	i, ok := e.control.Info()
	switch {
	case low && t.Fixed:
		w.free = lowStreams
	case low:
		w.joined = lowStreams
		if ok && !t.Relayed {
			w.joined = min(lowStreams, congestion.Begin(set.carries(), i.RTT, i.SndMSS, InitialStreams))
		}
	case ok && i.Protocol != transport.QUIC && !t.Fixed && !t.Relayed && tuner.priority() != congestion.High:
		n := congestion.Begin(set.carries(), i.RTT, i.SndMSS, InitialStreams)
		if set.Carries != nil && set.carries() == 0 { // the streams that bring news of the line come now
			n = congestion.FewStreams
		}
		if n < InitialStreams {
			w.joined, w.every = n, congestion.LeastEvery // the others shall not wait for much longer than a round trip
		}
	}
	w.fixed, w.least = t.Fixed, i.RTT
	tuner.run(ctx)
}

func (*sendingEnd) Drain(context.Context) {}

func (*sendingEnd) AtRisk() time.Duration { return 0 }

// receivingEnd is the Engine that receives.
type receivingEnd struct{ *transfer.Receiver }

// NewReceiver makes an Engine that writes below tree. control is the control stream, on which Hello
// has been exchanged, and r its reader.
func NewReceiver(control transport.Conn, r *wire.Reader, tree *access.Scope, opt transfer.ReceiverOptions) Engine {
	return &receivingEnd{transfer.NewReceiver(controlStream{control}, r, tree, opt)}
}

func (*receivingEnd) Sends() bool { return false }

func (e *receivingEnd) AddStream(d *DataStream) {
	d.AcknowledgeEach()
	e.Receiver.AddStream(d)
}

func (e *receivingEnd) Retire(streams ...*DataStream) {
	m := &wire.Retire{}
	for _, d := range streams {
		d.Retired.Store(true)
		m.Streams = append(m.Streams, d.ID)
	}
	e.Send(m)
}

func (*receivingEnd) Tune(context.Context, *StreamSet, Tuning) {}
