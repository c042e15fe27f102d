package client

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
	"pgregory.net/rapid"
)

// play is a world in which three clients do one thing after the other. The model is that of the
// matrix, but says only what must not be: what earlier steps left decides about the rest.
type play struct {
	*world
	clients []identity.Rights
	owners  map[string]int // of series
}

// seenBy returns the cell as the matrix would call it for a client.
func (y *play) seenBy(client int, c cell) cell {
	dir, rest, _ := strings.Cut(c.place, " ")
	owner, owned := y.owners[dir]
	switch {
	case !owned || c.does != "store" && (dir == "fresh" || dir == "plain"):
		return c
	case owner == client:
		dir = "own"
	default:
		dir = "theirs"
	}
	c.place = strings.TrimSpace(dir + " " + rest)
	return c
}

func drawCell(t *rapid.T, rights identity.Rights) cell {
	pick := func(of []string, label string) string { return rapid.SampledFrom(of).Draw(t, label) }
	c := cell{rights: rights, does: pick(append([]string{"push", "push", "push", "store", "store", "expire"}, reads...), "does")}
	c.place = pick(places, "place")
	switch c.does {
	case "push":
		c.option, c.kind, c.above = pick(pushes, "option"), pick(kinds, "kind"), rapid.Bool().Draw(t, "above")
	case "store":
		c.option, c.place = pick(stores, "option"), pick(storedAt, "place")
	case "expire", "scrub":
		c.place = pick([]string{"own", "theirs"}, "place")
	}
	return c
}

// without returns the lines that are neither about one of the paths or below it, nor about the
// world's own folder, whose time changes when something is made in it.
func (y *play) without(photo []string, paths ...string) []string {
	for _, p := range paths {
		about := y.of(photo, p)
		photo = slices.DeleteFunc(slices.Clone(photo), func(line string) bool { return slices.Contains(about, line) })
	}
	return slices.DeleteFunc(slices.Clone(photo), func(line string) bool { return strings.HasPrefix(line, y.in(".")+" ") })
}

// step has a client do something, and compares what happened with the model.
func (y *play) step(t *rapid.T, outer *testing.T, client int, c cell, before []string) (after []string) {
	as := y.seenBy(client, c)
	got := y.try(outer, c)
	after = y.photo(outer)

	at := y.pathOf(c.place)
	series := strings.Split(at, "/")[0]
	var changed []string // what may be
	if as.may() {
		changed = append(changed, at)
		if c.does != "push" {
			changed = []string{series}
		}
	}
	if c.option == "backup" && c.has(w) { // folders for what then may not be moved stay there
		changed = append(changed, "backup")
	}
	require.Equal(t, y.without(before, changed...), y.without(after, changed...), "%+v changes something else", as)
	for series := range y.owners {
		for _, name := range y.names {
			was, is := y.of(before, series+"/"+name), y.of(after, series+"/"+name)
			expired := c.does == "expire" && as.may() && len(is) == 0
			require.True(t, len(was) == 0 || expired || slices.Equal(was, is), "%+v changes the snapshot %s of %s", as, name, series)
		}
	}
	if _, owned := y.owners[series]; !owned && len(y.of(after, series+"/.fxfer-snapshots")) > 0 {
		y.owners[series] = client
	}

	names, digest := bytes.Contains(got, []byte(marker)), blake3.Sum256([]byte(secret))
	if slices.Contains(reads, c.does) {
		require.False(t, names && !as.sees(c.does != "list"), "%+v sees names", as)
	}
	require.False(t, names && !as.sees(false) && !as.has(r), "%+v is told names", as)
	require.False(t, bytes.Contains(got, digest[:]) && !as.has(r) && !(as.has(a) && as.place == "own"), "%+v is told digests", as)
	return after
}

// TestSequences: whatever three clients do one after the other in one share, each changes and learns
// only what it may.
func TestSequences(t *testing.T) {
	world := newWorlds(t, 1)[0]
	rapid.Check(t, func(rt *rapid.T) {
		y := &play{world, rapid.Permutation(allRights).Draw(rt, "clients")[:3], map[string]int{"own": 0, "theirs": 1}}
		y.fresh(t, y.principal(y.clients[0]), y.principal(y.clients[1]))
		now := y.photo(t)
		for range rapid.IntRange(2, 8).Draw(rt, "steps") {
			client := rapid.IntRange(0, 2).Draw(rt, "client")
			now = y.step(rt, t, client, drawCell(rt, y.clients[client]), now)
		}
	})
}
