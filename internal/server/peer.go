package server

import (
	"cmp"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// peerIdentity is the client at the other end of a connection, as its handshake has proven it.
type peerIdentity struct {
	id      identity.Principal   // "" if nothing is proven
	refusal *wire.Error          // why nothing is proven, else nil
	label   string               // for logs; begins with "unproven" where nothing is proven
	by      *identity.Capability // that it has signed for who is there; nil if it is there itself

	// The fields below are set if CAs vouch for the client.
	chain      []*x509.Certificate // as the client presented it
	acceptedAt time.Time
	vouchers   *identity.Vouchers // who vouched last; in a reservation guarded by Server.mu
}

// credential names what proves the identity.
func (p *peerIdentity) credential() string {
	if p.chain != nil {
		return "certificate"
	}
	return "key"
}

// identify returns the identity of a connection's peer.
func (s *Server) identify(conn transport.Conn) peerIdentity {
	if key := conn.PeerKey(); key != nil {
		id := identity.Principal(identity.PinOf(key))
		return peerIdentity{id: id, label: id.Short()}
	}
	p := peerIdentity{chain: conn.PeerCertificates(), acceptedAt: time.Now()}
	var err error
	if p.id, err = identity.NameOf(p.chain[0]); err != nil {
		err = &identity.CertificateError{Problem: "is rejected: " + err.Error()}
	}
	p.label = "unproven " + cmp.Or(string(p.id), "nameless")
	if err == nil {
		p.vouchers, err = s.vouch(&p)
	}
	if err != nil {
		p.id, p.refusal = "", certificateRefusal(err)
		return p
	}
	p.label = p.id.Short()
	return p
}

// vouch checks a client's certificate with the present CAs, as of the time when it was accepted:
// running sessions survive the certificate's end, but not its revocation.
func (s *Server) vouch(p *peerIdentity) (*identity.Vouchers, error) {
	authorities := s.live.Load().authorities
	if authorities == nil {
		problem := "is rejected: this server knows clients by their keys"
		return nil, &identity.CertificateError{Problem: problem}
	}
	now := authorities.Now()
	if now == p.vouchers {
		return now, nil
	}
	_, err := now.Check(p.chain, x509.ExtKeyUsageClientAuth, "", p.acceptedAt)
	return now, err
}

// vouchAgain is vouch for a client that has a session. Keys need no voucher.
func (s *Server) vouchAgain(r *reservation) (*identity.Vouchers, error) {
	if r.peer.chain == nil {
		return nil, nil
	}
	s.mu.Lock()
	peer := r.peer
	s.mu.Unlock()
	return s.vouch(&peer)
}

// certificateRefusal is the error that the client gets.
func certificateRefusal(err error) *wire.Error {
	text := err.Error()
	if bad := (*identity.CertificateError)(nil); errors.As(err, &bad) {
		text = bad.Problem
		if bad.Remedy != "" {
			text += ": " + bad.Remedy
		}
	}
	return wire.Errorf(wire.CodeCertificate, "this client's certificate %s", text)
}

// addressOf returns a peer's IP address.
func addressOf(addr net.Addr) netip.Addr {
	p, _ := netip.ParseAddrPort(addr.String())
	return p.Addr().Unmap().WithZone("")
}

// checkAddress refuses an address outside the prefixes. No prefixes allow any address.
func checkAddress(from netip.Addr, prefixes []netip.Prefix, what string) error {
	contains := func(p netip.Prefix) bool { return p.Contains(from) }
	if len(prefixes) == 0 || slices.ContainsFunc(prefixes, contains) {
		return nil
	}
	return wire.Errorf(wire.CodeRight, "the address %s may not %s", from, what)
}
