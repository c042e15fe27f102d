package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// SnapshotAuto in Target.Snapshot continues the snapshot that was interrupted last, or else begins
// one that is named after the present time.
const SnapshotAuto = "auto"

// SnapshotName is the name of the snapshot of that time, such as 2026-11-20T020000Z.
func SnapshotName(t time.Time) string { return snapshot.Name(t) }

// Snapshot is a snapshot in a listing.
type Snapshot struct {
	Name    string
	Time    time.Time // which its name states
	Partial bool      // incomplete and therefore not visible; Send with the same name continues it
	Failed  int64     // entries that it lacks because they failed
	Damaged int64     // files that are known to be damaged at the server
	// LastIntact says that no retention removes it yet: it has the newest intact version of a file
	// whose newer versions are all damaged.
	LastIntact bool
}

// Snapshots lists the snapshots in the folder of u, the oldest first. A folder that has none, or
// does not exist, gives none. To a client that may only append, a folder that is not its own, or
// does not exist, is an error.
func (c *Client) Snapshots(ctx context.Context, u session.URL) ([]Snapshot, error) {
	if err := needShare(u); err != nil {
		return nil, err
	}
	notes := map[string]*Snapshot{}
	l := listing{hello: wire.Hello{Intent: wire.Series, Share: u.Share, Paths: []string{u.Path}}, most: maxSeries}
	l.incomplete = func(w *wire.Warning) {
		if _, err := snapshot.ParseName(w.Path); err != nil { // it would take much memory
			return
		}
		x := notes[w.Path]
		if x == nil && len(notes) < session.MaxKeep {
			x = &Snapshot{}
			notes[w.Path] = x
		}
		if x != nil {
			x.note(w)
		}
	}
	if err := l.run(ctx, c, u); err != nil {
		return nil, describe(ctx, err, serverOf(u))
	}
	var all []Snapshot
	for _, e := range l.entries {
		if t, err := snapshot.ParseName(e.Path); err == nil { // the server may be hostile
			x := Snapshot{}
			if known := notes[e.Path]; known != nil {
				x = *known
			}
			x.Name, x.Time, x.Partial = e.Path, t, e.Rights != session.SnapshotComplete
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// note takes what the server says about a snapshot.
func (x *Snapshot) note(w *wire.Warning) {
	switch w.What {
	case session.SnapshotFailed:
		x.Failed = int64(min(w.Count, wire.MaxAllowFailed))
	case session.SnapshotDamaged:
		x.Damaged = int64(min(w.Count, wire.MaxSize))
	case session.SnapshotIntact:
		x.LastIntact = true
	}
}

// PruneSnapshots removes complete snapshots in the folder of u. Those named in keep stay, and so do
// all that are newer than the newest of these, and those with the last intact version of a file. It
// returns the names of those it removed, also together with an error. It needs the right to write.
func (c *Client) PruneSnapshots(ctx context.Context, u session.URL, keep []string) (removed []string, err error) {
	if err := needShare(u); err != nil {
		return nil, err
	}
	if len(keep) == 0 {
		return nil, session.Usage("name those to keep", "no snapshot is to be kept")
	}
	e := expiry{keep: keep}
	err = e.run(ctx, c, u)
	return e.removed, describe(ctx, err, serverOf(u))
}

// expiry is the intent to remove snapshots.
type expiry struct {
	keep    []string
	removed []string
}

func (e *expiry) run(ctx context.Context, c *Client, u session.URL) error {
	x, err := c.begin(ctx, u, wire.Hello{Intent: wire.Expire, Share: u.Share, Paths: []string{u.Path}})
	if err != nil {
		return err
	}
	defer x.close()
	return e.ask(x)
}

func (e *expiry) ask(x *exchange) error {
	x.patience = session.VerifyPatience // removing a large snapshot takes long
	var request []wire.Message
	for part := range slices.Chunk(e.keep, wire.MaxStrings) {
		request = append(request, &wire.Prune{Folders: part})
	}
	x.send(append(request, &wire.Prune{})...)
	for {
		m, err := x.next()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Removed:
			_, err := snapshot.ParseName(m.Path)
			if err != nil || slices.Contains(e.keep, m.Path) || len(e.removed) == session.MaxKeep {
				return wire.Errorf(wire.CodeProtocol, "the server says that it has removed %q", m.Path)
			}
			e.removed = append(e.removed, m.Path)
		case *wire.EndManifest:
			return nil
		}
	}
}

// snapshotToSend returns the name of the snapshot that is sent where name was asked for.
func (c *Client) snapshotToSend(ctx context.Context, u session.URL, name string) (string, error) {
	if name != SnapshotAuto {
		return name, nil
	}
	all, err := c.Snapshots(ctx, u)
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Code == wire.CodeNotFound {
		err = nil // the client may begin a series there
	}
	return snapshotAfter(all), err
}

// snapshotAfter returns the name for the next snapshot of a series: that of the last one if it was
// interrupted, or else the present time.
func snapshotAfter(all []Snapshot) string {
	if n := len(all); n > 0 && all[n-1].Partial {
		return all[n-1].Name
	}
	return SnapshotName(time.Now())
}

// lackedBy returns how many entries the snapshot lacks that a session before has made; 0 also if
// that cannot be found out.
func (j *job) lackedBy(ctx context.Context) int64 {
	if j.call.Target.AllowFailed == 0 {
		return 0
	}
	var all []Snapshot
	if x, ok := j.intent.(*pullSnapshot); ok {
		all, _ = j.LocalSnapshots(x.args[0])
	} else {
		all, _ = j.Snapshots(ctx, j.url)
	}
	for _, s := range all {
		if s.Name == j.snapshot {
			return s.Failed
		}
	}
	return 0
}

// checkSnapshot rejects what a snapshot cannot have.
func (t *Target) checkSnapshot() error {
	if t.AllowFailed < 0 || t.AllowFailed > session.MaxAllowFailed {
		return session.Usage(fmt.Sprintf("0 to %d", session.MaxAllowFailed), "%d is not a number of entries that may fail", t.AllowFailed)
	}
	if t.Snapshot == "" {
		return nil
	}
	if t.Snapshot != SnapshotAuto {
		if _, err := snapshot.ParseName(t.Snapshot); err != nil {
			return session.Usage("leave the name out for the present time", "%w", err)
		}
	}
	for _, x := range []struct {
		set  bool
		name string
	}{
		{t.Update, "--update"}, {t.Existing, "--existing"}, {t.IgnoreExisting, "--ignore-existing"}, {t.Delete, "--delete"},
		{t.BackupDir != "", "--backup-dir"}, {t.MaxDelete != 0, "--max-delete"},
	} {
		if x.set {
			return session.Usage("leave "+x.name+" out", "a snapshot is a new folder and holds what the source holds: there is nothing to keep or to remove")
		}
	}
	return nil
}
