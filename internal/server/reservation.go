package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/netip"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transfer"
)

// reservation is a session slot that an admitted client holds, whatever the session's intent.
type reservation struct {
	server *Server
	id     string // of the session, in logs
	peer   peerIdentity
	from   netip.Addr
	client *clientUse
	grants identity.Grants // when the session began
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc

	// Guarded by Server.mu.
	inUse   *liveShare      // the share that the session uses, nil for none
	used    identity.Rights // the rights on it that the session needs
	suspect bool            // the last review found that a right is missing
}

// clientUse is a client that has sessions. Server.mu guards it.
type clientUse struct {
	limit        rateLimit
	memory       *transfer.Account     // never changes
	files        *transfer.ClientFiles // never changes
	sessions     int
	extraStreams int // beyond the first of each session
}

// reserve takes a session slot for a peer. conn, unless nil, is closed when the peer loses a right
// that the session uses. The caller releases the slot, once.
func (s *Server) reserve(
	ctx context.Context, peer peerIdentity, from netip.Addr, conn io.Closer, grants identity.Grants,
) (*reservation, error) {
	r := &reservation{
		server: s, id: newSessionID(), peer: peer, from: from, grants: grants,
	}
	settings := s.live.Load()
	ownMax, err := settings.checkClient(&r.peer, r.from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.slots.take(peer.id, ownMax)
	}
	if err != nil {
		return nil, err
	}
	if r.client = s.clients[peer.id]; r.client == nil {
		r.client = &clientUse{
			memory: transfer.NewAccount(entryMemory/2, s.entryMemory), files: s.openFiles.Client(),
		}
		s.setRate(&r.client.limit, settings.rateOf(peer.id))
		s.clients[peer.id] = r.client
	}
	r.client.sessions++
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	s.reservations[r] = conn
	return r, nil
}

// checkClient refuses addresses that the client may not come from. It returns the client's own
// bound of sessions, 0 for none.
func (l *liveSettings) checkClient(
	peer *peerIdentity, from netip.Addr,
) (ownMax int, err error) {
	if err := checkAddress(from, l.allow, "use this server"); err != nil {
		return 0, err
	}
	a := l.admission(peer.id)
	if a == nil {
		return 0, nil
	}
	what := "be used with this client's " + peer.credential()
	return a.MaxSessions, checkAddress(from, a.Allow, what)
}

func (r *reservation) release() {
	r.cancel(nil)
	s := r.server
	s.mu.Lock()
	delete(s.reservations, r)
	s.slots.release(r.peer.id)
	if r.client.sessions--; r.client.sessions == 0 {
		delete(s.clients, r.peer.id)
	}
	var unused []*shareFolder
	if r.inUse != nil {
		if r.inUse.users--; r.inUse.users == 0 && r.inUse.retired {
			unused = append(unused, r.inUse.shareFolder)
		}
	}
	s.mu.Unlock()
	closeFolders(unused)
}

// flows returns the rate limiters of the session's data streams: they obey the limits of the
// server, the share if there is one, the client, and the session's own.
func (r *reservation) flows(own *rateLimit) (in, out *pace.Queue) {
	s, share := r.server, new(rateLimit)
	if r.inUse != nil {
		share = &r.inUse.limit
	}
	client := &r.client.limit
	return s.in.NewQueue(&s.total.in, &share.in, &client.in, &own.in),
		s.out.NewQueue(&s.total.out, &share.out, &client.out, &own.out)
}

// newSessionID names a session in logs.
func newSessionID() string {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
