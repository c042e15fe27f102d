package backup

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/backup"
)

// People see the warnings in a job's log, each in one line.
func TestWarnings(t *testing.T) {
	var errs strings.Builder
	log := slog.New(&warnings{&runDisplay{errs: &errs}, "home"}).With("job", "home", "due", time.Now())
	log.Info("run begins")
	log.Warn("hook \"x\nfxfer: error\": exit status 1")
	for range 2 {
		log.Warn("attempt failed", "error", errors.New("the line is away"), "again in", time.Minute, backup.GivesUpIn, 3*time.Minute)
	}
	log.Warn("notification failed", "job", "home", "try", 2)
	require.Equal(t, "fxfer: warning: home: hook \"x; fxfer: error\": exit status 1\n"+
		"fxfer: warning: home: attempt failed: the line is away, again in 1m0s, gives up in 3m0s\n"+
		"fxfer: hint: Ctrl-C ends it, and the same command resumes; with --retries 0, it does not wait\n"+
		"fxfer: warning: home: attempt failed: the line is away, again in 1m0s, gives up in 3m0s\n"+
		"fxfer: warning: home: notification failed: try 2\n", errs.String())
}
