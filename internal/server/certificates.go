package server

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
)

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
	renewed := s.logRenewal("the server's certificate", t.Cert)
	s.pair, err = identity.OpenKeyPair(t.Cert, t.Key, renewed)
	if err != nil {
		return session.CertificateFileError(err)
	}
	return nil
}

// logRenewal returns a function that logs whether a changed file could be read.
func (s *Server) logRenewal(what, file string) func(error) {
	return func(err error) {
		if err != nil {
			s.log.Error(
				what+" has changed and can't be used; the server goes on with the one before",
				"file", file, "error", err)
			return
		}
		s.log.Info(what+" was renewed", "file", file)
	}
}

// openAuthorities returns the CAs for clients, nil for none. It keeps the present ones if the files
// are the same.
func (s *Server) openAuthorities(t *TLS, present *liveSettings) (*identity.Authorities, error) {
	ca, crl := t.ClientCA, t.ClientCRL
	switch {
	case ca == "" && crl != "":
		return nil, errOnlyCRL
	case ca == "":
		return nil, nil
	case present != nil && present.tls.ClientCA == ca && present.tls.ClientCRL == crl:
		present.authorities.Renew()
		return present.authorities, nil
	}
	a, err := identity.OpenAuthorities(ca, crl, s.logRenewal("the file of CAs for clients", ca))
	if err != nil {
		return nil, session.CertificateFileError(err)
	}
	return a, nil
}

// Certificate is a certificate or a revocation list whose end must be watched.
type Certificate struct {
	What        string // "server", or "client_crl" for the revocation list that ends first
	From, Until time.Time
}

// certificates returns those of the server.
func (s *Server) certificates() (all []Certificate) {
	if s.pair != nil {
		leaf := s.pair.Certificate().Leaf
		all = append(all, Certificate{"server", leaf.NotBefore, leaf.NotAfter})
	}
	if a := s.live.Load().authorities; a != nil {
		if from, until := a.Now().ListExpiry(); !until.IsZero() {
			all = append(all, Certificate{"client_crl", from, until})
		}
	}
	return all
}

const (
	// certificatesEvery is how often the files are read again, also while no client connects.
	certificatesEvery = 10 * time.Second
	// remindEvery is how often the log repeats that a certificate ends soon.
	remindEvery = 24 * time.Hour
)

// watchCertificates logs which certificates end soon, until ctx is done.
func (s *Server) watchCertificates(ctx context.Context) {
	tick := time.NewTicker(certificatesEvery)
	defer tick.Stop()
	logged := make(map[string]time.Time)
	for {
		now := time.Now()
		for _, c := range s.certificates() {
			if endsSoon(c.From, c.Until, now) && now.Sub(logged[c.What]) >= remindEvery {
				logged[c.What] = now
				s.logExpiry(c, now)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Server) logExpiry(c Certificate, now time.Time) {
	if left := c.Until.Sub(now); left > 0 {
		s.log.Warn("a certificate ends soon: renew it",
			"what", c.What, "until", c.Until, "left", left.Round(time.Minute).String())
	} else {
		s.log.Error("a certificate has ended: clients are refused, or refuse this server",
			"what", c.What, "until", c.Until)
	}
}

// endsSoon reports whether the end of a validity is near: within 14 days, or within its last
// quarter if that is shorter, as for certificates that are valid for a day.
func endsSoon(from, until, now time.Time) bool {
	return !until.IsZero() && until.Sub(now) < min(14*24*time.Hour, until.Sub(from)/4)
}
