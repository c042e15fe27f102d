package identity

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestRights(t *testing.T) {
	for text, r := range map[string]Rights{"rw": Read | Write, "ro": Read, "wo": Write, "list": List, "write+list": Write | List} {
		parsed, err := ParseRights(text)
		require.NoError(t, err)
		require.Equal(t, r, parsed)
		require.Equal(t, text, r.String())
	}
	for _, s := range []string{"", "r", "RW", "none", "wr", "read+", "rw+list"} {
		_, err := ParseRights(s)
		require.ErrorContains(t, err, "expected rw, ro, wo")
	}
	require.Equal(t, "none", Rights(0).String())
	require.True(t, (Read | Write).Has(Write))
	require.False(t, Read.Has(Read|Write))
	require.True(t, Read.Has(List))
	require.False(t, Write.Has(List))
	require.Equal(t, List, Read.And(List|Write))
}

func TestCheckShare(t *testing.T) {
	for _, name := range []string{"data", "My Files", "a=b,c#d%", "Müll", "..a", long("a", 255)} {
		require.NoError(t, CheckShare(name), name)
	}
	for _, name := range []string{"", ".", "..", "*", "a/b", "a\nb", "a\x00", "\x7f", "\xff", long("a", 256)} {
		require.Error(t, CheckShare(name), name)
	}
}

func TestGrants(t *testing.T) {
	for text, want := range map[string]Grants{
		"data=rw":           {"data": Read | Write},
		"*=rw":              {"*": Read | Write},
		"*=rw,old=ro":       {"*": Read | Write, "old": Read},
		"My%20Files=wo":     {"My Files": Write},
		"a%3Db%2C%23%25=ro": {"a=b,#%": Read},
	} {
		g, err := ParseGrants(text)
		require.NoError(t, err, text)
		require.Equal(t, want, g)
		require.Equal(t, text, g.String())
	}
	for text, want := range map[string]string{
		"":            "is not a grant",
		"data":        "is not a grant",
		"data=rw,":    "is not a grant",
		"data=x":      `"x" is not a right`,
		"data=rw=ro":  `"rw=ro" is not a right`,
		"=rw":         "is empty",
		"..=rw":       "can't be the name",
		"a%2Fb=rw":    "without slashes",
		"%2A=rw":      "can't be the name",
		"a%zz=rw":     "hexadecimal",
		"a=ro,%61=wo": `"a" is named twice`,
	} {
		_, err := ParseGrants(text)
		require.ErrorContains(t, err, want, text)
	}

	g := Grants{"*": Read | Write, "old": Read}
	require.Equal(t, Read|Write, g.On("data"))
	require.Equal(t, Read, g.On("old"))
	require.Zero(t, Grants(nil).On("data"))
}

func TestGrantsMerge(t *testing.T) {
	shares := []string{"a", "b", "c"}
	for _, c := range []struct{ g, other, want Grants }{
		{nil, Grants{"a": Read}, Grants{"a": Read}},
		{Grants{"a": Read}, Grants{"a": Write, "b": Read}, Grants{"a": Read | Write, "b": Read}},
		{Grants{"*": Read}, Grants{"a": Write}, Grants{"*": Read, "a": Read | Write}},
		{Grants{"*": Read | Write, "a": Read}, Grants{"*": Write}, Grants{"*": Read | Write, "a": Read | Write}},
		{Grants{"*": Write, "a": Read}, Grants{"b": Read}, Grants{"*": Write, "a": Read, "b": Read | Write}},
	} {
		merged := c.g.Merge(c.other)
		require.Equal(t, c.want, merged)
		require.Equal(t, merged, c.other.Merge(c.g))
		for _, share := range shares {
			require.Equal(t, c.g.On(share)|c.other.On(share), merged.On(share))
		}
	}
}

