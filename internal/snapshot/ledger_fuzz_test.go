package snapshot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRecord writes a record that was read, and reads it again.
func FuzzRecord(f *testing.F) {
	for _, r := range []record{{kind: sessionBegins}, {kind: committed, path: "a", digest: [32]byte{1}}, {kind: link, path: "a/b", first: "c"}, {kind: failed, path: "d", why: "no"}} {
		f.Add(r.encode(), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if n := len(b) - 8; sum && n > 0 { // otherwise hardly any input would pass
			binary.BigEndian.PutUint32(b, uint32(n))
			binary.BigEndian.PutUint32(b[4:], crc32.ChecksumIEEE(b[8:]))
		}
		in := bytes.NewReader(b)
		r, n, err := readRecord(in)
		if err != nil {
			return
		}
		require.Equal(t, len(b)-in.Len(), n)
		again, _, err := readRecord(bytes.NewReader(r.encode()))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

// FuzzLine checks that reading lines of any bytes comes to an end.
func FuzzLine(f *testing.F) {
	f.Add([]byte("a  b\n"))
	f.Add([]byte("\\a  b\\n\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bufio.NewReader(bytes.NewReader(b))
		for lines := 0; ; lines++ {
			if _, _, err := readLine(in); err != nil {
				return
			}
			require.LessOrEqual(t, lines, len(b))
		}
	})
}
