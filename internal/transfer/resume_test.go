package transfer

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// leftOver lets an earlier run leave all blocks of a file but the last one, and damages some. It
// returns the content.
func leftOver(t *testing.T, dir string, x wire.Entry, damaged ...int64) []byte {
	t.Helper()
	content := make([]byte, x.Size)
	_, _ = rand.Read(content)
	part, err := openTree(t, dir).Partial(disk.Meta{Path: x.Path, Size: x.Size, ID: disk.Identity{Size: x.Size, ModTime: x.ModTime}}, smallBlock, disk.TargetOptions{})
	require.NoError(t, err)
	for b := range blocksOf(x.Size, x.BlockLog) - 1 {
		_, err := part.WriteAt(content[b*smallBlock:][:smallBlock], b*smallBlock)
		require.NoError(t, err)
		require.NoError(t, part.Mark(b, digestOfBlock(b, content[b*smallBlock:][:smallBlock])))
	}
	require.NoError(t, part.Close())
	files, err := filepath.Glob(filepath.Join(dir, ".fxfer-*.part"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	for _, b := range damaged {
		_, err = f.WriteAt([]byte("damage"), b*smallBlock)
		require.NoError(t, err)
	}
	return content
}

// endOf is the end of an entry without holes.
func endOf(content []byte) *wire.EndEntry {
	var tree digest.Tree
	var hash digest.Hasher
	blocks := blocksOf(int64(len(content)), wire.MinBlockLog)
	for b := range blocks {
		hash.Reset(b << wire.MinBlockLog)
		hash.Write(content[b*smallBlock:][:lengthOf(int64(len(content)), wire.MinBlockLog, b)])
		tree.Add(b, hash.Sum())
	}
	digest, _ := tree.Root(blocks)
	return &wire.EndEntry{Size: int64(len(content)), Digest: digest}
}

// The sender resumes a file with a damaged block, and sends that block unasked while the receiver
// finds the damage. If the receiver acknowledged the block after Resend, the sender would take that
// for the acknowledgement of the block that it was asked for.
func TestResumeLateAcknowledgement(t *testing.T) {
	const blocks = 128
	x := aFile("a", blocks*smallBlock)
	const damaged = blocks - 2
	for range 10 {
		dst := t.TempDir()
		content := leftOver(t, dst, x, damaged)
		block := func(b int64) (wire.BlockHeader, []byte) {
			data := content[b*smallBlock:][:smallBlock]
			return wire.BlockHeader{Block: b, Digest: digestOfBlock(b, data)}, data
		}
		o := faceSender(t, openTree(t, dst), ReceiverOptions{Leave: true}, func(p *rawPeer) {
			h, data := block(damaged)
			h.Length = smallBlock
			head := make([]byte, wire.BlockHeaderLen)
			h.Put(head)
			begun := make(chan struct{})
			go func() { // it waits for its entry
				defer close(begun)
				_, _ = p.data.Write(append(head, data[:smallBlock/2]...))
			}()
			p.send(&wire.Manifest{}, entries(0, x), &wire.EndManifest{Count: 1})
			if m := await[*wire.Resend](p); m == nil || len(m.Blocks) != 1 || m.Blocks[0].Start != damaged {
				return
			}
			<-begun
			_, _ = p.data.Write(data[smallBlock/2:])
			h, data = block(blocks - 1)
			p.block(h, data)
			acked := false
			for last := false; !last; {
				m := await[*wire.Written](p)
				if m == nil {
					return
				}
				for _, id := range m.Blocks {
					acked, last = acked || id.Block == damaged, last || id.Block == blocks-1
				}
			}
			if !acked {
				h, data = block(damaged)
				p.block(h, data)
			}
			p.send(endOf(content))
			p.wait()
		})
		require.NoError(t, o.err)
		got, err := os.ReadFile(filepath.Join(dst, "a"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
	}
}

// The receiver asks for damaged blocks only after the answer that they are there, however soon it
// finds the damage.
func TestResumeAnswerBeforeResend(t *testing.T) {
	x := aFile("a", 80*smallBlock)
	many := []wire.Entry{x}
	for i := range 500 {
		many = append(many, wire.Entry{Kind: wire.Dir, Path: fmt.Sprintf("dir%d", i), Mode: 0o755})
	}
	for range 5 {
		dst := t.TempDir()
		leftOver(t, dst, x, 0, 1, 2)
		var order []string
		faceSender(t, openTree(t, dst), ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, many...))
			for m := range p.in {
				switch m := m.(type) {
				case *wire.Answers:
					for _, a := range m.Answers {
						if a.Index == 0 && a.Verdict == wire.Need {
							require.Equal(t, []wire.Extent{{Count: 79}}, a.Have)
							order = append(order, "answer")
						}
					}
				case *wire.Resend:
					require.Equal(t, []wire.Extent{{Count: 3}}, m.Blocks)
					order = append(order, "resend")
					return
				}
			}
		})
		require.Equal(t, []string{"answer", "resend"}, order)
	}
}
