package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"log/slog"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// audit writes down what a client does in one session, if anybody wants that. Its records have who, what, and the outcome; when is the
// logger's. A nil *audit does nothing.
type audit struct {
	log   *slog.Logger
	roots []transfer.Root // of what is sent
}

// auditOf begins the records of a session.
func (g *guest) auditOf(m *wire.Hello) *audit {
	if g.server.opt.Audit == nil {
		return nil
	}
	log := g.server.opt.Audit.With("session", g.id, "client", cmp.Or(string(g.who.id), g.who.shown), "address", g.from.String(), "do", intentName(m.Intent))
	if name := g.name(); name != "" {
		log = log.With("name", name)
	}
	if m.Share != "" {
		log = log.With("share", m.Share)
	}
	return &audit{log: log}
}

// refused writes down that a client got no session.
func (s *Server) refused(ctx context.Context, conn transport.Conn, who caller, m *wire.Hello, err error) {
	if s.opt.Audit == nil {
		return
	}
	g := &guest{server: s, id: newRequestID(), who: who, from: addressOf(conn.RemoteAddr())}
	g.auditOf(m).session(ctx, m.Paths, -1, err)
}

// name is what the administrator calls the client.
func (g *guest) name() string {
	if c := g.server.rules.Load().clients[g.who.id]; c != nil {
		return c.Name
	}
	c, _, err := g.server.store.Client(g.who.id)
	if err != nil {
		return ""
	}
	return c.Comment
}

// outcomeWords are the last events of entries that are written down: what is left as it was is not.
var outcomeWords = map[transfer.EventKind]string{
	transfer.Committed: "committed", transfer.Done: "made", transfer.Removed: "removed", transfer.Failed: "failed",
}

func (a *audit) event(e transfer.Event) {
	outcome := outcomeWords[e.Kind]
	if a == nil || outcome == "" {
		return
	}
	at := e.At
	if at == "" {
		at = placeOf(a.roots, e.Entry.Path)
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

// pathAttrs are a path, and its bytes if they are no text.
func pathAttrs(p string) []any {
	if utf8.ValidString(p) {
		return []any{"path", p}
	}
	return []any{"path", strings.ToValidUTF8(p, "\ufffd"), "path_base64", base64.StdEncoding.EncodeToString([]byte(p))}
}

// placeOf is where an entry of the manifest is in its tree.
func placeOf(roots []transfer.Root, entry string) string {
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

// session ends the records of a session. bytes is negative where there are none.
func (a *audit) session(ctx context.Context, paths []string, bytes int64, err error) {
	if a == nil {
		return
	}
	level, attrs := slog.LevelInfo, []any{"paths", paths, "outcome", "done"}
	if err != nil {
		level, attrs = slog.LevelWarn, []any{"paths", paths, "outcome", "ended", "error", wire.Printable(err.Error())}
	}
	if bytes >= 0 {
		attrs = append(attrs, "bytes", bytes)
	}
	a.log.Log(ctx, level, "session", attrs...)
}
