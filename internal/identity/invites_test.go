package identity

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var channelA, channelB = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)

// clock is a time that only the test moves.
type clock struct{ now time.Time }

func newInvites(t testing.TB) (*Store, *clock) {
	c := &clock{time.Unix(1_000_000_000, 0)}
	s := openTemp(t)
	s.now = func() time.Time { return c.now }
	return s, c
}

func redeem(i *Store, token string) error {
	_, _, err := i.Redeem(InviteProof(token, channelA), channelA)
	return err
}

// open returns the invitations in the file that did not end long ago.
func open(t *testing.T, s *Store) []invite {
	t.Helper()
	text, _, err := s.read(invitesFile)
	require.NoError(t, err)
	return recent(parseInvites(text), s.now())
}

func TestInvite(t *testing.T) {
	i, _ := newInvites(t)
	grants := Grants{"data": Write}
	token, err := i.Invite(grants, 0, "")
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`^[A-Za-z0-9_-]{24}$`), token)
	other, err := i.Invite(Grants{"*": Read}, 0, "a\nlaptop")
	require.NoError(t, err)
	require.NotEqual(t, token, other)
	grants["data"] = Read // the invitation has its own copy

	_, _, err = i.Redeem(InviteProof(token, channelA), channelB)
	require.ErrorIs(t, err, ErrInviteUnknown, "a proof is worth nothing on another channel")
	_, _, err = i.Redeem([32]byte{}, channelA)
	require.ErrorIs(t, err, ErrInviteUnknown)
	require.ErrorIs(t, redeem(i, token[1:]), ErrInviteUnknown)
	_, _, err = i.Redeem(InviteProof(token, nil), nil)
	require.ErrorContains(t, err, "0 bytes", "a proof is always bound to a channel")

	got, _, err := i.Redeem(InviteProof(token, channelA), channelA)
	require.NoError(t, err)
	require.Equal(t, Grants{"data": Write}, got)
	require.ErrorIs(t, redeem(i, token), ErrInviteUsed)
	got, comment, err := i.Redeem(InviteProof(other, channelB), channelB)
	require.NoError(t, err)
	require.Equal(t, "a laptop", comment)
	require.Equal(t, Grants{"*": Read}, got)
}

func TestInviteExpires(t *testing.T) {
	i, c := newInvites(t)
	start := c.now
	early, err := i.Invite(Grants{"a": Read}, 0, "")
	require.NoError(t, err)
	late, err := i.Invite(Grants{"a": Read}, 0, "")
	require.NoError(t, err)
	short, err := i.Invite(Grants{"a": Read}, time.Second, "")
	require.NoError(t, err)

	c.now = start.Add(time.Second)
	require.ErrorIs(t, redeem(i, short), ErrInviteExpired)
	c.now = start.Add(InviteTTL - 1)
	require.NoError(t, redeem(i, early))
	c.now = start.Add(InviteTTL)
	require.ErrorIs(t, redeem(i, late), ErrInviteExpired)
	require.ErrorIs(t, redeem(i, early), ErrInviteUsed)
	c.now = start.Add(InviteTTL + rememberFor - 1)
	require.ErrorIs(t, redeem(i, late), ErrInviteExpired)
	require.ErrorIs(t, redeem(i, early), ErrInviteUsed)
	c.now = start.Add(InviteTTL + rememberFor)
	require.ErrorIs(t, redeem(i, late), ErrInviteUnknown)
	require.ErrorIs(t, redeem(i, early), ErrInviteUnknown)
	require.Empty(t, open(t, i))
}

func TestInvitesAreBounded(t *testing.T) {
	i, c := newInvites(t)
	fill := func(until time.Time) {
		list := make([]invite, maxInvites-1)
		for n := range list {
			list[n] = invite{token: fmt.Sprintf("%024d", n), grants: Grants{"a": Read}, expires: until}
		}
		write(t, i.path(invitesFile), formatInvites(list))
	}
	fill(c.now.Add(InviteTTL))
	last, err := i.Invite(Grants{"a": Read}, 0, "")
	require.NoError(t, err)
	_, err = i.Invite(Grants{"a": Read}, 0, "")
	require.ErrorContains(t, err, "256 invitations are open")

	// Invitations that ended make room. Open ones never do.
	require.NoError(t, redeem(i, last))
	token, err := i.Invite(Grants{"a": Read}, time.Hour, "")
	require.NoError(t, err)
	require.ErrorIs(t, redeem(i, last), ErrInviteUnknown)
	_, err = i.Invite(Grants{"a": Read}, time.Hour, "")
	require.ErrorContains(t, err, "256 invitations are open")
	c.now = c.now.Add(InviteTTL)
	_, err = i.Invite(Grants{"a": Read}, time.Hour, "")
	require.NoError(t, err)
	require.Len(t, open(t, i), maxInvites)
	require.NoError(t, redeem(i, token))
}

func TestInviteRefuses(t *testing.T) {
	i, _ := newInvites(t)
	for _, g := range []Grants{nil, {"a": 0}, {"..": Read}} {
		_, err := i.Invite(g, 0, "")
		require.Error(t, err)
	}
	_, err := i.Invite(Grants{"a": Read}, -1, "")
	require.Error(t, err)
	require.Empty(t, open(t, i))
}

func TestInviteIsUsedOnce(t *testing.T) {
	one, other := openTemp(t), openTemp(t)
	other.dir = one.dir // as another process
	for range 10 {
		token, err := one.Invite(Grants{"a": Read}, 0, "")
		require.NoError(t, err)
		var won, lost atomic.Int32
		start := make(chan struct{})
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				exporter := bytes.Repeat([]byte{byte(n)}, 32)
				<-start
				switch _, _, err := []*Store{one, other}[n%2].Redeem(InviteProof(token, exporter), exporter); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ErrInviteUsed):
					lost.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Equal(t, int32(1), won.Load())
		require.Equal(t, int32(7), lost.Load())
	}
}

func TestInviteProofVector(t *testing.T) {
	// HMAC-SHA-256("q83vEjRWeJCrze8SNFZ4kKvN", "fxfer invitation v1" 00 01×32), computed with
	// Python's hmac.
	require.Equal(t, "f5df29b3ba51cbdaa8a45af6ad910c3fb6d32d26b1bcd18e3dd50f93b129214e", fmt.Sprintf("%x", InviteProof("q83vEjRWeJCrze8SNFZ4kKvN", channelA)))
}

func BenchmarkRedeemUnknown(b *testing.B) {
	i := openTemp(b)
	for range maxInvites {
		_, err := i.Invite(Grants{"a": Read}, 0, "")
		require.NoError(b, err)
	}
	for b.Loop() {
		_, _, err := i.Redeem([32]byte{}, channelA)
		require.ErrorIs(b, err, ErrInviteUnknown)
	}
}
