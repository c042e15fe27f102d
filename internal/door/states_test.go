package door

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
)

// list is a Forwarder with a list.
type list []Forwarded

func (l list) States() ([]Forwarded, bool, error) { return l, false, nil }

func (l list) StatesOf(paths []string) (some []Forwarded, err error) {
	for _, f := range l {
		if slices.Contains(paths, f.Path) {
			some = append(some, f)
		}
	}
	return some, nil
}

func (list) Confirm(context.Context, string) (string, error) { return "", nil }

// statesOf returns a session whose share has this list.
func statesOf(texts *Texts, rights identity.Rights, files []Forwarded) *session {
	return &session{Session: &Session{
		Ctx: context.Background(), Rights: rights, Forward: func() Forwarder { return list(files) }, Texts: texts,
		Needs: func(_ context.Context, right identity.Rights) error {
			if !rights.Has(right) {
				return fs.ErrPermission // and the session ends
			}
			return nil
		},
	}, own: make(map[string]bool)}
}

// TestTexts opens texts of many files: they take little memory.
func TestTexts(t *testing.T) {
	t.Parallel()
	var files []Forwarded
	for i := range 50_000 { // more than fit
		files = append(files, Forwarded{Path: fmt.Sprintf("%s-%d", strings.Repeat("long", 50), i), State: "waiting"})
	}
	var texts Texts
	a, b := statesOf(&texts, identity.List, files), statesOf(&texts, identity.List, files)
	one, err := a.states()
	require.NoError(t, err)
	two, err := b.states()
	require.NoError(t, err)
	require.Same(t, one, two, "who may list them share a text")
	require.LessOrEqual(t, len(one.all), maxStates)
	for n := 1000; n < 16_000; n += n / 4 { // for some, a buffer that doubles is far too large
		x := textOf(files[:n], false)
		require.Less(t, cap(x.all), len(x.all)*5/4)
	}
	require.True(t, bytes.HasSuffix(one.all, []byte("\n"+cutLine)))

	f, err := a.open(one)
	require.NoError(t, err)
	_, err = a.open(one)
	require.ErrorIs(t, err, disk.ErrTooManyFiles)
	_, err = b.open(two)
	require.NoError(t, err, "another connection")
	require.NoError(t, f.Close())
	_, err = a.open(one)
	require.NoError(t, err)

	files = append([]Forwarded{{Path: "new"}}, files...)
	three, err := statesOf(&texts, identity.List, files).states()
	require.NoError(t, err)
	require.NotEqual(t, one.id, three.id)

	wo := statesOf(&texts, identity.Write, files)
	wo.own["new"] = true
	own, err := wo.states()
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(own.all, []byte("\n")), "none is left out")
	require.Equal(t, cutLine, string(textOf(nil, true).all))
	for range 100 { // short ones do not count for much
		_, err = wo.open(own)
		require.NoError(t, err)
	}
}

// TestStatesRights asks for the file without a right that it takes: that does not end the session.
func TestStatesRights(t *testing.T) {
	t.Parallel()
	_, err := statesOf(new(Texts), identity.Append, nil).states()
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, right := range []identity.Rights{identity.Read, identity.List, identity.Write} {
		_, err := statesOf(new(Texts), right, nil).states()
		require.NoError(t, err)
	}
}
