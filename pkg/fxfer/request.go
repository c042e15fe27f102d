package fxfer

import (
	"fmt"
	"runtime"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/wire"
)

func usage(remedy, format string, args ...any) error {
	return &Error{Kind: KindUsage, Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// check refuses options that no transfer can have.
func (o *Options) check() error {
	if o.Streams < 0 || o.MaxStreams < 1 || o.MaxStreams > maxStreams || o.Streams > o.MaxStreams {
		return usage("", "%d streams of at most %d: give 1 to %d", o.Streams, o.MaxStreams, maxStreams)
	}
	if err := o.checkTransport(); err != nil {
		return err
	}
	if _, err := coder(o.Compress); err != nil {
		return usage("choose auto, zstd or none", "%w", err)
	}
	if _, ok := syncPolicies[o.Target.Sync]; !ok {
		return usage("choose batch, file or none", "there is no sync policy %q", o.Target.Sync)
	}
	if _, ok := deltas[o.Target.Delta]; !ok {
		return usage("choose auto, fixed, chunks or none", "there is no delta %q", o.Target.Delta)
	}
	if _, err := o.Source.filter(); err != nil {
		return usage("rules are those of gitignore", "%w", err)
	}
	if t := o.Source.NewerThan; !t.IsZero() && (t.Year() < 1678 || t.Year() > 2261) { // those of int64 ns
		return usage("", "the year %d is out of range", t.Year())
	}
	if o.Target.MaxDelete < 0 {
		return usage("0 is any number", "at most %d entries to be removed", o.Target.MaxDelete)
	}
	if o.Target.Delete && o.Source.Files != nil {
		return usage("leave one of the two out", "a list of files says nothing of what else is to stay, so nothing can be removed by it")
	}
	if err := o.Target.checkSnapshot(); err != nil {
		return err
	}
	if dir := o.Target.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil || dir == "." {
			return usage("name a folder below the target", "%q is no folder for backups", dir)
		}
	}
	return nil
}

// checkTransport refuses a transport that there is not, and settings that it does not have.
func (o *Options) checkTransport() error {
	switch o.Transport {
	case "", TransportTCP, TransportAuto:
		return nil
	case TransportQUIC:
	default:
		return usage("choose tcp, quic or auto", "there is no transport %q", o.Transport)
	}
	if o.SockBuf != 0 || o.Congestion != "" {
		return usage("leave it out, or choose tcp", "fixed socket buffers and the choice of a congestion control are of TCP: QUIC has its own")
	}
	return nil
}

// checkStream refuses options that make no sense of a stream.
func (o *Options) checkStream() error {
	s := &o.Source
	if len(s.Rules) > 0 || s.MaxSize != 0 || !s.NewerThan.IsZero() || s.OneFileSystem || s.Files != nil {
		return usage("leave the selection out", "a stream is sent whole: there is nothing to select")
	}
	t := &o.Target
	if t.Delete {
		return usage("leave it out", "a stream says nothing of what else is at the target, so nothing can be removed by it")
	}
	if t.Checksum || t.Update || t.DryRun {
		return usage("send a file", "a stream is read once: there is nothing to compare it with before")
	}
	return nil
}

// checkGet refuses options that a server can't be asked for.
func (o *Options) checkGet() error {
	if o.Source.Files != nil {
		return usage("name each as a source", "a list of files selects what is sent, not what is got")
	}
	if o.Target.Snapshot != "" {
		return usage("leave it out", "snapshots are sent, not got")
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

// filterOf makes the filter of what a client asks for. The rules may be hostile.
func filterOf(s *wire.Select) (*filter.Filter, error) {
	o := filter.Options{Rules: s.Rules, MaxSize: s.MaxSize}
	if s.NewerThan != 0 {
		o.NewerThan = time.Unix(0, s.NewerThan)
	}
	return filter.New(o)
}

// checkHello refuses what does not fit into the first message, of which a server reads no more before it knows the client.
func checkHello(m *wire.Hello) error {
	if len(m.Select.Rules) > wire.MaxStrings || len(m.Paths) > wire.MaxStrings || len(wire.Append(nil, m))+helloRoom > wire.MaxFirstMessage {
		return usage("select by fewer or shorter rules, or get less at once", "the request is too long: %d rules and %d paths in %d bytes, of at most %d",
			len(m.Select.Rules), len(m.Paths), len(wire.Append(nil, m)), wire.MaxFirstMessage-helloRoom)
	}
	return nil
}

// helloRoom is left in the first message for what a session adds to it, bytes.
const helloRoom = 256

var syncPolicies = map[Sync]wire.Sync{"": wire.SyncBatch, SyncBatch: wire.SyncBatch, SyncFile: wire.SyncFile, SyncNone: wire.SyncNone}

var deltas = map[Delta]wire.Delta{"": wire.DeltaAuto, DeltaAuto: wire.DeltaAuto, DeltaFixed: wire.DeltaFixed, DeltaChunks: wire.DeltaChunks, DeltaNone: wire.DeltaNone}

// wire is the target as a session is told of it.
func (t *Target) wire() wire.Target {
	w := wire.Target{
		Compare: wire.Compare{Checksum: t.Checksum, Update: t.Update, Existing: t.Existing, IgnoreExisting: t.IgnoreExisting},
		Sync:    syncPolicies[t.Sync], Readback: t.Readback, NumericIDs: t.NumericIDs,
		Delete: t.Delete, MaxDelete: t.MaxDelete, BackupDir: t.BackupDir, DryRun: t.DryRun, Delta: deltas[t.Delta],
		AllowFailed: t.AllowFailed,
	}
	if w.MaxDelete == 0 {
		w.MaxDelete = -1
	}
	return w
}

// coder returns what decides on compression, nil for none.
func coder(name string) (*compress.Meter, error) {
	switch name {
	case "", "none":
		return nil, nil
	case "auto":
		return compress.NewMeter(runtime.GOMAXPROCS(0)), nil
	case "zstd":
		return compress.Always(), nil
	}
	return nil, fmt.Errorf("there is no compression %q", name)
}
