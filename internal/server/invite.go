package server

import (
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
)

// InviteOptions say what an invitation admits to. Only Host is required.
type InviteOptions struct {
	// Host is the name or address at which the client reaches this server.
	Host string
	// Shares are the names of the shares. nil is all shares that the server has now.
	Shares []string
	// Rights are the client's rights on these shares; a share never gives more than it has. 0 gives
	// the rights of each share.
	Rights identity.Rights
	// Expires is how long the invitation is valid. 0 is 10 minutes.
	Expires time.Duration
	// Comment is for the administrator, who finds it in authorized_clients.
	Comment string
}

// Invite returns the text of a URL that admits one client, once. The URL names the first of the
// shares.
func (s *Server) Invite(opt InviteOptions) (string, error) {
	switch {
	case opt.Host == "":
		return "", session.Usage("name the address at which clients reach the server", "invite: there is no host")
	case opt.Expires < 0:
		return "", session.Usage("0 is 10 minutes", "invite: the time %v is negative", opt.Expires)
	}
	settings := s.live.Load()
	names, first := opt.Shares, settings.firstShare
	if len(names) > 0 {
		first = names[0]
	} else {
		for name := range settings.shares {
			names = append(names, name)
		}
	}
	grants := make(identity.Grants)
	for _, name := range names {
		share := settings.share(name)
		if share == nil {
			return "", session.Usage("name a share that it has", "the server has no share %q", name)
		}
		if grants[name] = share.Rights; opt.Rights != 0 {
			grants[name] = opt.Rights
		}
	}
	token, err := s.store.Invite(grants, opt.Expires, opt.Comment)
	if err != nil {
		return "", err
	}
	u := session.URL{
		Host: opt.Host, Port: s.port(), Share: first, Token: token, Pin: identity.Pin(s.Pin()),
	}
	return u.String(), nil
}

func (s *Server) port() int {
	if at, ok := s.Addr().(interface{ AddrPort() netip.AddrPort }); ok {
		return int(at.AddrPort().Port())
	}
	return identity.DefaultPort
}
