package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// drainWithin bounds the time in which sessions reach a checkpoint when the server ends.
	drainWithin = 8 * time.Second
	// sweepPartialsEvery is how often the server looks for abandoned partial files.
	sweepPartialsEvery = 24 * time.Hour
	// acceptPause is the wait after the kernel ran out of something, such as open files, which
	// sessions that end may give back.
	acceptPause = 50 * time.Millisecond
	// freeSpaceEvery is how often the free space of the shares is measured.
	freeSpaceEvery = 10 * time.Second
)

// errDraining ends sessions when the server ends.
var errDraining = wire.Errorf(wire.CodeDraining, "the server is shutting down")

// Serve serves clients until ctx is done. Then it makes running transfers durable, asks their
// clients to retry, and returns nil within 10 s.
func (s *Server) Serve(ctx context.Context) error {
	defer s.closeShares()
	var running sync.WaitGroup
	sessions, kill := context.WithCancel(context.Background())
	defer kill()
	running.Go(func() { s.keepSweeping(ctx) })
	running.Go(func() { s.measureSpace(ctx) })
	running.Go(func() { s.countShares(ctx) })
	running.Go(func() { s.watchCertificates(ctx) })
	s.mu.Lock()
	s.serving = true
	s.mu.Unlock()
	running.Go(func() { s.keepReviewing(sessions) })
	running.Go(func() { s.keepTellingSiblings(sessions) })
	running.Go(func() { s.serveDoors(ctx, sessions) })
	for _, u := range s.opt.Call {
		running.Go(func() { s.keepCalling(ctx, u) })
	}
	s.acceptAll(ctx, func(conn transport.Conn, slot *connlimit.Slot) {
		running.Go(func() { s.serveConn(sessions, conn, slot) })
	})
	s.drain(kill)
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Second): // anything that hangs in the kernel ends with the process
	}
	parting, cancel := context.WithTimeout(context.Background(), session.PartWithin)
	defer cancel()
	for _, l := range s.listen {
		l.Shutdown(parting)
	}
	return nil
}

// acceptAll accepts from all listeners, and from Call, until the listeners are closed, which they are
// when ctx is done.
func (s *Server) acceptAll(ctx context.Context, serve func(transport.Conn, *connlimit.Slot)) {
	defer context.AfterFunc(ctx, func() {
		for _, l := range s.listen {
			_ = l.Close()
		}
	})()
	var accepting sync.WaitGroup
	for _, l := range s.listen {
		accepting.Go(func() { s.accept(ctx, l.Accept, serve) })
	}
	var calling sync.WaitGroup
	calling.Go(func() {
		s.accept(ctx, func() (transport.Conn, error) {
			select {
			case conn := <-s.called:
				return conn, nil
			case <-s.deaf:
				return nil, net.ErrClosed
			}
		}, serve)
	})
	accepting.Wait()
	close(s.deaf)
	calling.Wait()
}

// accept takes connections until ctx is done, and hands on those that get a slot.
func (s *Server) accept(
	ctx context.Context, next func() (transport.Conn, error), serve func(transport.Conn, *connlimit.Slot),
) {
	acceptFrom(ctx, s.log, next, func(conn transport.Conn) {
		if slot := s.conns.Acquire(conn.RemoteAddr()); slot != nil {
			serve(conn, slot)
		} else {
			s.counters.refuse(refusedConnLimit)
			_ = conn.Close()
		}
	})
}

// Call connects to a client at addr ("host:port") that cannot reach the server. The connection
// begins with greeting, by which the client knows what it is for. The client then goes on as if it
// had connected, with Options.Connect. Call returns once Serve has the connection, and fails
// after Serve has stopped to take any. It is safe for concurrent use. A confined server needs Options.Calls.
func (s *Server) Call(ctx context.Context, addr string, greeting []byte) error {
	conn, err := transport.Call(ctx, s.listen[0], addr, greeting)
	if err != nil {
		return err
	}
	select {
	case s.called <- conn:
		return nil
	case <-s.deaf:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = conn.Close()
	return err
}

// acceptFrom hands on the connections of one listener until ctx is done.
func acceptFrom[C any](ctx context.Context, log *slog.Logger, accept func() (C, error), serve func(C)) {
	failing := false
	for {
		conn, err := accept()
		switch {
		case err == nil: // also while the server ends: the client must hear about it
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
			if !failing {
				log.Error("accept", "error", err)
			}
			failing = true
			if !session.Sleep(ctx, acceptPause) {
				return
			}
			continue
		}
		failing = false
		serve(conn)
	}
}

// keepSweeping removes the partial files of abandoned transfers, now and regularly until ctx is done.
func (s *Server) keepSweeping(ctx context.Context) {
	tick := time.NewTicker(sweepPartialsEvery)
	defer tick.Stop()
	for {
		s.sweepPartials(ctx, s.live.Load())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Server) sweepPartials(ctx context.Context, live *liveSettings) {
	for name, share := range live.shares {
		writable := share.Rights.Has(identity.Write) || share.Rights.Has(identity.Append)
		if !writable || live.partialAge < 0 {
			continue
		}
		n, err := share.folder.Sweep(ctx, live.partialAge)
		if n > 0 || err != nil && ctx.Err() == nil {
			s.log.Info("abandoned partial files", "share", name, "removed", n, "error", err)
		}
	}
}

// measureSpace measures the free space of the shares until ctx is done. A file system may hang, so
// nobody waits for it.
func (s *Server) measureSpace(ctx context.Context) {
	tick := time.NewTicker(freeSpaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, share := range s.sortedShares() {
				share.free.Store(share.folder.Free())
			}
		}
	}
}

// drain ends all sessions at a checkpoint, waits until their clients have been told, and kills the
// rest.
func (s *Server) drain(kill context.CancelFunc) {
	s.mu.Lock()
	s.draining = true
	sessions := make([]liveSession, 0, len(s.sessions))
	for _, x := range s.sessions {
		sessions = append(sessions, x)
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, x := range sessions {
		all.Go(func() {
			x.drain(ctx)
			x.stop(errDraining)
		})
	}
	all.Wait()
	s.waitUntil(ctx, func() bool { return len(s.sessions) == 0 })
	kill()
}

// waitUntil waits until done, which is called with mu held, or until ctx is done. It relies on
// cond.
func (s *Server) waitUntil(ctx context.Context, done func() bool) {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !done() && ctx.Err() == nil {
		s.cond.Wait()
	}
}
