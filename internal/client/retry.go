package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// intent is what a transfer is for: push or pull.
type intent interface {
	// sends reports whether this host sends the files.
	sends() bool
	// repeatable reports whether another session can start the transfer again.
	repeatable() bool
	// resumes reports whether a later call goes on where this one ended.
	resumes() bool
	// named returns what the user named on this host.
	named() []string
	// absent reports whether the target has nothing of what was asked for, as far as this host knows.
	absent(*wire.Hello) bool
	// local returns where an entry of the manifest is on this host; the tree is nil if it is nowhere.
	local(entry string) (*access.Scope, string)
	// where returns the path of an entry on this host as the user would write it; "" if unknown.
	where(entry string) string
	// folder returns the folder to receive into; "" if there is none.
	folder() string
	// out returns what paces what the data streams of a session send. limit is that of this host.
	out(limit *Throttle) *pace.Queue
	// engine makes this host's end of the transfer, on a control stream that is connected.
	engine(ctx context.Context, s *transferSession, control transport.Conn, r *wire.Reader) (session.Engine, error)
}

// job is one call of Send, SendStream, Get or GetTo. It runs as many sessions as that takes. Only
// the goroutine of the call uses it.
type job struct {
	*Client
	call   *Transfer
	intent intent
	url    session.URL
	hello  wire.Hello
	server string // host and port

	snapshot string // name of the snapshot to make, "" for none

	throttle *Throttle // of what this host sends, or asks a server to send
	priority *priority
	tracker  *session.Tracker
	manifest *manifest // nil for none
	stats    sessionStats

	fresh    bool   // the next session is the first that was ever tried
	mtu      int    // bound of packets for the next session, 0 for none
	via      choice // transport of the next session
	switched bool   // via was changed since a session failed with the one before

	tries   int       // in a row that got nowhere
	working time.Time // end of the last session that got somewhere
	last    [16]byte  // name of the last session
}

// transfer runs sessions until one succeeds or there is no use in another.
func (c *Client) transfer(ctx context.Context, u session.URL, hello wire.Hello, in intent, call *Transfer) (*session.Report, error) {
	if err := needShare(u); err != nil {
		return nil, err
	}
	snapshot := hello.Snapshot
	if hello.Intent != wire.Store { // it is no concern of the server
		hello.Snapshot = ""
	}
	hello.Target = call.Target.wire()
	if call.Target.Snapshot != "" {
		hello.Target.Delete = true // what an interrupted session left
	}
	if err := session.CheckHello(&hello); err != nil {
		return nil, err
	}
	j := &job{Client: c, call: call, intent: in, url: u, hello: hello, server: serverOf(u), snapshot: snapshot, throttle: c.throttle(call), priority: c.priority(call)}
	if err := j.follow(); err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	if j.manifest != nil {
		defer j.manifest.discard()
	}
	j.fresh = j.isFresh()
	j.via, j.working = c.firstChoice(j.server), time.Now()
	return j.run(ctx)
}

// isFresh reports whether the target probably has nothing yet of what is asked for.
func (j *job) isFresh() bool {
	t := &j.call.Target
	return !t.DryRun && !t.Checksum && t.Snapshot == "" && j.hello.Intent != wire.Early && j.hello.Intent != wire.Ranges && j.hello.Intent != wire.Copy &&
		(j.opt.Fresh || j.firstTime(j.server, &j.hello, j.intent.named())) && j.intent.absent(&j.hello)
}

// follow prepares what collects the outcomes of entries.
func (j *job) follow() (err error) {
	opt := session.TrackerOptions{DryRun: j.call.Target.DryRun, File: j.call.File}
	if j.call.Manifest != "" && !j.call.Target.DryRun {
		if j.manifest, err = newManifest(j.call.Manifest, j.intent.local); err != nil {
			return err
		}
		j.manifest.exact = j.intent.sends()
		opt.Keep = j.manifest
	}
	j.tracker = session.NewTracker(opt)
	return nil
}

func (j *job) run(ctx context.Context) (*session.Report, error) {
	for first := true; ; first = false {
		if !first {
			if err := j.renew(ctx); err != nil {
				if !j.worthAnother(ctx, err) {
					return j.outcome(ctx, err)
				}
				j.wait(ctx, err)
				j.tries++
				continue
			}
		}
		s := j.session()
		before, began := j.moved(), time.Now()
		err := s.run(ctx)
		j.collect(s)
		adapted := j.adapt(ctx, s, err, time.Since(began))
		if !adapted {
			if err = j.settle(ctx, s, err); madeProgress(j.moved()-before, s.heard.bytes.Load(), time.Since(began)) {
				j.working, j.tries = time.Now(), 0
			}
			if err == nil {
				err = j.finishManifest(ctx)
			}
			switch {
			case j.otherWay(ctx, err):
				j.notice("%v: going on by another way", describe(ctx, err, j.server))
			case j.continues(ctx, err):
				j.notice("%v: resuming", describe(ctx, err, j.server))
			case j.worthAnother(ctx, err):
				j.wait(ctx, err)
			default:
				return j.outcome(ctx, err)
			}
		}
		j.tries++
		j.tracker.Restart(!adapted)
	}
}

