package session

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
)

// InitialStreams is the number of data streams that a session opens at once. A short transfer is all
// slow start, and each stream adds its own initial window.
const InitialStreams = 16

// Tuner runs at the sending end. It decides how many streams a session has, and how many of them it
// uses, by measurements of the kernel and the receiver's acknowledgements. It gives up a stream that
// stands still while others move.
type Tuner struct {
	Sender *transfer.Sender
	Set    *StreamSet
	Tuning
}

const (
	// TuneEvery is the time between two measurements of the streams.
	TuneEvery = 250 * time.Millisecond
	// nearEvery is the time between two measurements until there is a stream. It bounds how long a short
	// path has too many.
	nearEvery = 10 * time.Millisecond
)

// Run works until ctx is done.
func (t *Tuner) Run(ctx context.Context) {
	tick := time.NewTicker(nearEvery)
	defer tick.Stop()
	r := tuning{Tuner: t, silent: make(silences), moved: make(movements)}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			infos := t.Set.infos()
			o := observe(now, t.Sender.Stats().Written, infos)
			if o.Streams > 0 {
				tick.Reset(TuneEvery)
			}
			if !r.dropDead(now, &o, infos) {
				r.resize(o)
			}
		}
	}
}

// tuning is the state of Tuner.Run.
type tuning struct {
	*Tuner
	tcp    growth
	quic   linkGrowth
	silent silences
	moved  movements
}

// dropDead gives up streams that are dead, and asks for others. It tells whether there were any.
func (r *tuning) dropDead(now time.Time, o *Observation, infos map[uint64]transport.Info) bool {
	r.moved.update(now, infos, r.Set.waiting())
	dead := stalled(now, o.MinRTT, r.moved.apply(r.Sender.Streams()))
	if len(dead) == 0 {
		dead = r.silent.update(now, infos)
	}
	if len(dead) == 0 {
		return false
	}
	for _, id := range dead {
		r.Sender.Drop(id)
	}
	r.Want(max(1, o.Streams), dead)
	return true
}

// resize uses as many streams as the path needs, and asks for more if there are fewer.
func (r *tuning) resize(o Observation) {
	n := r.Most()
	switch {
	case r.Fixed:
	case o.quic:
		n = min(n, r.quic.next(o, n))
	default:
		n = min(n, r.tcp.next(o, n))
	}
	r.Sender.SetActive(n)
	if n > o.Streams {
		r.Want(n, nil)
	}
}

// BufferPayload is the share of payload in a send buffer that is filled with large units. The kernel
// counts its own overhead for the rest (skb->truesize in include/linux/skbuff.h).
const BufferPayload = 0.66

// Observation is one measurement of a session at its sending end.
type Observation struct {
	at      time.Time
	written int64 // payload acknowledged by the receiver so far, bytes
	Streams int
	MinRTT  time.Duration
	rtt     time.Duration // smoothed, mean of the streams
	capped  float64       // share of the busy time in which a window was the limit, 0 to 1
	retrans uint64        // segments sent again so far
	sent    uint64        // segments sent so far
	quic    bool
	Window  int // most payload in flight that one stream's send buffer allows, bytes; 0 is unknown
}

func observe(now time.Time, written int64, infos map[uint64]transport.Info) Observation {
	o := Observation{at: now, written: written, Streams: len(infos)}
	var busy, limited time.Duration
	for _, i := range infos {
		if m := i.MinRTT; m > 0 && (o.MinRTT == 0 || m < o.MinRTT) {
			o.MinRTT = m
		}
		o.rtt += i.RTT / time.Duration(len(infos))
		o.quic = o.quic || i.Protocol == transport.QUIC
		busy += i.BusyTime
		limited += i.RwndLimited + i.SndbufLimited
		o.retrans += i.RetransSegs
		o.sent += i.DataSegs
		o.Window = max(o.Window, int(float64(i.SndBuf)*BufferPayload))
	}
	if busy > 0 {
		o.capped = limited.Seconds() / busy.Seconds()
	}
	return o
}
