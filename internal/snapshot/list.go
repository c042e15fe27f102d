package snapshot

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

// list is a text file that gets its name when it is complete.
type list struct {
	root *os.Root
	name string
	file *os.File
	out  *bufio.Writer
	size int64 // bytes
}

func createList(root *os.Root, name string) (*list, error) {
	file, err := root.OpenFile(name+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &list{root: root, name: name, file: file, out: bufio.NewWriterSize(file, 64<<10)}, nil
}

// line writes two words; the second one may hold any bytes. As in b3sum's format, a line with
// escaped bytes begins with a backslash.
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

// keep makes the list durable and gives it its name.
func (l *list) keep() error {
	err := errors.Join(l.out.Flush(), l.file.Sync(), l.file.Close())
	l.file = nil
	if err != nil {
		return err
	}
	return l.root.Rename(l.name+newSuffix, l.name)
}

// keepUnlessEmpty is keep, but an empty list leaves no file.
func (l *list) keepUnlessEmpty() error {
	if l.size > 0 {
		return l.keep()
	}
	return removeFiles(l.root, l.name)
}

// discard removes a list that was not kept.
func (l *list) discard() {
	if l.file != nil {
		l.file.Close()
		_ = l.root.Remove(l.name + newSuffix)
	}
}

// removeFiles removes those files that exist.
func removeFiles(root *os.Root, names ...string) (err error) {
	for _, name := range names {
		if failed := root.Remove(name); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// lines reads a list of digests or of differences. The zero value is empty.
type lines struct {
	file   *os.File
	in     *bufio.Reader
	path   string
	digest [32]byte
	gone   bool  // see goneWord
	before int64 // see beforeWord
	some   bool  // path, and digest or gone, are valid
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

// readLine reads a line that list.line wrote.
func readLine(in *bufio.Reader) (first, second string, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = errBroken
		}
		return "", "", err
	}
	return splitLine(line)
}

// splitLine returns the two words of a line that list.line wrote.
func splitLine(line []byte) (first, second string, err error) {
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

// countWord begins the first line of a list of failures.
const countWord = "count"

// Failures returns how many failed entries a complete snapshot lacks. If visit is not nil, it gets
// each of them with the reason.
func Failures(root *os.Root, name string, visit func(path, why string) error) (int64, error) {
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
	if err != nil {
		return 0, err
	}
	count, err := strconv.ParseInt(text, 10, 64)
	if err != nil || visit == nil {
		return count, err
	}
	return count, eachLine(in, func(why, path string) error { return visit(path, why) })
}

// Links visits the hard links in a complete snapshot: path is another name of the file first.
func Links(root *os.Root, name string, visit func(first, path string) error) error {
	file, err := root.Open(name + linksSuffix)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	return eachLine(in, func(_, both string) error {
		first, path, ok := strings.Cut(both, "\x00")
		if !ok {
			return errBroken
		}
		return visit(first, path)
	})
}

func eachLine(in *bufio.Reader, visit func(first, second string) error) error {
	for {
		first, second, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(first, second)
		}
		if err != nil {
			return err
		}
	}
}
