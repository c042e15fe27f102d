package client

import (
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

// site is a running server with one share, "data".
type site struct {
	*server.Server
	dir  string
	stop func()
}

func serve(t *testing.T, rights identity.Rights) *site {
	t.Helper()
	return serveWith(t, server.Options{}, rights)
}

func serveWith(t *testing.T, opt server.Options, rights identity.Rights) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	s.run(t, opt, rights)
	return s
}

// run starts the server of a site whose folder is there.
func (s *site) run(t *testing.T, opt server.Options, rights identity.Rights) {
	t.Helper()
	s.runShare(t, opt, server.Share{Name: "data", Dir: s.dir, Rights: rights})
}

func (s *site) runShare(t *testing.T, opt server.Options, share server.Share) {
	t.Helper()
	var err error
	opt.Home, opt.Listen = t.TempDir(), "127.0.0.1:0"
	opt.Shares = []server.Share{share}
	s.Server, err = server.New(opt)
	require.NoError(t, err)
	s.stop = sessiontest.Run(t, s.Server)
}

func (s *site) invited(t *testing.T) session.URL {
	t.Helper()
	text, err := s.Invite(server.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	u, err := session.ParseURL(text)
	require.NoError(t, err)
	return u
}

func (s *site) plain(t *testing.T, path string) session.URL {
	t.Helper()
	u := s.invited(t)
	u.Token, u.Pin, u.Path = "", "", path
	return u
}

func newClient(t *testing.T, home string, opt Options) *Client {
	t.Helper()
	opt.Home = home
	c, err := New(opt)
	require.NoError(t, err)
	return c
}

func urls(all ...session.URL) []session.URL { return all }
