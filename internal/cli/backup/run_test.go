package backup

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// People see the warnings in a job's log, each in one line.
func TestWarnings(t *testing.T) {
	var errs strings.Builder
	log := slog.New(&warnings{&runDisplay{errs: &errs}, "home"}).With("job", "home", "due", time.Now())
	log.Info("run begins")
	log.Warn("hook \"x\nfxfer: error\": exit status 1")
	log.Warn("attempt failed", "error", errors.New("the line is away"), "again in", time.Minute)
	log.Warn("notification failed", "job", "home", "try", 2)
	require.Equal(t, "fxfer: warning: home: hook \"x; fxfer: error\": exit status 1\n"+
		"fxfer: warning: home: attempt failed: the line is away, again in 1m0s\n"+
		"fxfer: warning: home: notification failed: try 2\n", errs.String())
}
