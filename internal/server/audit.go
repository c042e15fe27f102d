package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"log/slog"
	"net/netip"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// audit records what a client does in one session: one record for each entry, and a last one for
// the session. Each names the client; the logger adds the time. A nil *audit records nothing.
type audit struct {
	log   *slog.Logger
	roots []transfer.Root // of a session that sends
	ended bool            // the last record is written
}

// newAudit returns the audit of a session on a share, "" for none. do says what it is for. It returns
// nil if nothing is to be recorded.
func (r *reservation) newAudit(do, share string) *audit {
	if r.server.opt.Audit == nil {
		return nil
	}
	log := r.server.opt.Audit.With("session", r.id,
		"client", cmp.Or(string(r.peer.id), r.peer.label),
		"address", r.from.String(), "do", do)
	if name := r.clientName(); name != "" {
		log = log.With("name", name)
	}
	if r.peer.by != nil {
		log = log.With("by", string(r.peer.by.Holder))
	}
	if share != "" {
		log = log.With("share", share)
	}
	return &audit{log: log}
}

// auditRefusal records that a client got no session.
func (s *Server) auditRefusal(ctx context.Context, from netip.Addr, peer peerIdentity, m *wire.Hello, why error) {
	r := &reservation{server: s, id: newSessionID(), peer: peer, from: from}
	r.newAudit(intentName(m.Intent), m.Share).session(ctx, m.Paths, -1, why)
}

// clientName returns what the administrator calls the client, "" for nothing.
func (r *reservation) clientName() string {
	if c := r.server.live.Load().clients[r.peer.id]; c != nil {
		return c.Name
	}
	c, _, err := r.server.store.Client(r.peer.id)
	if err != nil {
		return ""
	}
	return c.Comment
}

// setRoots takes the roots of a session that sends, before its first event.
func (a *audit) setRoots(roots []transfer.Root) {
	if a != nil {
		a.roots = roots
	}
}

// outcomeWords are the outcomes that are recorded. Unchanged entries are not.
var outcomeWords = map[transfer.EventKind]string{
	transfer.Committed: "committed", transfer.Done: "made",
	transfer.Removed: "removed", transfer.Failed: "failed",
}

// event records the outcome of an entry.
func (a *audit) event(e *transfer.Event) {
	if a == nil {
		return
	}
	outcome := outcomeWords[e.Kind]
	if outcome == "" {
		return
	}
	at := e.At
	if at == "" {
		at = sourcePath(a.roots, e.Entry.Path)
	}
	attrs := append(make([]any, 0, 16), pathAttrs(at)...)
	attrs = append(attrs, "kind", session.KindName(e.Entry.Kind), "outcome", outcome)
	if e.Kind == transfer.Committed {
		attrs = append(attrs, "bytes", max(0, e.Entry.Size))
		if e.Digest != [32]byte{} {
			attrs = append(attrs, "digest", digest.Hex(e.Digest))
		}
	}
	if e.Err != nil {
		attrs = append(attrs, "error", wire.Printable(e.Err.Error()))
	}
	a.log.Info("entry", attrs...)
}

// removed records that a snapshot of the session's series was removed, or could not be.
func (a *audit) removed(series, name string, err error) {
	if a == nil {
		return
	}
	outcome, attrs := "removed", pathAttrs(path.Join(series, name))
	if err != nil {
		outcome = "failed"
		attrs = append(attrs, "error", wire.Printable(err.Error()))
	}
	a.log.Info("snapshot", append(attrs, "outcome", outcome)...)
}

// pathAttrs returns a path and, if it is not valid UTF-8, its bytes.
func pathAttrs(p string) []any {
	if utf8.ValidString(p) {
		return []any{"path", p}
	}
	return []any{
		"path", strings.ToValidUTF8(p, "\ufffd"),
		"path_base64", base64.StdEncoding.EncodeToString([]byte(p)),
	}
}

// sourcePath returns where an entry of the manifest is in its tree.
func sourcePath(roots []transfer.Root, entry string) string {
	for _, r := range roots {
		if r.As == "" {
			return path.Join(r.Path, entry)
		}
		if rest, ok := strings.CutPrefix(entry, r.As); ok && (rest == "" || rest[0] == '/') {
			return path.Join(r.Path, rest)
		}
	}
	return entry
}

// session writes the last record of a session; later calls do nothing. bytes is negative if the
// session carried no files.
func (a *audit) session(ctx context.Context, paths []string, bytes int64, err error) {
	if a == nil || a.ended {
		return
	}
	a.ended = true
	level, attrs := slog.LevelInfo, []any{"paths", paths, "outcome", "done"}
	if err != nil {
		level = slog.LevelWarn
		attrs = []any{"paths", paths, "outcome", "ended", "error", wire.Printable(err.Error())}
	}
	if bytes >= 0 {
		attrs = append(attrs, "bytes", bytes)
	}
	a.log.Log(ctx, level, "session", attrs...)
}
