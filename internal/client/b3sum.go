package client

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/fxfer/fxfer/internal/session"
)

// escapeLine escapes a path as b3sum does.
var escapeLine = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// maxManifestLine bounds a line: a digest, and a path in which every byte is escaped.
const maxManifestLine = 64 + 3 + 2*4096

// readManifest reads a file in the format of b3sum. The error of a file in another format is of KindUsage.
func readManifest(name string) (map[string][32]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files := make(map[string][32]byte)
	in := bufio.NewReaderSize(f, maxManifestLine+1)
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return files, nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p, digest, ok := parseManifestLine(bytes.TrimSuffix(line, []byte{'\n'}))
		if !ok || errors.Is(err, bufio.ErrBufferFull) {
			return nil, session.Usage("compare with a folder, or with a file of digests made by --manifest or b3sum",
				"%s:%d: expected a digest, two spaces and a path", name, number)
		}
		files[p] = digest
	}
}

// parseManifestLine reads a digest and a path. A backslash before the digest says that the path is
// escaped.
func parseManifestLine(line []byte) (p string, digest [32]byte, ok bool) {
	line, escaped := bytes.CutPrefix(line, []byte{'\\'})
	sum, name, found := bytes.Cut(line, []byte("  "))
	if !found || len(sum) != 64 || len(name) == 0 {
		return "", digest, false
	}
	if _, err := hex.Decode(digest[:], sum); err != nil {
		return "", digest, false
	}
	p = string(name)
	if escaped {
		if p, ok = unescapeLine(p); !ok {
			return "", digest, false
		}
	}
	return path.Clean(p), digest, true
}

// unescapeLine undoes escapeLine. Later versions of b3sum also escape carriage returns.
func unescapeLine(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			if i++; i == len(s) {
				return "", false
			}
			switch s[i] {
			case '\\':
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			default:
				return "", false
			}
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
