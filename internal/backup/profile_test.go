package backup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/profile"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestProfile: a job's profile sets what the job does not set itself, and is read for each run.
func TestProfile(t *testing.T) {
	t.Parallel()
	c := Client{Home: t.TempDir()}
	_, err := c.options(&Job{Profile: "office"}, fxfer.Options{})
	require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err))
	require.NoError(t, (&profile.Profile{Streams: 32, Congestion: "bbr", Priority: fxfer.PriorityHigh}).Save(c.Home, "office", "a test"))
	opt, err := c.options(&Job{Profile: "office"}, fxfer.Options{})
	require.NoError(t, err)
	require.Equal(t, fxfer.Options{Home: c.Home, Streams: 32, Congestion: "bbr", Priority: fxfer.PriorityHigh}, opt)
	opt, err = c.options(&Job{Profile: "office", Streams: 4, Priority: fxfer.PriorityLow}, fxfer.Options{})
	require.NoError(t, err)
	require.Equal(t, fxfer.Options{Home: c.Home, Streams: 4, Congestion: "bbr"}, opt)
}
