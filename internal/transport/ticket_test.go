package transport

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTicketSeal: a key seals for half of ticketLife, and opens for all of it.
func TestTicketSeal(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := &ticketSeal{now: func() time.Time { return now }}
	s.with()
	first := s.keys[0]
	for _, step := range []struct {
		after time.Duration
		keys  int
		opens bool
	}{
		{ticketLife/2 - 1, 1, true},
		{1, 2, true},
		{ticketLife/2 - 1, 2, true},
		{1, 2, false},
	} {
		now = now.Add(step.after)
		s.with()
		require.Len(t, s.keys, step.keys)
		opens := false
		for _, k := range s.keys {
			opens = opens || k == first
		}
		require.Equal(t, step.opens, opens)
	}
	now = now.Add(ticketLife)
	s.with()
	require.Len(t, s.keys, 1, "nobody came for long")
	now = now.Add(-time.Hour)
	s.with()
	require.Len(t, s.keys, 1, "the clock was set back")
}

// TestTicketBox: a ticket is taken once, only for the server, the client and the address that it is of, and not when it is old.
func TestTicketBox(t *testing.T) {
	l, err := listenQUIC("127.0.0.1:0", Config{Identity: testIdentity(t)})
	require.NoError(t, err)
	ctx := soon(t)
	defer l.Shutdown(ctx)
	cfg := Config{Identity: testIdentity(t), Tickets: filepath.Join(t.TempDir(), "tickets")}
	own := cfg.Identity.Public().(ed25519.PublicKey)
	addr := l.Addr().String()
	require.True(t, Warm(ctx, addr, cfg))
	files, err := os.ReadDir(cfg.Tickets)
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := files[0].Info()
	require.NoError(t, err)
	if os.PathSeparator == '/' {
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}

	require.Nil(t, newTicketBox(cfg.Tickets, "127.0.0.1:1", own).last)
	require.Nil(t, newTicketBox(cfg.Tickets, addr, make([]byte, 32)).last)
	box := newTicketBox(cfg.Tickets, addr, own)
	require.NotNil(t, box.usable(anyKey))
	require.Nil(t, newTicketBox(cfg.Tickets, addr, own).last, "it was taken")
	require.Nil(t, box.usable(func(ed25519.PublicKey) error { return errors.New("another server") }))
	kept := *box.last
	box.keep(&kept)
	for i := range maxTickets + 5 {
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Tickets, fmt.Sprint(i)), nil, 0o600))
	}
	box.kept = false
	box.keep(&kept)
	files, err = os.ReadDir(cfg.Tickets)
	require.NoError(t, err)
	require.Len(t, files, maxTickets)
	again := newTicketBox(cfg.Tickets, addr, own)
	require.NotNil(t, again.usable(anyKey))
	again.last.given = time.Now().Add(-ticketLife)
	require.Nil(t, again.usable(anyKey))
	again.last.given = time.Now().Add(time.Hour)
	require.Nil(t, again.usable(anyKey))

	require.NoError(t, os.WriteFile(again.path, []byte(ticketMagic+"nonsense"), 0o600))
	require.Nil(t, newTicketBox(cfg.Tickets, addr, own).last)
}

// FuzzTicket: whatever a file holds, it is no ticket or one that can be used and written again.
func FuzzTicket(f *testing.F) {
	f.Add([]byte(ticketMagic))
	f.Add((&ticket{given: time.Unix(1e9, 0), server: make([]byte, 32), label: []byte("label"), state: []byte{3, 4, 2, 0x13, 1}}).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseTicket(b)
		if err != nil {
			return
		}
		require.Len(t, x.server, ed25519.PublicKeySize)
		_, err = x.session()
		require.NoError(t, err)
		require.Equal(t, b, x.bytes())
	})
}
