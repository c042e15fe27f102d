package server

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/fxfer/fxfer/internal/session"
)

// doorTLS returns the TLS of doors, with the server's certificate or else one that it has signed
// itself, and how to recognize that.
func (s *Server) doorTLS() (cfg *tls.Config, shown string, err error) {
	cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.pair != nil {
		cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.pair.Certificate(), nil }
		return cfg, fingerprint(s.pair.Certificate()), nil
	}
	var names []string
	if s.host != "" {
		names = []string{s.host}
	}
	own, err := s.store.DoorCertificate(names...)
	if err != nil {
		return nil, "", &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	cfg.Certificates = []tls.Certificate{*own}
	return cfg, fingerprint(own), nil
}

// fingerprint is the SHA-256 of a certificate, as programs for TLS show it.
func fingerprint(c *tls.Certificate) string {
	sum := sha256.Sum256(c.Certificate[0])
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}
