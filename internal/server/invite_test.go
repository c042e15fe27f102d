package server

import (
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
)

// TestInvite: an invitation is for the named shares with the named rights, or for all shares with
// theirs.
func TestInvite(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	opt := s.opt
	opt.Shares = append(opt.Shares, Share{Name: "aside", Dir: t.TempDir(), Rights: identity.Read})
	require.NoError(t, s.Reload(opt))
	invite := func(o InviteOptions) (share string, granted identity.Grants) {
		t.Helper()
		o.Host, o.Comment = "nas.example.org", "laptop"
		text, err := s.Invite(o)
		require.NoError(t, err)
		u, err := session.ParseURL(text)
		require.NoError(t, err)
		require.Equal(t, "nas.example.org", u.Host)
		exported := make([]byte, 32)
		granted, comment, err := s.store.Redeem(identity.InviteProof(u.Token, exported), exported)
		require.NoError(t, err)
		require.Equal(t, "laptop", comment)
		return u.Share, granted
	}

	share, granted := invite(InviteOptions{})
	require.Equal(t, "data", share, "the first one in the options")
	require.Equal(t, "aside=ro,data=rw", granted.String())
	share, granted = invite(InviteOptions{Shares: []string{"aside"}, Rights: identity.List})
	require.Equal(t, "aside", share)
	require.Equal(t, identity.Grants{"aside": identity.List}, granted)

	_, err := s.Invite(InviteOptions{Host: "x", Shares: []string{"c"}})
	require.ErrorContains(t, err, `the server has no share "c"`)
	require.Equal(t, session.KindUsage, session.KindOf(err))
	_, err = s.Invite(InviteOptions{Host: "x", Expires: -time.Second})
	require.ErrorContains(t, err, "negative")
}

// TestShareWithoutRights: no client could use such a share, so it is an error.
func TestShareWithoutRights(t *testing.T) {
	t.Parallel()
	opt := Options{Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []Share{{Name: "data", Dir: t.TempDir()}}}
	_, err := New(opt)
	require.ErrorContains(t, err, `share "data" has no rights`)
	require.Equal(t, session.KindUsage, session.KindOf(err))

	s := serve(t, identity.Read)
	defer s.stop()
	opt = s.opt
	opt.Shares = []Share{{Name: "data", Dir: s.dir}}
	require.ErrorContains(t, s.Reload(opt), `share "data" has no rights`)
}
