package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestVerifyHostile: a server breaks the protocol, or names files outside the folder.
func TestVerifyHostile(t *testing.T) {
	v := &verifier{manifest: map[string][32]byte{}}
	batch := &wire.Entries{Entries: []wire.Entry{{Kind: wire.File, Path: "a"}, {Kind: wire.Dir, Path: "b"}}}
	_, err := v.take(batch)
	require.NoError(t, err)
	v.begin(batch)
	_, err = v.take(batch)
	require.ErrorContains(t, err, "out of order", "numbers again")
	for _, index := range []uint64{2, wire.NoEntry} {
		_, err = v.take(&wire.Digests{Digests: []wire.EntryDigest{{Index: index}}})
		require.ErrorContains(t, err, "unknown entry")
	}
	_, err = v.take(&wire.EntryFailed{Index: 77, Text: "x"})
	require.NoError(t, err, "of no matter")
	require.ErrorContains(t, v.compare(t.Context(), &v.batch[0]), "without its digest")

	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
	dir := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	tree, err := access.OpenSource(dir)
	require.NoError(t, err)
	defer tree.Close()
	var found []Difference
	v = &verifier{tree: tree, findings: findings{call: Verification{Difference: func(d Difference) { found = append(found, d) }}}}
	for _, path := range []string{"../" + filepath.Base(outside) + "/secret", "link/secret", "/etc/passwd", "", "a\x00"} {
		require.NoError(t, v.compare(t.Context(), &compared{entry: wire.Entry{Kind: wire.File, Path: path, Size: 1}, digest: new([32]byte)}))
	}
	require.Len(t, found, 5)
	for _, d := range found {
		require.Equal(t, session.Extra, d.Finding, d.Path)
	}
}

// TestVerifyWide compares more names and failures than fit a message.
func TestVerifyWide(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	here := t.TempDir()
	long := strings.Repeat("n", 240)
	for i := range 3000 {
		name := long + string(rune('a'+i/100)) + string(rune('a'+i%100))
		for j, dir := range []string{s.dir, here} {
			if (i+j)%500 != 0 { // 6 are missing on each side
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte{byte(i)}, 0o600))
			}
		}
	}
	u := s.invited(t)
	count := map[session.Finding]int{}
	c := newClient(t, t.TempDir(), Options{})
	sum, err := c.Verify(t.Context(), u, here, Verification{Difference: func(d Difference) { count[d.Finding]++ }})
	require.Equal(t, session.KindPartial, session.KindOf(err), "%v", err)
	require.Equal(t, map[session.Finding]int{session.Missing: 6, session.Extra: 6}, count)
	require.Equal(t, []int64{2994, 2988, 6, 6, 0, 0}, []int64{sum.Files, sum.Same, sum.Missing, sum.Extra, sum.Different, sum.Unreadable})

	_, err = c.Verify(t.Context(), s.plain(t, "none"), here, Verification{})
	require.Equal(t, session.KindNotFound, session.KindOf(err), "%v", err)
	_, err = c.Verify(t.Context(), s.plain(t, ""), filepath.Join(here, "none"), Verification{})
	require.Equal(t, session.KindLocalDisk, session.KindOf(err))
}
