package session

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"sync"

	"github.com/fxfer/fxfer/internal/disk"
	"lukechampine.com/blake3"
)

func HexDigest(d [32]byte) string { return hex.EncodeToString(d[:]) }

// DigestFile reads a regular file of a tree. The identity is that of the file while it was read.
func DigestFile(ctx context.Context, tree *disk.Tree, path string) (digest [32]byte, id disk.Identity, err error) {
	f, err := tree.OpenFile(path)
	if err != nil {
		return digest, id, err
	}
	defer f.Close()
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
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

// hasher digests one file after another.
type hasher struct {
	*blake3.Hasher
	buf [256 << 10]byte
}

var hashers = sync.Pool{New: func() any { return &hasher{Hasher: blake3.New(32, nil)} }}
