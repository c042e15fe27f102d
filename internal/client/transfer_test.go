package client

import (
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestOptionsCheck(t *testing.T) {
	for want, o := range map[string]Options{ // "": accepted
		"":               {},
		"of at most 32":  {Streams: 33, MaxStreams: DefaultMaxStreams},
		"no compression": {Compress: "gzip"},
	} {
		requireUsage(t, want, o.fill())
	}
}

// requireUsage: err is of KindUsage and contains a text, or nil if that is "".
func requireUsage(t *testing.T, text string, err error) {
	t.Helper()
	if text == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, text)
	require.Equal(t, session.KindUsage, session.KindOf(err))
}

func TestTransferCheck(t *testing.T) {
	files := func(yield func(string, error) bool) { yield("a", nil) }
	for want, call := range map[string]Transfer{ // "": accepted
		"":                       {},
		"no sync policy":         {Target: Target{Sync: "always"}},
		"no delta":               {Target: Target{Delta: "most"}},
		"rule 2":                 {Selection: Selection{Rules: []string{"*.o", "["}}},
		"negative size":          {Selection: Selection{MaxSize: -1}},
		"year 3000":              {Selection: Selection{NewerThan: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"at most -1 entries":     {Target: Target{Delete: true, MaxDelete: -1}},
		"a list of files":        {Target: Target{Delete: true}, Selection: Selection{Files: files}},
		`"../x" is not a folder`: {Target: Target{BackupDir: "../x"}},
		`"." is not a folder`:    {Target: Target{BackupDir: "."}},
		`"/old" is not a folder`: {Target: Target{BackupDir: "/old"}},
		`".fxfer-x" is not a f`:  {Target: Target{BackupDir: ".fxfer-x"}},
	} {
		requireUsage(t, want, call.check())
	}
	require.ErrorContains(t, (&Transfer{Selection: Selection{Files: files}}).checkGet(), "not what is got")
	c, u := &Client{}, session.URL{Host: "h", Share: "s", Path: "f"}
	_, err := c.Send(t.Context(), nil, u, Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
	_, err = c.SendStream(t.Context(), nil, u, Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
	_, err = c.GetTo(t.Context(), u, nil, Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
	require.NoError(t, (&Transfer{Manifest: "m", Target: Target{Sync: session.SyncNone, Existing: true}}).checkStream())
	for _, call := range []Transfer{
		{Selection: Selection{Rules: []string{"a"}}}, {Selection: Selection{MaxSize: 1}},
		{Selection: Selection{NewerThan: time.Now()}}, {Selection: Selection{OneFileSystem: true}},
		{Target: Target{Delete: true}}, {Target: Target{Checksum: true}}, {Target: Target{Update: true}}, {Target: Target{DryRun: true}},
	} {
		require.Equal(t, session.KindUsage, session.KindOf(call.checkStream()), "%+v", call)
	}
	require.NoError(t, (&Transfer{Target: Target{Readback: true}}).checkGetTo())
	for _, call := range []Transfer{
		{Selection: Selection{Rules: []string{"a"}}}, {Target: Target{Delete: true}}, {Target: Target{DryRun: true}},
		{Target: Target{Existing: true}}, {Target: Target{BackupDir: "b"}}, {Target: Target{Snapshot: SnapshotAuto}},
	} {
		require.Equal(t, session.KindUsage, session.KindOf(call.checkGetTo()), "%+v", call)
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

// TestSelection: the filter that a server makes of a selection does what was asked for.
func TestSelection(t *testing.T) {
	o := Selection{Rules: []string{"*.o"}, MaxSize: 10, NewerThan: time.Unix(1000, 5)}
	s := o.wire("")
	f, err := session.FilterOf(&s)
	require.NoError(t, err)
	require.True(t, f.Skip("a.o", false, 1, time.Unix(2000, 0)))
	require.True(t, f.Skip("a", false, 11, time.Unix(2000, 0)))
	require.True(t, f.Skip("a", false, 1, time.Unix(1000, 5)))
	require.False(t, f.Skip("a", false, 1, time.Unix(1000, 6)))
}
