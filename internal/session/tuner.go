package session

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
)

// InitialStreams is the number of data streams that a session opens at once. A short transfer is
// all slow start, and each stream adds its own initial window.
const InitialStreams = 16

// tuner runs at the sending end. It decides how many streams a session has, and how many of them it
// uses, by measurements of the kernel and the receiver's acknowledgements. It gives up a stream
// that stands still while others move. One goroutine uses it.
type tuner struct {
	sender *transfer.Sender
	set    *StreamSet
	Tuning

	window *window
	active int // streams in use
	free   int // of them alone, while the window says so; 0 is all

	tcp    growth
	quic   linkGrowth
	silent silences
	moved  movements
}

// RelayedStreams is the number of streams that a transfer through a relay begins with. How many the
// leg beyond it needs is not known here, and few would carry little where packets are lost there.
const RelayedStreams = 2 * InitialStreams

const (
	// TuneEvery is the time between two measurements of the streams.
	TuneEvery = 250 * time.Millisecond
	// nearEvery is the time between two measurements until there is a stream. It bounds how long a
	// short path has too many.
	nearEvery = 10 * time.Millisecond
)

// run works until ctx is done.
func (t *tuner) run(ctx context.Context) {
	tick := time.NewTicker(nearEvery)
	defer tick.Stop()
	pacing := time.NewTicker(t.window.every)
	defer pacing.Stop()
	t.free = t.window.free
	t.activate()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pacing.C:
			if t.Siblings != nil {
				t.Siblings.tell(t.window.control)
			}
			joined := t.window.joined
			if free := t.window.step(time.Now(), t.priority(), t.sender.Ending()); free != t.free || t.window.joined != joined {
				t.free = free
				t.activate()
			}
			pacing.Reset(t.window.every)
		case now := <-tick.C:
			infos := t.set.infos()
			o := t.observe(now, t.sender.Stats().Written, infos)
			if o.streams > 0 {
				tick.Reset(TuneEvery)
			}
			if !t.dropDead(now, &o, infos) {
				t.resize(o)
			}
		}
	}
}

// dropDead gives up streams that are dead, and asks for others. It reports whether there were any.
func (t *tuner) dropDead(now time.Time, o *observation, infos map[uint64]transport.Info) bool {
	t.moved.update(now, infos, t.set.waiting())
	dead := stalled(now, o.minRTT, t.moved.apply(t.sender.Streams()))
	if len(dead) == 0 {
		dead = t.silent.update(now, infos)
	}
	if len(dead) == 0 {
		return false
	}
	for _, id := range dead {
		t.sender.Drop(id)
	}
	t.Want(max(1, o.streams), dead)
	return true
}

// resize uses as many streams as the path needs, and asks for more if there are fewer.
func (t *tuner) resize(o observation) {
	t.active = t.needed(o)
	t.activate()
	if t.active > o.streams {
		t.Want(t.active, nil)
	}
}

// needed returns the number of streams that the path needs.
func (t *tuner) needed(o observation) int {
	n := t.Most()
	switch {
	case t.Fixed:
	case o.quic:
		n = min(n, t.quic.next(o, n))
	default:
		if n = min(n, t.tcp.next(o, n)); t.tcp.tight {
			t.window.help(o.at)
		}
	}
	return n
}

func (t *tuner) priority() congestion.Priority {
	if t.Priority == nil {
		return congestion.Normal
	}
	return t.Priority()
}

// activate lets the streams that are used claim blocks.
func (t *tuner) activate() { t.sender.SetActive(t.using()) }

// using returns how many streams are used, 0 is all.
func (t *tuner) using() int {
	joined := t.window.joined
	switch {
	case t.free > 0:
		return t.free
	case joined > 0 && (t.active == 0 || joined < t.active):
		return joined
	}
	return t.active
}

// bufferPayload is the share of payload in a send buffer that is filled with large units. The
// kernel counts its own overhead for the rest (skb->truesize in include/linux/skbuff.h).
const bufferPayload = 0.66

// observation is one measurement of a session at its sending end.
type observation struct {
	at      time.Time
	written int64 // payload acknowledged by the receiver so far, bytes
	streams int
	minRTT  time.Duration
	rtt     time.Duration // smoothed, mean of the streams in use
	capped  float64       // share of the busy time in which a window was the limit, 0 to 1
	retrans uint64        // segments sent again so far
	sent    uint64        // segments sent so far
	quic    bool
	queued  time.Time // when the streams made a queue last, as far as is known
	behind  bool      // the streams do not send at the rate that the path may carry
	rate    float64   // that streams that are not quick may send in the steady state, bytes/s; 0 is none
	joined  int       // streams that may send on a slow line; 0 is all
	relayed bool      // the streams end at a relay
	windows []int     // their congestion windows, bytes, in the order in which streams are used
	cwnd    int       // their congestion windows together, bytes
	window  int       // most payload in flight that one stream's send buffer allows, bytes; 0 is unknown
	peer    int       // largest receive window of a stream, bytes
}

// observe measures the streams. The window of the tuner adds what it knows of the path.
func (t *tuner) observe(now time.Time, written int64, infos map[uint64]transport.Info) observation {
	o := observe(now, written, infos)
	o.relayed = t.Relayed
	o.behind, o.rate, o.joined, o.queued = t.window.behind, t.window.sends, t.window.joined, t.window.queued
	return o
}

func observe(now time.Time, written int64, infos map[uint64]transport.Info) observation {
	o := observation{at: now, written: written, streams: len(infos)}
	var busy, limited, rtts, idle time.Duration
	sending := 0
	for _, id := range slices.Sorted(maps.Keys(infos)) {
		i := infos[id]
		if m := i.MinRTT; m > 0 && (o.minRTT == 0 || m < o.minRTT) {
			o.minRTT = m
		}
		if i.InFlight > 0 {
			sending++
			rtts += i.RTT
			o.cwnd += i.Cwnd
			o.windows = append(o.windows, i.Cwnd)
		} else {
			idle += i.RTT
		}
		o.quic = o.quic || i.Protocol == transport.QUIC
		busy += i.BusyTime
		limited += i.RwndLimited + i.SndbufLimited
		o.retrans += i.RetransSegs
		o.sent += i.DataSegs
		o.window = max(o.window, int(float64(i.SndBuf)*bufferPayload))
		o.peer = max(o.peer, i.SndWnd)
	}
	switch {
	case sending > 0: // what the others measured is old
		o.rtt = rtts / time.Duration(sending)
	case len(infos) > 0:
		o.rtt = idle / time.Duration(len(infos))
	}
	if busy > 0 {
		o.capped = limited.Seconds() / busy.Seconds()
	}
	return o
}