func TestAuthorized(t *testing.T) {
	s := openTemp(t)
	one, two := testKey(1), testKey(2)
	_, ok, err := authorized(s, one)
	require.NoError(t, err)
	require.False(t, ok)

	require.NoError(t, s.Admit(Principal(PinOf(one)), Grants{"data": Read}, "  laptop\nof \x1b[31m\u202eann\t# 2 "))
	require.NoError(t, s.Admit(Principal(PinOf(two)), Grants{"*": Read | Write}, ""))
	require.Equal(t, clientsHeader+
		string(PinOf(one))+" data=ro  # laptop of [31m ann # 2\n"+
		string(PinOf(two))+" *=rw\n", readText(t, s.path(clientsFile)))
	requireMode(t, s.path(clientsFile), 0o600)

	grants, ok, err := authorized(s, one)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Grants{"data": Read}, grants)
	grants["data"] = Write // the caller's own copy
	grants, _, _ = authorized(s, one)
	require.Equal(t, Grants{"data": Read}, grants)

	// An invitation adds rights. It keeps an existing comment, and adds one where there is none.
	require.NoError(t, s.Enrol(Principal(PinOf(one)), Grants{"data": Write, "in": Write}, "other"))
	require.NoError(t, s.Enrol(Principal(PinOf(two)), Grants{"data": Read}, "server"))
	require.Equal(t, clientsHeader+
		string(PinOf(one))+" data=rw,in=wo  # laptop of [31m ann # 2\n"+
		string(PinOf(two))+" *=rw,data=rw  # server\n", readText(t, s.path(clientsFile)))
	before := readText(t, s.path(clientsFile))
	require.NoError(t, s.Enrol(Principal(PinOf(one)), Grants{"data": Read}, "third"))
	require.Equal(t, before, readText(t, s.path(clientsFile)))

	// Admitting a client again sets what is named, and nothing else.
	require.NoError(t, s.Admit(Principal(PinOf(one)), Grants{"data": Read}, ""))
	require.NoError(t, s.Admit(Principal(PinOf(two)), Grants{"*": Read, "new": Write}, "nas"))
	require.Equal(t, clientsHeader+
		string(PinOf(one))+" data=ro,in=wo  # laptop of [31m ann # 2\n"+
		string(PinOf(two))+" *=ro,data=rw,new=wo  # nas\n", readText(t, s.path(clientsFile)))

	for _, bad := range []Grants{nil, {}, {"data": 0}, {"data": 128}, {"a/b": Read}} {
		require.Error(t, s.Admit(Principal(PinOf(one)), bad, ""))
	}
	require.Error(t, s.Admit("no pin", Grants{"data": Read}, ""))
}

func TestRevoke(t *testing.T) {
	s := openTemp(t)
	one, two := testKey(1), testKey(2)
	require.NoError(t, s.Admit(Principal(PinOf(one)), Grants{"data": Read}, "one"))
	require.NoError(t, s.Admit(Principal(PinOf(two)), Grants{"data": Write}, "two"))
	require.NoError(t, s.Revoke(Principal(PinOf(one))))
	require.NoError(t, s.Revoke(Principal(PinOf(testKey(3))))) // not known, and not to be
	_, ok, err := authorized(s, one)
	require.NoError(t, err)
	require.False(t, ok)
	list, err := s.Clients()
	require.NoError(t, err)
	require.Equal(t, []Client{
		{ID: Principal(PinOf(one)), Revoked: true, Comment: "one"}, {ID: Principal(PinOf(two)), Grants: Grants{"data": Write}, Comment: "two"},
		{ID: Principal(PinOf(testKey(3))), Revoked: true},
	}, list)

	// Rights elsewhere in the file do not help. Admitting the client again does, and leaves no
	// trace.
	text := readText(t, s.path(clientsFile))
	write(t, s.path(clientsFile), text+string(PinOf(one))+" data=rw\n")
	_, ok, _ = authorized(s, one)
	require.False(t, ok)
	require.NoError(t, s.Admit(Principal(PinOf(one)), Grants{"other": Write}, ""))
	grants, ok, _ := authorized(s, one)
	require.True(t, ok)
	require.Equal(t, Grants{"other": Write}, grants)
	require.Equal(t, 1, strings.Count(readText(t, s.path(clientsFile)), string(PinOf(one))))
	require.Error(t, s.Revoke("no pin"))
}

func TestAuthorizedBadLines(t *testing.T) {
	s := openTemp(t)
	one, two, three := testKey(1), testKey(2), testKey(3)
	text := "# staff\n" + string(PinOf(one)) + " a=ro # ann\r\n" + string(PinOf(two)) + " a=everything\n\nnonsense\n" + string(PinOf(one)) + " b=wo"
	write(t, s.path(clientsFile), text)

	grants, ok, err := authorized(s, one)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Grants{"a": Read, "b": Write}, grants)

	want := s.path(clientsFile) + `:3: "everything" is not a right: expected rw, ro, wo, or some of read, write, list and append with + between them (and 1 more bad line)`
	_, ok, err = authorized(s, two)
	require.EqualError(t, err, want)
	require.False(t, ok)
	require.EqualError(t, s.CheckAuthorized(), want)

	// Adding leaves the other lines alone, including bad ones.
	require.NoError(t, s.Admit(Principal(PinOf(three)), Grants{"a": Read}, "c"))
	require.Equal(t, text+"\n"+string(PinOf(three))+" a=ro  # c\n", readText(t, s.path(clientsFile)))
	require.NoError(t, s.Admit(Principal(PinOf(two)), Grants{"a": Write}, ""))
	grants, ok, err = authorized(s, two)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Grants{"a": Write}, grants)
}

