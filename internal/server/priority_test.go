package server

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
)

// TestPriority changes the priority of a running session in every way, in both directions.
func TestPriority(t *testing.T) {
	t.Parallel()
	for _, push := range []bool{true, false} {
		t.Run(fmt.Sprintf("push=%t", push), func(t *testing.T) {
			t.Parallel()
			home, dir := t.TempDir(), t.TempDir()
			s, opt := admitting(t, home, Options{RateLimit: 800 * kbit}) // it would take minutes
			defer s.stop()
			ctx, cancel := context.WithCancel(t.Context())
			wish := session.NewLivePriority(session.PriorityHigh)
			c := newClient(t, home, client.Options{Pin: s.Pin(), Priority: session.PriorityLow})
			call := client.Transfer{Priority: wish}
			u, done := s.plain(t, ""), make(chan *session.Report, 1)
			go func() {
				var report *session.Report
				if push {
					sessiontest.RandomFile(t, filepath.Join(dir, "big"), 64<<20)
					report, _ = c.Send(ctx, []string{filepath.Join(dir, "big")}, u, call)
				} else {
					sessiontest.RandomFile(t, filepath.Join(s.dir, "big"), 64<<20)
					u.Path = "big"
					report, _ = c.Get(ctx, []session.URL{u}, dir+"/", call)
				}
				done <- report
			}()
			reload := func(most session.Priority) error {
				next := opt // the server keeps what it was given
				next.Clients = slices.Clone(opt.Clients)
				next.Clients[0].Priority = most
				return s.Reload(next)
			}
			becomes := func(p session.Priority, why string) {
				t.Helper()
				require.Eventually(t, func() bool {
					all := s.Status().Transfers
					return len(all) == 1 && all[0].Sharing.Priority == p
				}, time.Minute, 5*time.Millisecond, why)
			}
			becomes(session.PriorityHigh, "the transfer's priority goes before that of the client")
			wish.Set(session.PriorityLow)
			becomes(session.PriorityLow, "the client wants another one")
			wish.Set("")
			becomes(session.PriorityNormal, "the default")
			wish.Set(session.PriorityHigh)
			require.NoError(t, reload(session.PriorityNormal))
			becomes(session.PriorityNormal, "the client may have no more")
			id := s.Status().Transfers[0].ID
			for _, p := range []session.Priority{session.PriorityHigh, session.PriorityLow} {
				found, err := s.SetPriority(id, p)
				require.NoError(t, err)
				require.True(t, found)
				becomes(p, "the administrator set it")
			}
			found, err := s.SetPriority(id, "")
			require.NoError(t, err)
			require.True(t, found)
			becomes(session.PriorityNormal, "the bound of the settings holds again")

			require.ErrorContains(t, reload("urgent"), "urgent")
			_, err = s.SetPriority(id, "urgent")
			require.Error(t, err)
			found, err = s.SetPriority("00", session.PriorityLow)
			require.NoError(t, err)
			require.False(t, found)
			cancel()
			if report := <-done; report != nil {
				require.NotEmpty(t, report.Sharing.Priority, "the last change may still be on its way")
			}
		})
	}
}
