package transfer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestOpenFiles: a session for whose files there is no room has to come again, others have room, and
// all of it is given back.
func TestOpenFiles(t *testing.T) {
	const most = 80
	all := NewOpenFiles(most)
	greedy, other := all.Client(), all.Client()
	tree, err := access.OpenTarget(t.TempDir(), access.Asked{Base: "."})
	require.NoError(t, err)
	defer func() { require.NoError(t, tree.Close()) }()
	var files []wire.Entry
	for i := range most {
		files = append(files, aFile(fmt.Sprint(i), 2*smallBlock))
	}
	o := faceSender(t, tree, ReceiverOptions{Files: greedy}, func(p *rawPeer) {
		p.send(&wire.Manifest{}, entries(0, files[:5]...))
		await[*wire.Answers](p)
		require.NoError(t, other.Take())
		other.Give(1)
		p.send(entries(5, files[5:]...))
		p.wait()
	})
	var known *wire.Error
	require.ErrorAs(t, o.err, &known)
	require.Equal(t, wire.CodeBusy, known.Code)
	require.Equal(t, most, all.left)
	require.Zero(t, greedy.has)

	for greedy.Take() == nil {
	}
	require.Equal(t, most*3/4, greedy.has)
	for range 3 {
		require.NoError(t, other.Take())
	}
	o = faceSender(t, tree, ReceiverOptions{}, func(p *rawPeer) {
		p.send(&wire.Manifest{}, entries(0, files...))
		require.NotNil(t, await[*wire.Answers](p), "a session without a bound")
	})
	require.NotErrorAs(t, o.err, &known)
}
