package client

import (
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestOptionsCheck(t *testing.T) {
	files := func(yield func(string, error) bool) { yield("a", nil) }
	for want, o := range map[string]Options{ // "": accepted
		"":                      {},
		"of at most 32":         {Streams: 33},
		"no compression":        {Compress: "gzip"},
		"no sync policy":        {Target: Target{Sync: "always"}},
		"rule 2":                {Source: Source{Rules: []string{"*.o", "["}}},
		"negative size":         {Source: Source{MaxSize: -1}},
		"year 3000":             {Source: Source{NewerThan: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"at most -1 entries":    {Target: Target{Delete: true, MaxDelete: -1}},
		"a list of files":       {Target: Target{Delete: true}, Source: Source{Files: files}},
		`"../x" is no folder`:   {Target: Target{BackupDir: "../x"}},
		`"." is no folder`:      {Target: Target{BackupDir: "."}},
		`"/old" is no folder`:   {Target: Target{BackupDir: "/old"}},
		`".fxfer-x" is no fold`: {Target: Target{BackupDir: ".fxfer-x"}},
	} {
		o.MaxStreams = DefaultMaxStreams
		err := o.check()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
		require.Equal(t, session.KindUsage, session.KindOf(err))
	}
	require.ErrorContains(t, (&Options{Source: Source{Files: files}}).checkGet(), "not what is got")
	require.NoError(t, (&Options{Manifest: "m", Target: Target{Sync: session.SyncNone, Existing: true}}).checkStream())
	for _, o := range []Options{
		{Source: Source{Rules: []string{"a"}}}, {Source: Source{MaxSize: 1}}, {Source: Source{NewerThan: time.Now()}}, {Source: Source{OneFileSystem: true}},
		{Target: Target{Delete: true}}, {Target: Target{Checksum: true}}, {Target: Target{Update: true}}, {Target: Target{DryRun: true}},
	} {
		require.Equal(t, session.KindUsage, session.KindOf(o.checkStream()), "%+v", o)
	}
}

func TestTargetOnTheWire(t *testing.T) {
	require.Equal(t, wire.Target{MaxDelete: -1, Delta: wire.DeltaAuto}, (&Target{}).wire())
	full := Target{Checksum: true, Update: true, Existing: true, IgnoreExisting: true, Sync: session.SyncFile, Readback: true, NumericIDs: true, Strict: true,
		Delete: true, MaxDelete: 3, BackupDir: "old", DryRun: true, Delta: DeltaChunks}
	require.Equal(t, wire.Target{
		Compare: wire.Compare{Checksum: true, Update: true, Existing: true, IgnoreExisting: true}, Sync: wire.SyncFile, Readback: true, NumericIDs: true,
		Delete: true, MaxDelete: 3, BackupDir: "old", DryRun: true, Delta: wire.DeltaChunks,
	}, full.wire())
}

// TestSelection: the filter that a server makes of a selection does what the options ask for.
func TestSelection(t *testing.T) {
	o := Options{Source: Source{Rules: []string{"*.o"}, MaxSize: 10, NewerThan: time.Unix(1000, 5)}}
	s := o.selection()
	f, err := session.FilterOf(&s)
	require.NoError(t, err)
	require.True(t, f.Skip("a.o", false, 1, time.Unix(2000, 0)))
	require.True(t, f.Skip("a", false, 11, time.Unix(2000, 0)))
	require.True(t, f.Skip("a", false, 1, time.Unix(1000, 5)))
	require.False(t, f.Skip("a", false, 1, time.Unix(1000, 6)))
}
