package client

import (
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// check refuses options that no transfer can have.
func (o *Options) check() error {
	if o.Streams < 0 || o.MaxStreams < 1 || o.MaxStreams > session.MaxStreams || o.Streams > o.MaxStreams {
		return session.Usage("", "%d streams of at most %d: give 1 to %d", o.Streams, o.MaxStreams, session.MaxStreams)
	}
	if err := o.checkTransport(); err != nil {
		return err
	}
	if _, err := session.Coder(o.Compress); err != nil {
		return session.Usage("choose auto, zstd or none", "%w", err)
	}
	if _, ok := session.SyncPolicies[o.Target.Sync]; !ok {
		return session.Usage("choose batch, file or none", "there is no sync policy %q", o.Target.Sync)
	}
	if _, ok := deltas[o.Target.Delta]; !ok {
		return session.Usage("choose auto, fixed, chunks or none", "there is no delta %q", o.Target.Delta)
	}
	if _, err := o.Source.filter(); err != nil {
		return session.Usage("rules are those of gitignore", "%w", err)
	}
	if t := o.Source.NewerThan; !t.IsZero() && (t.Year() < 1678 || t.Year() > 2261) { // those of int64 ns
		return session.Usage("", "the year %d is out of range", t.Year())
	}
	if o.Target.MaxDelete < 0 {
		return session.Usage("0 is any number", "at most %d entries to be removed", o.Target.MaxDelete)
	}
	if o.Target.Delete && o.Source.Files != nil {
		return session.Usage("leave one of the two out", "a list of files says nothing of what else is to stay, so nothing can be removed by it")
	}
	if err := o.Target.checkSnapshot(); err != nil {
		return err
	}
	if dir := o.Target.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil || dir == "." {
			return session.Usage("name a folder below the target", "%q is no folder for backups", dir)
		}
	}
	return nil
}

// checkTransport refuses a transport that there is not, and settings that it does not have.
func (o *Options) checkTransport() error {
	switch o.Transport {
	case "", session.TransportTCP, session.TransportAuto:
		return nil
	case session.TransportQUIC:
	default:
		return session.Usage("choose tcp, quic or auto", "there is no transport %q", o.Transport)
	}
	if o.SockBuf != 0 || o.Congestion != "" {
		return session.Usage("leave it out, or choose tcp", "fixed socket buffers and the choice of a congestion control are of TCP: QUIC has its own")
	}
	return nil
}

// checkStream refuses options that make no sense of a stream.
func (o *Options) checkStream() error {
	s := &o.Source
	if len(s.Rules) > 0 || s.MaxSize != 0 || !s.NewerThan.IsZero() || s.OneFileSystem || s.Files != nil {
		return session.Usage("leave the selection out", "a stream is sent whole: there is nothing to select")
	}
	t := &o.Target
	if t.Delete {
		return session.Usage("leave it out", "a stream says nothing of what else is at the target, so nothing can be removed by it")
	}
	if t.Checksum || t.Update || t.DryRun {
		return session.Usage("send a file", "a stream is read once: there is nothing to compare it with before")
	}
	return nil
}

// checkGet refuses options that a server can't be asked for.
func (o *Options) checkGet() error {
	if o.Source.Files != nil {
		return session.Usage("name each as a source", "a list of files selects what is sent, not what is got")
	}
	if o.Target.Snapshot != "" {
		return session.Usage("leave it out", "snapshots are sent, not got")
	}
	return nil
}

func (s *Source) filter() (*filter.Filter, error) {
	return filter.New(filter.Options{Rules: s.Rules, MaxSize: s.MaxSize, NewerThan: s.NewerThan})
}

// selection is what a server is asked to leave out.
func (o *Options) selection() wire.Select {
	s := wire.Select{Rules: o.Source.Rules, MaxSize: o.Source.MaxSize, OneFileSystem: o.Source.OneFileSystem, Compress: o.Compress}
	if !o.Source.NewerThan.IsZero() {
		s.NewerThan = o.Source.NewerThan.UnixNano()
	}
	return s
}

var deltas = map[Delta]wire.Delta{"": wire.DeltaAuto, DeltaAuto: wire.DeltaAuto, DeltaFixed: wire.DeltaFixed, DeltaChunks: wire.DeltaChunks, DeltaNone: wire.DeltaNone}

// wire is the target as a session is told of it.
func (t *Target) wire() wire.Target {
	w := wire.Target{
		Compare: wire.Compare{Checksum: t.Checksum, Update: t.Update, Existing: t.Existing, IgnoreExisting: t.IgnoreExisting},
		Sync:    session.SyncPolicies[t.Sync], Readback: t.Readback, NumericIDs: t.NumericIDs,
		Delete: t.Delete, MaxDelete: t.MaxDelete, BackupDir: t.BackupDir, DryRun: t.DryRun, Delta: deltas[t.Delta],
		AllowFailed: t.AllowFailed,
	}
	if w.MaxDelete == 0 {
		w.MaxDelete = -1
	}
	return w
}
