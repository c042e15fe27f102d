package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	asked, ok := m.(*wire.Relay)
	if !ok {
		r.serveServer(ctx, conn, slot, m, log.With("server", id.Short()))
		return
	}
	log = log.With("client", id.Short())
	w := routeKey{id, asked.Target}
	err = r.authorize(conn, w, asked.Proof, log)
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
	far, done, err := r.connect(ctx, w.target, log)
	if err != nil {
		refuse(conn, err, log)
		return
	}
	defer done()
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

// serveServer serves a connection of a server that calls the relay.
func (r *Relay) serveServer(ctx context.Context, conn transport.Conn, slot *connlimit.Slot, m wire.Message, log *slog.Logger) {
	key := identity.PinOf(conn.PeerKey())
	if !r.calls(key) || !r.allows(conn) {
		refuse(conn, wire.Errorf(wire.CodeTrust, "no server of this relay has the key %s", key), log)
		return
	}
	slot.Authenticated()
	var err error
	if m, ok := m.(*wire.Meet); ok {
		err = r.meet(conn, key, m.ID)
	} else {
		err = r.await(ctx, conn, key, log)
	}
	if err != nil {
		log.Debug("a server's connection ends", "error", err)
	}
}

// calls reports whether a server of the list has this key and calls the relay.
func (r *Relay) calls(key identity.Pin) bool {
	for _, of := range r.targets {
		if of == key {
			return true
		}
	}
	return false
}

// allows reports whether the address of a peer may use the relay.
func (r *Relay) allows(conn transport.Conn) bool {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	contains := func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) }
	return len(r.opt.Allow) == 0 || slices.ContainsFunc(r.opt.Allow, contains)
}

// firstMessage completes the handshake of a client, or of a server that calls, and reads what it asks
// for: a Relay, Await or Meet.
func firstMessage(ctx context.Context, conn transport.Conn, slot *connlimit.Slot) (wire.Message, error) {
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
	var version uint64
	ok := true
	switch m := m.(type) {
	case *wire.Relay:
		version = m.Version
	case *wire.Await:
		version = m.Version
	case *wire.Meet:
		version = m.Version
	default:
		ok = false
	}
	switch {
	case conn.PeerKey() == nil:
		err = wire.Errorf(wire.CodeCertificate, "a relay knows clients by their keys, not by certificates")
	case !ok:
		err = wire.Errorf(wire.CodeProtocol, "this is a relay: name it by --via, and a server in the URL")
	case version != wire.Version:
		err = wire.Errorf(wire.CodeVersion, "the relay speaks protocol version %d, the client %d", wire.Version, version)
	}
	if err != nil {
		answer(conn, err)
	}
	return m, err
}

// authorize decides whether a client may use a route. A valid invitation enrols it.
func (r *Relay) authorize(conn transport.Conn, w routeKey, proof []byte, log *slog.Logger) error {
	if !r.allows(conn) {
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
	case !r.leads(w.target) || c.Grants.On(w.target) == 0: // the list is not for clients to guess
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

// stillMay reports whether the client of a route still may use it.
func (r *Relay) stillMay(w routeKey) bool {
	c, known, err := r.store.Client(w.client)
	return err != nil && !known || known && !c.Revoked && c.Grants.On(w.target) != 0
}

// leads reports whether a target is on the list.
func (r *Relay) leads(target string) bool {
	_, ok := r.targets[target]
	return ok
}

// connect connects to a server of the list, or has it connect. The client learns no more than that it
// failed. The caller calls done at the end.
func (r *Relay) connect(ctx context.Context, target string, log *slog.Logger) (far transport.Conn, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if key := r.targets[target]; key != "" {
		return r.call(ctx, target, key)
	}
	cfg := r.config()
	cfg.Permit = func(at netip.Addr) error { return permit(target, at) }
	far, err = transport.Connect(ctx, target, cfg)
	if err != nil {
		log.Warn("the server can't be reached", "target", target, "error", err)
		return nil, nil, wire.Errorf(wire.CodeBusy, "the relay can't connect to %s now", target)
	}
	return far, func() { _ = far.Close() }, nil
}

// permit returns an error unless a target may be at this address. Whoever answers for its name could
// name the relay's own host, whose other services listen for that host alone, or what answers on the
// link. A target that is an address is what the administrator has chosen, and so is localhost.
func permit(target string, at netip.Addr) error {
	host, _, _ := net.SplitHostPort(target) // ParseTarget made it
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return nil
	}
	at = at.Unmap()
	if at.IsLoopback() || at.IsUnspecified() || at.IsMulticast() || at.Is4() && at.IsLinkLocalUnicast() {
		return fmt.Errorf("the name of the server leads to %s, which is on the relay's own host or link: name the address by --to if it shall", at)
	}
	return nil
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
