package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// admitWithin is the time for a client's handshake and first message.
	admitWithin = 20 * time.Second
	// connectWithin is how long a server may take to accept a connection. It is less than clients
	// wait for an answer.
	connectWithin = 15 * time.Second
	// answerWithin is how long a client may take to read an answer.
	answerWithin = 10 * time.Second
)

// serveConn serves one connection of a client until it ends.
func (r *Relay) serveConn(ctx context.Context, conn transport.Conn, slot *connlimit.Slot) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	log := r.log.With("peer", conn.RemoteAddr().String())
	m, err := firstMessage(ctx, conn, slot)
	if err != nil {
		log.Debug("no client", "error", err)
		return
	}
	id := identity.Principal(identity.PinOf(conn.PeerKey()))
	log = log.With("client", id.Short())
	w := way{id, m.Target}
	err = r.authorize(conn, w, m.Proof, log)
	var x *route
	if err == nil {
		slot.Authenticated()
		x, err = r.enter(ctx, w)
	}
	if err != nil {
		refuse(conn, err, log)
		return
	}
	defer r.leave(x)
	far, err := r.connect(ctx, w.target, log)
	if err != nil {
		refuse(conn, err, log)
		return
	}
	defer far.Close()
	_ = conn.SetDeadline(time.Now().Add(answerWithin))
	if _, err := conn.Write(wire.Append(nil, &wire.Relayed{})); err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if !stop() || transport.Plain(conn) != nil {
		return
	}
	x.join(r, conn, far)
}

// firstMessage completes the handshake of a client and reads what it asks for.
func firstMessage(ctx context.Context, conn transport.Conn, slot *connlimit.Slot) (*wire.Relay, error) {
	ctx, cancel := context.WithTimeout(ctx, admitWithin)
	defer cancel()
	if err := slot.Wait(ctx); err != nil {
		return nil, err
	}
	if err := conn.Handshake(ctx); err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	m, err := wire.NewReader(conn, wire.MaxFirstMessage).Next()
	if err != nil {
		return nil, err
	}
	asked, ok := m.(*wire.Relay)
	switch {
	case conn.PeerKey() == nil:
		err = wire.Errorf(wire.CodeCertificate, "a relay knows clients by their keys, not by certificates")
	case !ok:
		err = wire.Errorf(wire.CodeProtocol, "this is a relay: name it by --via, and a server in the URL")
	case asked.Version != wire.Version:
		err = wire.Errorf(wire.CodeVersion, "the relay speaks protocol version %d, the client %d", wire.Version, asked.Version)
	}
	if err != nil {
		answer(conn, err)
	}
	return asked, err
}

// authorize decides whether a client may go a way. A valid invitation enrols it.
func (r *Relay) authorize(conn transport.Conn, w way, proof []byte, log *slog.Logger) error {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	contains := func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) }
	if len(r.opt.Allow) > 0 && !slices.ContainsFunc(r.opt.Allow, contains) {
		return wire.Errorf(wire.CodeRight, "this address may not use the relay")
	}
	if len(proof) == 32 {
		if err := r.redeem(conn, w.client, [32]byte(proof), log); err != nil {
			return err
		}
	}
	c, known, err := r.store.Client(w.client)
	if err != nil {
		log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	switch {
	case c.Revoked:
		return wire.Errorf(wire.CodeTrust, "%s", identity.ErrRevoked)
	case !known:
		return wire.Errorf(wire.CodeTrust, "this client's key is not admitted")
	case !r.targets[w.target] || c.Grants.On(w.target) == 0: // the list is not for clients to guess
		return wire.Errorf(wire.CodeRight, "the relay does not lead this client to %s", w.target)
	}
	return nil
}

// redeem enrols a client that proves to have an invitation. One that is spent does not matter to a
// client that is known: all of its connections have the proof.
func (r *Relay) redeem(conn transport.Conn, id identity.Principal, proof [32]byte, log *slog.Logger) error {
	r.enrolling.Lock()
	defer r.enrolling.Unlock()
	old, known, _ := r.store.Client(id)
	if old.Revoked { // the invitation stays good for others
		return wire.Errorf(wire.CodeTrust, "%s", identity.ErrRevoked)
	}
	exported, err := conn.Exporter(session.ExporterLabel, 32)
	if err != nil {
		return err
	}
	invited, comment, err := r.store.Redeem(proof, exported)
	switch {
	case err != nil && known:
		return nil
	case err != nil:
		return &wire.Error{Code: wire.CodeTrust, Text: err.Error()}
	}
	comment = cmp.Or(comment, fmt.Sprintf("invited %s from %s", time.Now().UTC().Format(time.RFC3339), conn.RemoteAddr()))
	if err := r.store.Enrol(id, invited, comment); err != nil {
		log.Error("enrol", "error", err)
		return wire.Errorf(wire.CodeOther, "the relay could not enrol this client; its invitation is spent")
	}
	log.Info("enrolled", "grants", invited.String())
	return nil
}

// stillMay tells whether a client that goes a way still may.
func (r *Relay) stillMay(w way) bool {
	c, known, err := r.store.Client(w.client)
	return err != nil && !known || known && !c.Revoked && c.Grants.On(w.target) != 0
}

// connect connects to a server of the list. The client learns no more than that it failed.
func (r *Relay) connect(ctx context.Context, target string, log *slog.Logger) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	far, err := transport.Connect(ctx, target, r.config())
	if err != nil {
		log.Warn("the server can't be reached", "target", target, "error", err)
		return nil, wire.Errorf(wire.CodeBusy, "the relay can't connect to %s now", target)
	}
	return far, nil
}

// refuse tells the client why it is refused, and the log.
func refuse(conn transport.Conn, err error, log *slog.Logger) {
	log.Info("refused", "reason", err)
	answer(conn, err)
}

func answer(conn transport.Conn, err error) {
	why := wire.Errorf(wire.CodeOther, "the relay failed")
	_ = errors.As(err, &why)
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(wire.Append(nil, &wire.Refuse{Code: why.Code, Text: why.Text})); err != nil {
		return
	}
	_ = conn.CloseWrite()
	// Closing a connection with unread data would reset it, and the client might not see why.
	_, _ = conn.Read(make([]byte, 512))
}
