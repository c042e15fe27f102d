package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// nothing is a rate at which no transfer gets anywhere, in bit/s. 0 would be no limit.
const nothing = 8

// lineClient holds a worker to its share of a line.
type lineClient struct {
	conn     *nats.Conn
	line     string
	worker   string // this process
	most     int64  // what it may use anyway, bit/s; 0 is any rate
	log      *slog.Logger
	limit    *fxfer.Throttle
	priority *fxfer.LivePriority
	weight   atomic.Int64  // of the present task, 0 without
	begins   chan struct{} // a task does

	share  share
	busy   time.Time // when there was a task last
	passed int64     // at the last question
	used   [3]int64  // between the last ones, bit/s
	reason string    // why there is nothing
}

// joinLine begins to hold the worker to its share of its line. The caller calls leave after the last task.
func (w *Worker) joinLine(conn *nats.Conn) (leave func()) {
	w.lineClient = &lineClient{
		conn: conn, line: w.Line, worker: fmt.Sprintf("%s-%s", w.Name, strings.ToLower(rand.Text()[:6])), most: w.Most, log: w.Log,
		limit: fxfer.NewThrottle(nothing), priority: fxfer.NewLivePriority(""), begins: make(chan struct{}, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.lineClient.run(ctx) }()
	return func() { cancel(); <-done }
}

// task says that a task of such a weight begins. The caller calls ends after it.
func (t *lineClient) task(weight int64) (ends func()) {
	t.weight.Store(weight)
	select {
	case t.begins <- struct{}{}:
	default:
	}
	return func() { t.weight.Store(0) }
}

// run keeps the share until ctx is done, and then leaves it to others. There must be no task then.
func (t *lineClient) run(ctx context.Context) {
	const look = 100 * time.Millisecond
	answers := make(chan *nats.Msg, 16)
	inbox := t.conn.NewInbox()
	to, err := t.conn.ChanSubscribe(inbox, answers)
	if err != nil { // the connection was closed
		return
	}
	defer to.Unsubscribe() //nolint:errcheck // the connection ends with it
	ticks := time.NewTicker(look)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			t.share.has, t.busy = 0, time.Time{}
			t.ask(time.Now(), "")
			_ = t.conn.FlushTimeout(time.Second) // or the lease ends
			return
		case <-t.begins:
			t.tick(time.Now(), inbox, true)
		case now := <-ticks.C:
			t.tick(now, inbox, false)
		case m := <-answers:
			t.take(time.Now(), m.Data, inbox)
		}
	}
}

// tick applies the end of a lease, and asks if that is due, or if a task begins without a share.
func (t *lineClient) tick(now time.Time, inbox string, begins bool) {
	if t.share.expire(now) {
		t.apply()
	}
	if begins || t.weight.Load() > 0 {
		t.busy = now
	}
	if t.share.due(now) || begins && t.share.has == 0 {
		t.ask(now, inbox)
	}
}

func (t *lineClient) ask(now time.Time, inbox string) {
	if since := now.Sub(t.share.asked); t.share.number > 0 && since > shareEvery/2 {
		passed := t.limit.Passed()
		copy(t.used[1:], t.used[:])
		t.used[0] = int64(float64(passed-t.passed) * 8 / since.Seconds())
		t.passed = passed
	}
	text, err := json.Marshal(&LineAsk{
		Version: Version, Line: t.line, Worker: t.worker, Number: t.share.ask(now), Has: t.share.has, Used: slices.Max(t.used[:]), Most: t.most,
		Busy: now.Sub(t.busy) < linger, Weight: t.weight.Load(),
	})
	if err == nil {
		err = t.conn.PublishRequest(askSubject, inbox, text)
	}
	if err != nil {
		t.log.Warn("can't ask for a share of the line", "line", t.line, "error", err)
	}
}

// take applies an answer.
func (t *lineClient) take(now time.Time, data []byte, inbox string) {
	a, err := decode[LineAnswer](data)
	if err != nil { // also when no controller listens
		return
	}
	if a.Reason != t.reason && a.Reason != "" {
		t.log.Warn("no share of the line", "line", t.line, "reason", a.Reason)
	}
	t.reason = a.Reason
	less := t.share.take(now, a)
	t.apply()
	t.priority.Set(a.Priority)
	if less {
		t.ask(now, inbox)
	}
}

func (t *lineClient) apply() { t.limit.Set(max(nothing, t.share.has)) }

// share is what a worker knows of its part of a line.
type share struct {
	has     int64     // what it applies, bit/s
	granted time.Time // when it asked for that
	asked   time.Time // when it asked last
	number  uint64    // of that question
	waits   bool      // for the answer
}

// expire applies nothing once the lease has ended. It reports whether it did.
func (s *share) expire(now time.Time) bool {
	if s.has == 0 || passed(s.granted, now) <= shareLease {
		return false
	}
	s.has = 0
	return true
}

// due reports whether to ask.
func (s *share) due(now time.Time) bool {
	since := passed(s.asked, now)
	return s.number == 0 || since >= answerWithin || since >= shareEvery && !s.waits
}

// ask returns the next question's number.
func (s *share) ask(now time.Time) uint64 {
	s.asked, s.waits = now, true
	s.number++
	return s.number
}

// take applies an answer, unless it comes too late. If there is less now, the worker should say so at
// once: somebody waits for it.
func (s *share) take(now time.Time, a *LineAnswer) (less bool) {
	if a.Number != s.number || passed(s.asked, now) > shareLease {
		return false
	}
	s.waits = false
	less = a.Rate < s.has
	s.has, s.granted = min(max(0, a.Rate), math.MaxInt64/8), s.asked
	return less
}
