package server

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// request is the session that an admitted client asks for.
type request struct {
	*reservation
	conn   *connection // the control stream
	hello  *wire.Hello
	log    *slog.Logger
	audit  *audit
	opened []*access.Scope // closed at the end of the session

	writing sync.Mutex // held while messages are written: what shows work comes in between
	worked  time.Duration
}

func (q *request) base() *request { return q }

// close closes what the session used of a share.
func (q *request) close() {
	for _, scope := range q.opened {
		if err := scope.Close(); err != nil {
			q.log.Warn("damage of snapshots", "error", err)
		}
	}
}

// stop ends the session for the given reason.
func (q *request) stop(why error) { q.cancel(why) }

// admit notes that the client may do what it asks for. Time limits are up to the session then.
func (q *request) admit() {
	q.conn.admit()
	_ = q.conn.SetDeadline(time.Time{})
}

// onePath returns the only path of the request, as the client wrote it.
func (q *request) onePath() (string, error) {
	if len(q.hello.Paths) != 1 {
		return "", wire.Errorf(wire.CodeProtocol, "this request needs exactly one path")
	}
	return q.hello.Paths[0], nil
}

// welcome is the answer to a request that is granted.
func (q *request) welcome(maxStreams int) *wire.Welcome {
	return &wire.Welcome{
		Agent: session.Agent, Host: q.server.host, MaxStreams: uint64(maxStreams),
	}
}

// entriesAtOnce is how many entries of a listing are sent in one message.
const entriesAtOnce = 128

// answer sends entries and other messages, and ends the session.
func (q *request) answer(entries []wire.Entry, others ...wire.Message) error {
	var out []byte
	first := uint64(0)
	for part := range slices.Chunk(entries, entriesAtOnce) {
		out = wire.Append(out, &wire.Entries{First: first, Entries: part})
		first += uint64(len(part))
	}
	for _, m := range others {
		out = wire.Append(out, m)
	}
	return q.finish(out, first)
}

// finish sends out and the end of a listing with so many entries, and ends the session.
func (q *request) finish(out []byte, entries uint64) error {
	out = wire.Append(out, q.welcome(session.MaxStreams))
	out = wire.Append(out, &wire.EndManifest{Count: entries})
	if err := q.writeMessages(out, admitWithin); err != nil {
		return err
	}
	_ = q.conn.CloseWrite()
	linger(q.conn)
	return nil
}

// send sends a message in the course of a session.
func (q *request) send(m wire.Message) error {
	return q.writeMessages(wire.Append(nil, m), session.VerifyPatience)
}

// writeMessages writes whole messages, see session.WritePatiently. Several goroutines may call it.
func (q *request) writeMessages(messages []byte, patience time.Duration) error {
	q.writing.Lock()
	defer q.writing.Unlock()
	return session.WritePatiently(q.conn, messages, patience)
}

// workShown is how often a client hears of us while it waits for an answer.
const workShown = 5 * time.Second

// showWork tells the client that the server works on its answer, until done is called. Pings would not do: a client
// does not wait long for a server that only answers those.
func (q *request) showWork() (done func()) {
	began := time.Now()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(workShown)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				worked := q.worked + now.Sub(began)
				err := q.send(&wire.Sample{Values: []wire.Value{{Name: session.WorkTime, Value: int64(worked)}}})
				if err != nil { // the client is gone
					q.stop(err)
					return
				}
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		q.worked += time.Since(began)
	}
}

// sourceRefusal tells a client why a path can't be read.
func sourceRefusal(err error, path, share string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.CodeNotFound, "%q does not exist in share %q", path, share)
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder):
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
}

// targetRefusal tells a client why a path can't be written.
func targetRefusal(err error) error {
	var known *wire.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder),
		errors.Is(err, disk.ErrExists), errors.Is(err, fs.ErrNotExist):
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	case errors.Is(err, disk.ErrNoSpace):
		return &wire.Error{Code: wire.CodeNoSpace, Text: err.Error()}
	}
	return &wire.Error{Code: wire.CodeTargetDisk, Text: err.Error()}
}
