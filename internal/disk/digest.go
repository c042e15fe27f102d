package disk

import (
	"context"
	"errors"
	"io"
	"sync"

	"lukechampine.com/blake3"
)

// Digest reads a regular file and returns its BLAKE3 digest and its identity. A file that changes
// while it is read is an error.
func (t *Tree) Digest(ctx context.Context, path string) (digest [32]byte, id Identity, err error) {
	f, err := t.OpenFile(path)
	if err != nil {
		return digest, id, err
	}
	defer f.Close()
	h := digesters.Get().(*digester)
	defer digesters.Put(h)
	h.Reset()
	for off := int64(0); ; {
		n, err := f.ReadAt(h.buf[:], off)
		_, _ = h.Write(h.buf[:n]) // never fails
		off += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return digest, id, err
		}
		if ctx.Err() != nil {
			return digest, id, context.Cause(ctx)
		}
	}
	if err := f.Unchanged(); err != nil {
		return digest, id, err
	}
	h.Sum(digest[:0])
	return digest, f.Identity(), nil
}

// digester digests one file after another.
type digester struct {
	*blake3.Hasher
	buf [256 << 10]byte
}

var digesters = sync.Pool{New: func() any { return &digester{Hasher: blake3.New(32, nil)} }}
