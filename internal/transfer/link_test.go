package transfer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestLinksOfTheTransfer: a hard link goes to a file of the same transfer, also to one that an earlier
// session has left there. Only who may read another file may give it another name.
func TestLinksOfTheTransfer(t *testing.T) {
	at := time.Unix(1_600_000_000, 0)
	file := func(path string, size int64, named bool) wire.Entry {
		x := aFile(path, size)
		x.ModTime, x.Named = at.UnixNano(), named
		return x
	}
	link := func(to string, first uint64) wire.Entry {
		return wire.Entry{Kind: wire.Hardlink, Path: "link", Link: to, First: first, ModTime: at.UnixNano()}
	}
	share := func(rights identity.Rights) func(dir string) *access.Scope {
		return func(dir string) *access.Scope {
			folder, err := access.Open(dir)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, folder.Close()) })
			return folder.Client(access.Request{Share: "data", Rights: rights, Intent: wire.Push})
		}
	}
	const get, write, readWrite = "get", "write", "read and write"
	scopes := map[string]func(dir string) *access.Scope{
		get:   func(dir string) *access.Scope { return openTree(t, dir) },
		write: share(identity.Write), readWrite: share(identity.Read | identity.Write),
	}
	for name, c := range map[string]struct {
		entries []wire.Entry
		to      string
		may     []string
	}{
		"a file of the transfer":      {[]wire.Entry{file("new", 0, true), link("new", 0)}, "new", []string{get, write, readWrite}},
		"a file of an earlier one":    {[]wire.Entry{file("victim", 6, true), link("victim", 0)}, "victim", []string{get, write, readWrite}},
		"a file of another index":     {[]wire.Entry{file("new", 0, true), file("x", 0, true), link("new", 1)}, "new", []string{readWrite}},
		"a file beside the transfer":  {[]wire.Entry{file("new", 0, true), link("victim", 0)}, "victim", []string{readWrite}},
		"a file of one name":          {[]wire.Entry{file("new", 0, false), link("new", 0)}, "new", []string{readWrite}},
		"a file that is not in place": {[]wire.Entry{file("victim", 1, true), link("victim", 0)}, "victim", nil},
	} {
		for by, open := range scopes {
			t.Run(name+", "+by, func(t *testing.T) {
				dir := t.TempDir()
				victim := filepath.Join(dir, "victim")
				require.NoError(t, os.WriteFile(victim, []byte("secret"), 0o600))
				require.NoError(t, os.Chtimes(victim, at, at))
				o := faceSender(t, open(dir), ReceiverOptions{}, func(p *rawPeer) { p.finish(&wire.Manifest{}, c.entries...) })
				may := false
				for _, who := range c.may {
					may = may || who == by
				}
				got, err := os.Stat(filepath.Join(dir, "link"))
				require.Equal(t, may, err == nil, "%v %v", o.err, o.events)
				if may {
					want, err := os.Stat(filepath.Join(dir, c.to))
					require.NoError(t, err)
					require.True(t, os.SameFile(want, got))
				}
			})
		}
	}
}

