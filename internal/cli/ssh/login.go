package ssh

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// login is an ssh to the host of a command, with a server behind it, and after the end of these
// another one.
type login struct {
	flags   *Flags
	targets []target // on one host
	write   bool
	asked   fxfer.Options // of the user
	errs    io.Writer     // of ssh

	*started           // the present one
	answer   *Answer   // of the server
	server   fxfer.URL // of its share
}

// begin starts a server for the targets, and returns their URLs.
func (l *login) begin(ctx context.Context, opt *fxfer.Options) (urls []string, err error) {
	if err := l.start(ctx, opt); err != nil {
		return nil, err
	}
	for i := range l.targets {
		text := l.targets[i].urlOf(l.server, l.answer.Paths[i])
		if err := l.targets[i].check(text, l.write); err != nil {
			_ = l.close(endWithin)
			return nil, err
		}
		urls = append(urls, text)
	}
	return urls, nil
}

// renew is fxfer.Options.Renew: if ssh has ended, it starts another one, with a server for the same
// folder. Its port, its key and the way to it may differ.
func (l *login) renew(ctx context.Context, opt *fxfer.Options) (host string, port int, err error) {
	if !l.hasEnded() {
		return l.server.Host, l.server.Port, nil
	}
	_ = l.close(endWithin)
	fmt.Fprintf(l.flags.notes, "fxfer: note: the connection of ssh to %s has ended: starting another one\n", l.targets[0].host)
	before := l.answer
	opt.Transport, opt.MaxStreams, opt.Connect = l.asked.Transport, l.asked.MaxStreams, nil
	if err := l.start(ctx, opt); err != nil {
		return "", 0, err
	}
	if l.answer.Share != before.Share || !slices.Equal(l.answer.Paths, before.Paths) {
		return "", 0, &fxfer.Error{Kind: fxfer.KindOther, Err: errors.New("the folder over there is another one now")}
	}
	return l.server.Host, l.server.Port, nil
}

// start starts ssh and a server, and completes opt for the route to it.
func (l *login) start(ctx context.Context, opt *fxfer.Options) error {
	f, t := l.flags, &l.targets[0]
	q := &Request{Protocol: fxfer.ProtocolVersion, Write: l.write, Ports: f.ports, Crypto: opt.StandardCrypto}
	for i := range l.targets {
		q.Paths = append(q.Paths, l.targets[i].asked())
	}
	if l.answer != nil { // what was made since must not change the share
		q.Dir, q.Share = l.answer.Dir, l.answer.Share
	}
	// A host that names another server of this user's in its answer must gain nothing: that one does
	// not know the key.
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("make a key for this use: %w", err)
	}
	opt.Key, q.Client = key, string(identity.PinOfPrivate(key))
	beginning, cancel := context.WithCancel(ctx)
	defer cancel()
	names := make(chan string, 1)
	go func() { names <- f.hostName(beginning, t) }()
	s, a, err := f.start(ctx, t, q, l.errs)
	if err != nil {
		cancel()
		<-names
		return err
	}
	go func() {
		select {
		case <-s.ended:
			cancel()
		case <-beginning.Done():
		}
	}()
	opt.Pin, opt.Fresh = a.Pin, a.Empty || !l.write // where it reads, the client looks at its own disk
	server := fxfer.URL{Host: <-names, Port: a.Port, Share: a.Share}
	server, err = f.findServer(beginning, s, a, server, t, opt, l.errs)
	if err != nil {
		if beginning.Err() != nil && ctx.Err() == nil {
			err = s.explain(t)
		}
		_ = s.close(endWithin)
		return err
	}
	l.started, l.answer, l.server = s, a, server
	return nil
}

// findServer completes the URL of a server, and opt for the route to it.
func (f *Flags) findServer(ctx context.Context, s *started, a *Answer, server fxfer.URL, t *target, opt *fxfer.Options, errs io.Writer) (fxfer.URL, error) {
	route, err := f.reach(ctx, s, a, server, opt)
	if !route.called {
		s.calls.close()
	}
	switch {
	case err != nil:
	case route.called:
		opt.Connect = s.calls.connect
		fmt.Fprintf(f.notes, "fxfer: note: port %d of %s did not answer within %v, so %s connects to port %d here\n", server.Port, t.name(), callAfter, t.name(), s.calls.port())
	case route.host != "":
		server.Host = route.host
	default:
		if err := s.calls.failed(); err != nil {
			fmt.Fprintf(f.notes, "fxfer: note: %s can't connect to this host: %v\n", t.name(), err)
		}
		return f.reachInside(ctx, s, server, t, opt, errs)
	}
	return server, err
}
