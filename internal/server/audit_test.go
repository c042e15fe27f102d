package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestAuditIsNotForged logs names and errors that look like lines of the audit log.
func TestAuditIsNotForged(t *testing.T) {
	forged := "x\n{\"msg\":\"entry\",\"outcome\":\"committed\"}\r\n time=now level=INFO msg=entry\u2028\x1b[2K\xff\x00"
	for _, asJSON := range []bool{true, false} {
		var out bytes.Buffer
		var handler slog.Handler = slog.NewTextHandler(&out, nil)
		if asJSON {
			handler = slog.NewJSONHandler(&out, nil)
		}
		s := &Server{opt: Options{Audit: slog.New(handler)}}
		s.live.Store(&liveSettings{clients: map[identity.Principal]*Admission{"k": {Name: forged}}})
		g := &reservation{server: s, id: "1", peer: peerIdentity{id: "k"}, from: netip.MustParseAddr("::1")}
		a := g.newAudit("receive", forged)
		a.event(&transfer.Event{Kind: transfer.Committed, Entry: &wire.Entry{Kind: wire.File, Path: forged, Size: 1}, At: forged, Digest: [32]byte{1}})
		a.event(&transfer.Event{Kind: transfer.Failed, Entry: &wire.Entry{Kind: wire.File, Path: forged}, Err: errors.New(forged)})
		a.event(&transfer.Event{Kind: transfer.Found, Entry: &wire.Entry{}})
		a.session(t.Context(), []string{forged}, 1, fmt.Errorf("%s", forged))
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		require.Len(t, lines, 3, "%s", out.String())
		for _, line := range lines {
			require.NotContains(t, line, "\r")
			require.NotContains(t, line, "\x1b")
			require.NotContains(t, line, "\u2028")
		}
		if asJSON {
			var first map[string]any
			require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
			require.Equal(t, strings.ToValidUTF8(forged, "\ufffd"), first["path"])
			require.Equal(t, "committed", first["outcome"])
			require.NotEmpty(t, first["path_base64"])
			require.Len(t, first["digest"], 64)
		}
	}
}
