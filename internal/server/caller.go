package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// anyName stands in rules for the clients with a certificate whose name has none of its own.
const anyName identity.Principal = "*"

// caller is a client at the other end of a connection, as its handshake has proven.
type caller struct {
	id    identity.Principal // "" if it is nobody
	why   *wire.Error        // why it is not
	shown string             // what it is called in logs, also where that is not proven

	// Of one that CAs vouch for.
	chain []*x509.Certificate // as it was presented
	since time.Time           // when it was accepted
	by    *identity.Vouchers  // by whom; in guests guarded by Server.mu
}

// credential is by what a client is known.
func (c *caller) credential() string {
	if c.chain != nil {
		return "certificate"
	}
	return "key"
}

// callerOf finds out who a client is.
func (s *Server) callerOf(conn transport.Conn) caller {
	if key := conn.PeerKey(); key != nil {
		id := identity.Principal(identity.PinOf(key))
		return caller{id: id, shown: id.Short()}
	}
	c := caller{chain: conn.PeerCertificates(), since: time.Now()}
	var err error
	if c.id, err = identity.NameOf(c.chain[0]); err != nil {
		err = &identity.CertificateError{Problem: "is not taken: " + err.Error()}
	}
	c.shown = "unproven " + cmp.Or(string(c.id), "nameless")
	if err == nil {
		c.by, err = s.vouched(&c)
	}
	if err != nil {
		c.id, c.why = "", certificateRefused(err)
		return c
	}
	c.shown = c.id.Short()
	return c
}

// vouched asks the present CAs about a client's certificate, as of when it was accepted: running sessions outlive it, but not its revocation.
func (s *Server) vouched(c *caller) (*identity.Vouchers, error) {
	authorities := s.rules.Load().authorities
	if authorities == nil {
		return nil, &identity.CertificateError{Problem: "is not taken: this server knows clients by their keys"}
	}
	now := authorities.Now()
	if now == c.by {
		return now, nil
	}
	_, err := now.Check(c.chain, x509.ExtKeyUsageClientAuth, "", c.since)
	return now, err
}

// stillVouched is vouched of a client that has a session; nobody need vouch for a key.
func (s *Server) stillVouched(g *guest) (by *identity.Vouchers, err error) {
	if g.who.chain == nil {
		return nil, nil
	}
	s.mu.Lock()
	who := g.who
	s.mu.Unlock()
	return s.vouched(&who)
}

// certificateRefused is what a client is told.
func certificateRefused(err error) *wire.Error {
	text := err.Error()
	if bad := (*identity.CertificateError)(nil); errors.As(err, &bad) {
		text = bad.Problem
		if bad.Remedy != "" {
			text += ": " + bad.Remedy
		}
	}
	return wire.Errorf(wire.CodeCertificate, "this client's certificate %s", text)
}

// openTLS reads the server's certificate.
func (s *Server) openTLS() error {
	t := &s.opt.TLS
	if err := session.CheckKeyPair(t.Cert, t.Key); err != nil {
		return err
	}
	if t.Cert == "" {
		return nil
	}
	var err error
	if s.pair, err = identity.OpenKeyPair(t.Cert, t.Key, s.renewed("the server's certificate", t.Cert)); err != nil {
		return session.CertificateFileError(err)
	}
	return nil
}

// renewed returns who tells of changes in files of certificates.
func (s *Server) renewed(what, file string) func(error) {
	return func(err error) {
		if err != nil {
			s.log.Error(what+" has changed and can't be used; the server goes on with the one before", "file", file, "error", err)
			return
		}
		s.log.Info(what+" was renewed", "file", file)
	}
}

// openAuthorities returns those that opt names: the present ones, if they are the same, or others.
func (s *Server) openAuthorities(opt *TLS, present *rules) (*identity.Authorities, error) {
	ca, crl := opt.ClientCA, opt.ClientCRL
	switch {
	case ca == "" && crl != "":
		return nil, session.Usage("name them", "revoked certificates are those of clients' CAs, and there are none")
	case ca == "":
		return nil, nil
	case present != nil && present.tls.ClientCA == ca && present.tls.ClientCRL == crl:
		present.authorities.Renew()
		return present.authorities, nil
	}
	a, err := identity.OpenAuthorities(ca, crl, s.renewed("what is known of clients' CAs", ca))
	if err != nil {
		return nil, session.CertificateFileError(err)
	}
	return a, nil
}

// Certificate is something whose end has to be watched.
type Certificate struct {
	What        string // "server", or "client_crl": the revocation list that ends first
	From, Until time.Time
}

// certificates are those of a server.
func (s *Server) certificates() (all []Certificate) {
	if s.pair != nil {
		leaf := s.pair.Certificate().Leaf
		all = append(all, Certificate{"server", leaf.NotBefore, leaf.NotAfter})
	}
	if a := s.rules.Load().authorities; a != nil {
		if from, until := a.Now().ListExpiry(); !until.IsZero() {
			all = append(all, Certificate{"client_crl", from, until})
		}
	}
	return all
}

const (
	// certificatesEvery is how often files of certificates are looked at where no client asks for them.
	certificatesEvery = 10 * time.Second
	// remindEvery is how often the log has what ends soon.
	remindEvery = 24 * time.Hour
)

// watchCertificates tells of certificates that end soon, until ctx is done.
func (s *Server) watchCertificates(ctx context.Context) {
	tick := time.NewTicker(certificatesEvery)
	defer tick.Stop()
	told := make(map[string]time.Time)
	for {
		now := time.Now()
		for _, c := range s.certificates() {
			if !endsSoon(c.From, c.Until, now) || now.Sub(told[c.What]) < remindEvery {
				continue
			}
			told[c.What] = now
			if left := c.Until.Sub(now); left > 0 {
				s.log.Warn("a certificate ends soon: renew it", "what", c.What, "until", c.Until, "left", left.Round(time.Minute).String())
			} else {
				s.log.Error("a certificate has ended: clients are refused, or refuse this server", "what", c.What, "until", c.Until)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