// Every edit acts at the next call: an edit in place with the same size, a new file with the old
// time stamp, and a removal.
func TestAuthorizedSeesEdits(t *testing.T) {
	s := openTemp(t)
	key := testKey(1)
	path := s.path(clientsFile)
	rights := func() string {
		grants, _, err := authorized(s, key)
		require.NoError(t, err)
		return grants.On("a").String()
	}
	line := func(rights string) string { return string(PinOf(key)) + " a=" + rights + "\n" }
	for _, r := range []string{"ro", "wo", "rw", "ro", "wo"} {
		write(t, path, line(r))
		require.Equal(t, r, rights())
	}

	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	require.Equal(t, "wo", rights())
	s.clients.list[0].Grants["a"] = Read // shows whether memory or the file answers
	require.Equal(t, "ro", rights())

	write(t, path+".new", line("rw"))
	require.NoError(t, os.Chtimes(path+".new", old, old))
	require.NoError(t, os.Rename(path+".new", path))
	require.Equal(t, "rw", rights())

	require.NoError(t, os.Remove(path))
	require.Equal(t, "none", rights())
	require.NoError(t, s.CheckAuthorized())

	// An unreadable list admits nobody, whatever it contained before.
	write(t, path, line("rw"))
	require.Equal(t, "rw", rights())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	_, ok, err := authorized(s, key)
	require.Error(t, err)
	require.False(t, ok)
	require.Error(t, s.CheckAuthorized())
}

func TestAdmitConcurrently(t *testing.T) {
	s := openTemp(t)
	var g errgroup.Group
	for n := range 20 {
		g.Go(func() error {
			key := testKey(byte(n % 4))
			if err := s.Admit(Principal(PinOf(key)), Grants{fmt.Sprintf("s%d", n): Read}, ""); err != nil {
				return err
			}
			_, _, err := authorized(s, key)
			return err
		})
	}
	require.NoError(t, g.Wait())
	for n := range 20 {
		grants, _, err := authorized(s, testKey(byte(n%4)))
		require.NoError(t, err)
		require.Equal(t, Read, grants.On(fmt.Sprintf("s%d", n)))
	}
	requireOnly(t, s, clientsFile, lockFile)
}

func TestCleanComment(t *testing.T) {
	require.Equal(t, "a b", cleanComment("\x00 a\r\n\u2028\xff b\x1b"))
	require.Equal(t, "Grüße 火", cleanComment("Grüße 火"))
	require.Equal(t, long("é", 100), cleanComment(long("é", 500)))
	require.Equal(t, "", cleanComment("\n\t"))
}

func FuzzClientList(f *testing.F) {
	pin := string(PinOf(testKey(1)))
	f.Add(pin+" a=ro,b=wo # x\n\nbad\n"+pin+" *=rw", "data", uint8(1), "hello")
	f.Add(string(PinOf(testKey(2)))+" a%20b=rw\r\n", "a b", uint8(2), "a\n"+pin+" *=rw")
	f.Fuzz(func(t *testing.T, text, share string, bits uint8, comment string) {
		before, _, _ := parseClients(text, "file")
		others := func(list []Client) []Client {
			return slices.DeleteFunc(slices.Clone(list), func(c Client) bool { return c.ID == Principal(pin) })
		}
		var had Grants
		for _, c := range before {
			_, err := ParsePrincipal(string(c.ID))
			require.NoError(t, err)
			if c.ID == Principal(pin) && !c.Revoked {
				had = c.Grants
			}
			if c.Grants == nil {
				require.True(t, c.Revoked)
				continue
			}
			require.NoError(t, c.Grants.check())
			again, err := ParseGrants(c.Grants.String())
			require.NoError(t, err)
			require.Equal(t, c.Grants, again)
		}
		grants := Grants{share: Rights(bits)}
		if grants.check() != nil {
			return
		}
		// Whatever an unauthenticated client puts into its comment, only its own rights change as
		// asked, and no other line changes.
		set := maps.Clone(had)
		if set == nil {
			set = Grants{}
		}
		set[share] = grants[share].normal() // the file does not name what others include
		want := []Grants{had.Merge(grants), set}
		for i, join := range []func(Client, *Client) error{mergeRights, replaceRights} {
			c := Client{ID: Principal(pin), Grants: grants, Comment: cleanComment(comment)}
			grown, err := addClient(text, c, join)
			if errors.Is(err, ErrRevoked) {
				require.Nil(t, had)
				continue
			}
			require.NoError(t, err)
			after, byID, _ := parseClients(grown, "file")
			require.Equal(t, want[i], after[byID[Principal(pin)]].Grants)
			require.False(t, after[byID[Principal(pin)]].Revoked)
			require.Equal(t, append([]Client{}, others(before)...), append([]Client{}, others(after)...))
			added := strings.Count(grown, "\n") - strings.Count(text, "\n")
			require.LessOrEqual(t, added, 2)
		}
	})
}