// TestAliases: a symlink or pipe of the same transfer gets its other names. Where that is not possible
// or not allowed, there is another one like it: no entry of somebody else gets a name.
func TestAliases(t *testing.T) {
	at := time.Unix(1_600_000_000, 0)
	symlink := wire.Entry{Kind: wire.Symlink, Path: "one", Link: "x", ModTime: at.UnixNano(), Named: true}
	pipe := wire.Entry{Kind: wire.Fifo, Path: "one", Mode: 0o600, ModTime: at.UnixNano(), Named: true}
	alias := func(x wire.Entry, of string, first uint64) wire.Entry {
		x.Path, x.Alias, x.First = "two", of, first
		return x
	}
	for name, c := range map[string]struct {
		entries []wire.Entry
		there   string // has "x" as its target, and is not of the transfer
		may     bool   // be one with "one" or with what is there
		failed  bool
	}{
		"a symlink of the transfer":       {entries: []wire.Entry{symlink, alias(symlink, "one", 0)}, may: true},
		"a pipe of the transfer":          {entries: []wire.Entry{pipe, alias(pipe, "one", 0)}, may: true},
		"the same, and two are there":     {entries: []wire.Entry{symlink, alias(symlink, "one", 0)}, there: "two", may: true},
		"a symlink that is another":       {entries: []wire.Entry{pipe, alias(symlink, "one", 0)}},
		"a symlink that is not announced": {entries: []wire.Entry{symlink, alias(symlink, "theirs", 0)}, there: "theirs"},
		"an entry that comes later":       {entries: []wire.Entry{symlink, alias(symlink, "one", 1)}, failed: true},
		"outside":                         {entries: []wire.Entry{symlink, alias(symlink, "../one", 0)}, failed: true},
	} {
		for by, open := range map[string]func(t *testing.T, dir string) *access.Scope{
			"get": openTree, "write": func(t *testing.T, dir string) *access.Scope {
				folder, err := access.Open(dir)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, folder.Close()) })
				return folder.Client(access.Request{Share: "data", Rights: identity.Write, Intent: wire.Push})
			},
		} {
			t.Run(name+", "+by, func(t *testing.T) {
				dir := t.TempDir()
				if c.there != "" {
					require.NoError(t, os.Symlink("x", filepath.Join(dir, c.there)))
				}
				o := faceSender(t, open(t, dir), ReceiverOptions{}, func(p *rawPeer) { p.finish(&wire.Manifest{}, c.entries...) })
				two, err := os.Lstat(filepath.Join(dir, "two"))
				require.Equal(t, c.failed, err != nil, "%v %v", o.err, o.events)
				if c.failed {
					return
				}
				same := false
				for _, other := range []string{"one", "theirs"} {
					is, err := os.Lstat(filepath.Join(dir, other))
					same = same || err == nil && os.SameFile(is, two)
				}
				require.Equal(t, c.may, same, "%v", o.events)
			})
		}
	}
}

// TestNamedWithoutMemory: a session that gets no memory for files of several names forgets them, and
// goes on.
func TestNamedWithoutMemory(t *testing.T) {
	t.Parallel()
	account := NewAccount(10*namedMemory, nil)
	x := newTable(account, nil)
	x.memory.used = ownMemory
	for i := range uint64(20) {
		e := &receiving{index: i, entry: wire.Entry{Kind: wire.File, Path: "f", Named: true}}
		x.inPlace(e)
		require.Equal(t, i < 10, x.isInPlace(i, "f"), i)
		require.False(t, x.isInPlace(i, "other"))
	}
	x.end()
	require.True(t, account.TryTake(10*namedMemory), "all is given back")
}

// TestLinkToChangedFile: hard links wait for a file that comes again, under another index.
func TestLinkToChangedFile(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(1_600_000_000, 0)
	file := func(size int64) wire.Entry {
		x := aFile("file", size)
		x.ModTime, x.Named = at.UnixNano(), true
		return x
	}
	link := wire.Entry{Kind: wire.Hardlink, Path: "link", Link: "file", ModTime: at.UnixNano()}
	faceSender(t, openTree(t, dir), ReceiverOptions{}, func(p *rawPeer) {
		p.send(&wire.Manifest{}, entries(0, file(5), link), &wire.EndManifest{Count: 2})
		await[*wire.Answers](p)
		p.send(&wire.EndManifest{Count: 3}, &wire.EntryFailed{Index: 0, Code: wire.CodeAgain}, entries(2, file(0)))
		await[*wire.Finished](p)
	})
	one, err := os.Stat(filepath.Join(dir, "file"))
	require.NoError(t, err)
	two, err := os.Stat(filepath.Join(dir, "link"))
	require.NoError(t, err)
	require.True(t, os.SameFile(one, two))
}