// renew takes what is new about a server that may have been started anew.
func (j *job) renew(ctx context.Context) error {
	if j.opt.Renew == nil {
		return nil
	}
	opt, server := j.opt, j.server
	host, port, err := opt.Renew(ctx, &opt)
	if err != nil {
		return err
	}
	if j.Client, err = New(opt); err != nil {
		return err
	}
	j.url.Host, j.url.Port = host, port
	if j.server = serverOf(j.url); j.server != server {
		j.via, j.switched = j.firstChoice(j.server), false
	}
	return nil
}

// session prepares the next session.
func (j *job) session() *transferSession {
	s := newTransferSession(j)
	s.hello.Fresh, s.hello.Replaces = j.fresh, j.last
	s.hello.Priority, s.hello.RateLimit = j.priority.wish(), j.throttle.Rate()
	j.fresh = false
	return s
}

// moved is the payload at the target so far, in bytes.
func (j *job) moved() int64 { return j.tracker.Moved() }

// collect keeps what a session that ended leaves to the next one and to the report.
func (j *job) collect(s *transferSession) {
	j.last = s.hello.Session
	j.stats.merge(s.stats)
	if s.hole != nil && j.stats.swallowed == nil {
		j.stats.swallowed, j.stats.connecting = s.hole, s.holeTime
	}
	j.via = s.chosen()
}

// adapt decides whether the next session shall differ from s, which took that long and ended with
// err: in its transport, or in the size of its packets. Each is tried once, and at once.
func (j *job) adapt(ctx context.Context, s *transferSession, err error, lasted time.Duration) bool {
	var hole *transport.BlackHoleError
	if to := s.instead(ctx, err); to.transport != "" && !j.switched {
		j.via, j.switched, j.fresh = to, true, s.fresh
		if errors.As(err, &hole) {
			j.stats.swallowed, j.stats.connecting = hole, lasted
		}
		return true
	}
	readAgain := !s.opened.Load() || j.intent.repeatable()
	if j.mtu == 0 && errors.As(err, &hole) && ctx.Err() == nil && readAgain {
		j.mtu, j.stats.swallowed, j.stats.connecting = transport.SafeMTU, hole, lasted
		j.noticeHole(hole, j.server)
		return true
	}
	return false
}

// settle returns the error that a session really ended with, and remembers what a successful one
// has found out about the path.
func (j *job) settle(ctx context.Context, s *transferSession, err error) error {
	var coded *wire.Error
	if !j.intent.sends() && errors.As(err, &coded) && coded.Remote && coded.Code == wire.CodeExists {
		return wire.Errorf(wire.CodeProtocol, "the server says that a snapshot of this host exists: %s", coded.Text)
	}
	if err != nil && j.tracker.Reconnects() > 0 && errors.Is(describe(ctx, err, j.server), session.ErrSnapshotExists) {
		err = nil // the session before made the snapshot, but its answer was lost
		j.tracker.SetFailed(j.lackedBy(ctx))
	}
	if err != nil {
		return err
	}
	if j.opt.Streams == 0 {
		j.learn(j.pathName(j.server, s.stats.carrier), s.stats.streams)
	}
	j.keepChoice(j.server, s.stats.carrier)
	return nil
}

// longSession is the duration from which a session counts as progress although not a byte was
// written: comparing a tree takes long.
const longSession = 30 * time.Second

// madeProgress reports whether a session that wrote and heard so many bytes was in contact with the
// server, so that the time for further tries starts again.
func madeProgress(written, heard int64, lasted time.Duration) bool {
	return written > 0 || heard > 0 && lasted >= longSession
}

// finishManifest completes the manifest of a transfer that succeeded.
func (j *job) finishManifest(ctx context.Context) error {
	if j.manifest == nil {
		return nil
	}
	if n := j.manifest.unread(); n > 0 {
		j.notice("reading %d files for the manifest", n)
	}
	err := j.manifest.finish(ctx, j.tracker.Fail)
	if err != nil && ctx.Err() == nil {
		err = &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	return err
}

// continues reports whether another session shall take over at once from one that ended with err: the
// server answers on new connections, so there is nothing to wait for, and RetryFor does not matter.
// The kernel of a path that was down asks again only after a third of that time, in its own rhythm.
// A session that got nowhere has no successor, so that this ends.
func (j *job) continues(ctx context.Context, err error) bool {
	return errors.Is(err, errDead) && ctx.Err() == nil && j.intent.repeatable() && j.tries == 0
}

// worthAnother reports whether another session may succeed after one that ended with err.
func (j *job) worthAnother(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && j.intent.repeatable() && temporary(err) &&
		time.Since(j.working) < j.opt.RetryFor
}

// wait pauses before the next session: for about a second at first, then longer.
func (j *job) wait(ctx context.Context, err error) {
	pause := min(time.Second<<min(j.tries, 4), 15*time.Second)
	pause = pause/2 + rand.N(pause) //nolint:gosec // jitter
	left := j.opt.RetryFor - time.Since(j.working)
	j.notice("%v; trying again in %.0f s, for another %v", describe(ctx, err, j.server), pause.Seconds(), left.Round(time.Second))
	began := time.Now()
	session.Sleep(ctx, pause)
	j.stats.append(diagnose.Cell{Start: began.Sub(j.tracker.Start), Length: time.Since(began), Limiter: diagnose.Outage})
}

// noticeHole tells the user about a black hole, and how it is avoided.
func (c *Client) noticeHole(hole *transport.BlackHoleError, server string) {
	c.notice("packets of %d bytes vanish on the way %s, smaller ones arrive: going on with %d bytes",
		hole.Size(), hole.Way(server), transport.SafeMTU)
}
