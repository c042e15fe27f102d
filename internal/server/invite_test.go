package server

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/client"
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
	require.Equal(t, session.KindUsage, session.KindOf(err))
	_, err = s.Invite(InviteOptions{})
	require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
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

// TestInviteFromForbiddenAddress: an address that may not use the server redeems no invitation, and
// does not spend it.
func TestInviteFromForbiddenAddress(t *testing.T) {
	t.Parallel()
	s := serveWith(t, Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.9.8.0/24")}}, identity.Read|identity.Write)
	defer s.stop()
	u := s.invited(t)
	home := t.TempDir()
	_, err := newClient(t, home, client.Options{}).List(t.Context(), u)
	require.ErrorContains(t, err, "may not use this server")
	all, err := s.store.Clients()
	require.NoError(t, err)
	require.Empty(t, all, "enrolled")

	opt := s.opt
	opt.Allow = nil
	require.NoError(t, s.Reload(opt))
	_, err = newClient(t, home, client.Options{}).List(t.Context(), u)
	require.NoError(t, err, "the same invitation")
}

// TestInviteRevoked: an invitation does not undo the decision to revoke a client, and is not spent
// by the attempt.
func TestInviteRevoked(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, u := t.TempDir(), s.invited(t)
	_, err := newClient(t, home, client.Options{}).List(t.Context(), u)
	require.NoError(t, err)
	all, err := s.store.Clients()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, s.store.Revoke(all[0].ID))

	u = s.invited(t)
	_, err = newClient(t, home, client.Options{}).List(t.Context(), u)
	require.ErrorContains(t, err, "was revoked")
	require.Equal(t, session.KindTrust, session.KindOf(err))
	require.ErrorIs(t, s.store.Enrol(all[0].ID, identity.Grants{"data": identity.Read}, ""), identity.ErrRevoked)
	now, _, err := s.store.Client(all[0].ID)
	require.NoError(t, err)
	require.True(t, now.Revoked)
	_, err = newClient(t, t.TempDir(), client.Options{}).List(t.Context(), u)
	require.NoError(t, err, "the same invitation, for another client")
}
