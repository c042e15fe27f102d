package server

import (
	"net"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// listenOn listens with the transports that the options ask for.
func (s *Server) listenOn(addr string) error {
	switch s.opt.Transport {
	case session.TransportTCP:
		if s.opt.Datagrams != nil { // nobody would read from it
			_ = s.opt.Datagrams.Close()
		}
		return s.listenWith(transport.TCP, addr)
	case session.TransportQUIC:
		if s.opt.Socket != nil { // nobody would accept from it
			_ = s.opt.Socket.Close()
		}
		return s.listenWith(transport.QUIC, addr)
	case "", session.TransportAuto:
		return s.listenBoth(addr)
	}
	return session.Usage("choose tcp, quic or auto", "there is no transport %q", s.opt.Transport)
}

// listenBoth listens with TCP and QUIC on one port. QUIC may fail: many firewalls block UDP anyway.
func (s *Server) listenBoth(addr string) error {
	for try := 1; ; try++ {
		if err := s.listenWith(transport.TCP, addr); err != nil {
			return err
		}
		err := s.listenWith(transport.QUIC, s.Addr().String())
		if err == nil {
			return nil
		}
		// The system may know another port that is free for both.
		_, port, _ := net.SplitHostPort(addr)
		if port != "0" || s.opt.Socket != nil || try == 5 {
			s.log.Warn("no QUIC: clients can use TCP only", "error", err)
			return nil
		}
		_ = s.listen[0].Close()
		s.listen = nil
	}
}

func (s *Server) listenWith(p transport.Protocol, addr string) error {
	cfg := transport.Config{
		Identity: s.key, Protocol: p, Standard: s.opt.StandardCrypto, SockBuf: s.opt.SockBuf, Congestion: s.opt.Congestion,
		Socket: s.opt.Socket, Datagrams: s.opt.Datagrams, Turn: s.conns.WaitQUIC,
	}
	if s.pair != nil {
		cfg.Certificate = s.pair.Certificate
	}
	l, err := transport.Listen(addr, cfg)
	if err != nil {
		return session.ListenError(addr, err)
	}
	s.listen = append(s.listen, l)
	if w := transport.SmallBuffers(l); w != "" {
		s.log.Warn("QUIC will lose datagrams at high rates", "reason", w)
	}
	return nil
}
