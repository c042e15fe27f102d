package ledger

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// list is a file that gets its name when it is whole.
type list struct {
	root *os.Root
	name string
	file *os.File
	out  *bufio.Writer
	size int64 // bytes
}

func create(root *os.Root, name string) (*list, error) {
	file, err := root.OpenFile(name+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &list{root: root, name: name, file: file, out: bufio.NewWriterSize(file, 64<<10)}, nil
}

// line writes two words, of which the second may hold anything. As b3sum does, a backslash before the line says that it is escaped.
func (l *list) line(first, second string) error {
	mark := ""
	if strings.ContainsAny(first+second, "\\\n\r") {
		mark, first, second = `\`, escaper.Replace(first), escaper.Replace(second)
	}
	n, err := fmt.Fprintf(l.out, "%s%s  %s\n", mark, first, second)
	l.size += int64(n)
	return err
}

var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")
)

func (l *list) keep() error {
	err := errors.Join(l.out.Flush(), l.file.Sync(), l.file.Close())
	l.file = nil
	if err != nil {
		return err
	}
	return l.root.Rename(l.name+newSuffix, l.name)
}

// keepSome is keep, but of an empty list there is no file.
func (l *list) keepSome() error {
	if l.size > 0 {
		return l.keep()
	}
	return remove(l.root, l.name)
}

// remove removes files, if they are there.
func remove(root *os.Root, names ...string) (err error) {
	for _, name := range names {
		if gone := root.Remove(name); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (l *list) discard() {
	if l.file != nil {
		l.file.Close()
		_ = l.root.Remove(l.name + newSuffix)
	}
}

// lines reads a list of digests, or of what differs from one, in its order. The zero one is empty.
type lines struct {
	file   *os.File
	in     *bufio.Reader
	path   string
	digest [32]byte
	gone   bool  // of what differs: it is not there
	before int64 // see beforeWord
	some   bool
	err    error
}

func openLines(root *os.Root, name string) (*lines, error) {
	file, err := root.Open(name)
	if err != nil {
		return &lines{}, err
	}
	l := &lines{file: file, in: bufio.NewReaderSize(file, 64<<10)}
	l.next()
	return l, nil
}

func (l *lines) close() {
	if l.file != nil {
		l.file.Close()
	}
}

func (l *lines) next() {
	l.some = false
	first, second, err := readLine(l.in)
	if err == nil && first == beforeWord {
		if l.before, err = strconv.ParseInt(second, 10, 64); err == nil {
			first, second, err = readLine(l.in)
		}
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			l.err = err
		}
		return
	}
	if l.gone = first == goneWord; !l.gone {
		if len(first) != 64 {
			l.err = errBroken
			return
		}
		if _, err := hex.Decode(l.digest[:], []byte(first)); err != nil {
			l.err = errBroken
			return
		}
	}
	l.path, l.some = second, true
}

// readLine reads what list.line wrote.
func readLine(in *bufio.Reader) (first, second string, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = errBroken
		}
		return "", "", err
	}
	line = bytes.TrimSuffix(line, []byte{'\n'})
	line, escaped := bytes.CutPrefix(line, []byte{'\\'})
	before, after, ok := strings.Cut(string(line), "  ")
	if !ok || len(line) > maxRecord {
		return "", "", errBroken
	}
	if escaped {
		before, after = unescaper.Replace(before), unescaper.Replace(after)
	}
	return before, after, nil
}

// countWord begins the first line of what failed.
const countWord = "count"

// Failures returns how many entries a complete snapshot lacks since they failed, and visits them with the reasons, unless visit is nil. Most lack
// nothing.
func Failures(root *os.Root, name string, visit func(path, why string) error) (count int64, err error) {
	file, err := root.Open(name + failedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 4<<10)
	word, text, err := readLine(in)
	if err == nil && word != countWord {
		err = errBroken
	}
	if err == nil {
		count, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || visit == nil {
		return count, err
	}
	return count, eachFailure(in, visit)
}

func eachFailure(in *bufio.Reader, visit func(path, why string) error) error {
	for {
		why, path, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(path, why)
		}
		if err != nil {
			return err
		}
	}
}

// Links visits the further names of files of a complete snapshot.
func Links(root *os.Root, name string, visit func(first, path string) error) error {
	file, err := root.Open(name + linksSuffix)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	for {
		_, both, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		first, path, ok := strings.Cut(both, "\x00")
		if err == nil && !ok {
			err = errBroken
		}
		if err == nil {
			err = visit(first, path)
		}
		if err != nil {
			return err
		}
	}
}
