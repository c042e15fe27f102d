package client

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// FuzzManifest: a list of digests is rejected, or it reads the same after fxfer has written it.
func FuzzManifest(f *testing.F) {
	sum := strings.Repeat("0a", 32)
	for _, s := range []string{sum + "  a\n", `\` + sum + `  a\\b\nc` + "\n", sum + "  a", sum + "  ../a\n" + sum + "  /a\n", sum + " a\n", "\n", strings.Repeat("x", maxManifestLine+2)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		name := filepath.Join(t.TempDir(), "list")
		require.NoError(t, os.WriteFile(name, text, 0o600))
		files, err := readManifest(name)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(files), bytes.Count(text, []byte("\n"))+1)
		m, err := newManifest(filepath.Join(t.TempDir(), "again"), nil)
		require.NoError(t, err)
		defer m.discard()
		lossy := false
		for p, sum := range files {
			require.Equal(t, path.Clean(p), p)
			lossy = lossy || strings.ToValidUTF8(p, "\ufffd") != p
			m.Add(&session.FileResult{Path: p, Outcome: session.Committed, Digest: digest.Hex(sum)}, &wire.Entry{Kind: wire.File})
		}
		require.NoError(t, m.finish(t.Context(), nil))
		again, err := readManifest(m.name)
		require.NoError(t, err)
		if !lossy {
			require.Equal(t, files, again)
		}
	})
}
