package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// SnapshotAuto is a Target.Snapshot: the one that was interrupted last, or a new one of the present time.
const SnapshotAuto = "auto"

// SnapshotName is the name of a snapshot of a time, such as 2026-11-20T020000Z.
func SnapshotName(t time.Time) string { return snapshot.Name(t) }

// Snapshot is one of a series.
type Snapshot struct {
	Name    string
	Time    time.Time // as its name says
	Partial bool      // not complete, and so not visible: Send with the same name goes on with it
	Failed  int64     // entries that it lacks since they failed
}

// Snapshots lists the snapshots in the folder that u leads to, in the order of their names. A folder that has none, or does not exist,
// gives none.
func (c *Client) Snapshots(ctx context.Context, u session.URL) ([]Snapshot, error) {
	if u.Share == "" {
		return nil, session.Usage("fxfer ls "+u.Redacted()+" shows the shares", "the URL names no share")
	}
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.Series, Share: u.Share, Paths: []string{u.Path}}}
	failed := map[string]int64{}
	s.warned = func(w *wire.Warning) {
		if w.What == session.SnapshotFailed && len(failed) < session.MaxKeep {
			failed[w.Path] = int64(min(w.Count, wire.MaxAllowFailed))
		}
	}
	entries, err := s.list(ctx)
	if err != nil {
		return nil, describe(err, serverOf(u))
	}
	var all []Snapshot
	for _, e := range entries {
		if t, err := snapshot.ParseName(e.Path); err == nil { // the server may be hostile
			all = append(all, Snapshot{Name: e.Path, Time: t, Partial: e.Rights != session.SnapshotComplete, Failed: failed[e.Path]})
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// PruneSnapshots removes the complete snapshots in the folder that u leads to, but for those in keep and all that are newer than
// the newest of these. It returns which it removed, also with an error. It needs the right to write.
func (c *Client) PruneSnapshots(ctx context.Context, u session.URL, keep []string) (removed []string, err error) {
	if u.Share == "" {
		return nil, session.Usage("fxfer ls "+u.Redacted()+" shows the shares", "the URL names no share")
	}
	if len(keep) == 0 {
		return nil, session.Usage("name those to keep", "no snapshot is to be kept")
	}
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.Expire, Share: u.Share, Paths: []string{u.Path}}}
	removed, err = s.expire(ctx, keep)
	return removed, describe(interrupted(ctx, err), serverOf(u))
}

func (s *clientSession) expire(ctx context.Context, keep []string) (removed []string, err error) {
	_, _ = rand.Read(s.hello.Session[:]) // never fails
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.client.transportTo(s.url)
	conn, err := s.openThrough(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var out []byte
	for part := range slices.Chunk(keep, wire.MaxStrings) {
		out = wire.Append(out, &wire.Prune{Folders: part})
	}
	if _, err := conn.Write(wire.Append(out, &wire.Prune{})); err != nil {
		return nil, err
	}
	r := wire.NewReader(conn, wire.MaxMessage)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(session.VerifyPatience)) // a large snapshot takes its time
		m, err := r.Next()
		if err != nil {
			return removed, err
		}
		switch m := m.(type) {
		case *wire.Refuse:
			return removed, &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		case *wire.Welcome:
			s.message(conn, m)
		case *wire.Removed:
			if len(removed) < session.MaxKeep {
				removed = append(removed, m.Path)
			}
		case *wire.EndManifest:
			return removed, nil
		}
	}
}

// snapshotOf returns the name of the snapshot to be sent.
func (c *Client) snapshotOf(ctx context.Context, u session.URL) (string, error) {
	name := c.opt.Target.Snapshot
	if name != SnapshotAuto {
		return name, nil
	}
	all, err := c.Snapshots(ctx, u)
	if err != nil {
		return "", err
	}
	if n := len(all); n > 0 && all[n-1].Partial {
		return all[n-1].Name, nil
	}
	return SnapshotName(time.Now()), nil
}

// lacking returns how many entries a snapshot lacks that may lack some; 0 also if that can't be found out.
func (c *Client) lacking(ctx context.Context, u session.URL, name string) int64 {
	if c.opt.Target.AllowFailed == 0 {
		return 0
	}
	all, _ := c.Snapshots(ctx, u)
	for _, s := range all {
		if s.Name == name {
			return s.Failed
		}
	}
	return 0
}

// checkSnapshot refuses options that a snapshot can't have.
func (t *Target) checkSnapshot() error {
	if t.AllowFailed < 0 || t.AllowFailed > session.MaxAllowFailed {
		return session.Usage(fmt.Sprintf("0 to %d", session.MaxAllowFailed), "%d is no number of entries that may fail", t.AllowFailed)
	}
	if t.Snapshot == "" {
		return nil
	}
	if t.Snapshot != SnapshotAuto {
		if _, err := snapshot.ParseName(t.Snapshot); err != nil {
			return session.Usage("leave the name out for the present time", "%w", err)
		}
	}
	if t.Update || t.Existing || t.IgnoreExisting || t.Delete || t.BackupDir != "" || t.MaxDelete != 0 {
		return session.Usage("leave it out", "a snapshot holds what the source holds: there is nothing at the target to be left, kept or removed")
	}
	return nil
}
