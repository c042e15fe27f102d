package serve

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lines for people name an error only if there is one. Records for programs always have the key.
func TestLogWithoutError(t *testing.T) {
	for format, want := range map[string]string{
		"text": "level=INFO msg=ends files=1\n",
		"json": `"level":"INFO","msg":"ends","files":1,"error":null}` + "\n",
	} {
		var out strings.Builder
		s, err := (&logFlags{format: format, level: slog.LevelInfo}).open(&out, false)
		require.NoError(t, err)
		var none error
		s.log.Info("ends", "files", 1, "error", none)
		require.True(t, strings.HasSuffix(out.String(), want), out.String())
		s.log.Info("ends", "error", errors.New("lost"))
		require.Contains(t, out.String(), "lost")
		s.log.Warn("tries", "again in", 1500*time.Millisecond)
		require.Contains(t, out.String(), map[string]string{"text": `"again in"=1.5s`, "json": `"again in":1.5}`}[format])
	}
}
