// Command delta sends a changed disk image and a changed SQL dump over an emulated line. The target
// has the older version. It does so with fxfer and with rsync, and prints a table for
// docs/evidence/benchmarks.md. It needs Linux, root, rsync, and several times the space of the
// files.
//
//	go run ./tests/bench/delta [-dir DIR] [-image BYTES] [-dump BYTES] [-only REGEXP]
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	rate, rtt = "100mbit", "40ms"
	rsyncPort = 8730
	unit      = 256 << 10 // size of the parts of an image that contain data, or none
)

func main() {
	if err := measure(); err != nil {
		fmt.Fprintf(os.Stderr, "delta: error: %v\n", err)
		os.Exit(1)
	}
}

// subject is a file in two versions.
type subject struct {
	name  string
	size  int64
	first func(path string, size int64) error
	then  func(old, path string) error
	ways  []way
}

// way is a program with its settings.
type way struct {
	name string
	args []string
}

var (
	inPlace = way{"rsync --inplace", []string{"--no-whole-file", "--inplace"}}
	plain   = way{"rsync", []string{"--no-whole-file"}}
	auto    = way{"fxfer", []string{"--delta", "auto"}}
	all     = way{"fxfer --delta none", []string{"--delta", "none"}}
)

func measure() (err error) {
	dir := flag.String("dir", "", "`folder` for the files, by default a new one that goes at the end")
	image := flag.Int64("image", 10<<30, "`bytes` of the disk image, of which a quarter is data")
	dump := flag.Int64("dump", 2_000_000_000, "`bytes` of the dump")
	only := flag.String("only", "", "only rows that match this `regexp`")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "fxfer-delta-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	}
	b := bench{dir: *dir, fxfer: filepath.Join(*dir, "fxfer")}
	for _, sub := range []string{"old", "new", "in", "client", "server"} {
		if err := os.MkdirAll(filepath.Join(b.dir, sub), 0o755); err != nil {
			return err
		}
	}
	if out, err := exec.Command("go", "build", "-o", b.fxfer, "./cmd/fxfer").CombinedOutput(); err != nil {
		return fmt.Errorf("build fxfer: %w: %s", err, out)
	}
	if err := b.admit(); err != nil {
		return err
	}
	fmt.Printf("| over %s × %s | | time | sent | of the file |\n| --- | --- | ---: | ---: | ---: |\n", rate, rtt)
	for _, s := range []subject{
		{"image, 1 % changed in blocks of 4 KiB", *image, writeImage, changes(4 << 10), []way{auto, inPlace, all}},
		{"image, 1 % changed in blocks of 1 MiB", *image, writeImage, changes(1 << 20), []way{auto, inPlace}},
		{"dump, 1,000 lines inserted and deleted", *dump, writeDump, editLines, []way{auto, plain, all}},
	} {
		if err := b.subject(s, wanted); err != nil {
			return err
		}
	}
	return nil
}

// bench runs the ways.
type bench struct{ dir, fxfer, pin string }

func (b *bench) at(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

// admit makes the server admit the client.
func (b *bench) admit() error {
	c := exec.Command(b.fxfer, "serve", "--listen", "127.0.0.1:0", "--invite", "--share", "in="+b.at("in"))
	c.Env = append(os.Environ(), "FXFER_HOME="+b.at("server"))
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the server: %w", err)
	}
	m := regexp.MustCompile(`:([^:@]+)@`).FindStringSubmatch(url)
	if m == nil {
		return fmt.Errorf("no pin in %q", url)
	}
	b.pin = "ed25519:" + m[1]
	ls := exec.Command(b.fxfer, "ls", strings.TrimSpace(url))
	ls.Env = append(os.Environ(), "FXFER_HOME="+b.at("client"))
	if out, err := ls.CombinedOutput(); err != nil {
		return fmt.Errorf("enrol: %w: %s", err, out)
	}
	return nil
}

func (b *bench) subject(s subject, wanted *regexp.Regexp) error {
	made := false
	for _, w := range s.ways {
		if !wanted.MatchString(s.name + ": " + w.name) {
			continue
		}
		if !made {
			if err := errors.Join(s.first(b.at("old", "f"), s.size), s.then(b.at("old", "f"), b.at("new", "f"))); err != nil {
				return err
			}
			made = true
		}
		seconds, sent, err := b.run(w)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, w.name, err)
		}
		fmt.Printf("| %s | %s | %.1f s | %.1f MB | %.2f %% |\n", s.name, w.name, seconds, sent, sent*1e8/float64(s.size))
	}
	return nil
}

// run puts the old version in place and sends the new one. It returns how long that took and how
// many MB crossed the line.
func (b *bench) run(w way) (seconds, sent float64, err error) {
	if err := copyFile(b.at("old", "f"), b.at("in", "f")); err != nil {
		return 0, 0, err
	}
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(b.at("in", "f"), old, old); err != nil {
		return 0, 0, err
	}
	var right, left string
	if strings.HasPrefix(w.name, "rsync") {
		conf := fmt.Sprintf("port = %d\nuse chroot = no\nuid = 0\ngid = 0\n[in]\npath = %s\nread only = no\n", rsyncPort, b.at("in"))
		if err := os.WriteFile(b.at("rsyncd.conf"), []byte(conf), 0o600); err != nil {
			return 0, 0, err
		}
		right = "rsync --daemon --no-detach --config=" + b.at("rsyncd.conf")
		left = fmt.Sprintf("rsync -a --no-compress %s %s rsync://$FXFER_LAB_RIGHT:%d/in/", strings.Join(w.args, " "), b.at("new", "f"), rsyncPort)
	} else {
		right = fmt.Sprintf("FXFER_HOME=%s %s serve --quiet --share in=%s", b.at("server"), b.fxfer, b.at("in"))
		left = fmt.Sprintf("FXFER_HOME=%s %s send --quiet --pin %s %s %s fxfer://$FXFER_LAB_RIGHT/in/f", b.at("client"), b.fxfer, b.pin, strings.Join(w.args, " "), b.at("new", "f"))
	}
	c := exec.Command(b.fxfer, "lab", "run", "--rate", rate, "--rtt", rtt, "--right", right, "--", "bash", "-c", "sync; TIMEFORMAT='took %R'; time "+left)
	out, err := c.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, out)
	}
	took := regexp.MustCompile(`took ([0-9.]+)`).FindSubmatch(out)
	line := regexp.MustCompile(`left to right [0-9]+ packets, ([0-9.]+) MB`).FindSubmatch(out)
	if took == nil || line == nil {
		return 0, 0, fmt.Errorf("no figures in %s", out)
	}
	seconds, _ = strconv.ParseFloat(string(took[1]), 64)
	sent, _ = strconv.ParseFloat(string(line[1]), 64)
	if out, err := exec.Command("cmp", b.at("new", "f"), b.at("in", "f")).CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, out)
	}
	return seconds, sent, nil
}

func copyFile(from, to string) error {
	out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// writeImage writes a sparse file with data in a quarter of it.
func writeImage(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	bytes, where := rand.NewChaCha8([32]byte{1}), rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, unit)
	if err := f.Truncate(size); err != nil {
		return err
	}
	for off := int64(0); off+unit <= size; off += unit {
		if where.IntN(4) > 0 {
			continue
		}
		_, _ = bytes.Read(buf) // never fails
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return f.Close()
}

// changes overwrites 1 % of the blocks of this size.
func changes(block int64) func(old, path string) error {
	return func(old, path string) error {
		if err := copyFile(old, path); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		bytes, where := rand.NewChaCha8([32]byte{9}), rand.New(rand.NewPCG(3, 4))
		buf := make([]byte, block)
		blocks := int(info.Size() / block)
		for _, b := range where.Perm(blocks)[:blocks/100] {
			_, _ = bytes.Read(buf)
			if _, err := f.WriteAt(buf, int64(b)*block); err != nil {
				return err
			}
		}
		return f.Close()
	}
}

func writeDump(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := rand.New(rand.NewPCG(5, 6))
	w := bufio.NewWriterSize(f, 1<<20)
	n := int64(0)
	for i := 0; n < size; i++ {
		k, err := fmt.Fprintf(w, "INSERT INTO orders VALUES (%d, '%016x', %d, 'customer %d', '%016x');\n", i, r.Uint64(), r.IntN(1000), r.IntN(100_000), r.Uint64())
		if n += int64(k); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// editLines inserts 500 lines and deletes 500 others, spread over the whole file.
func editLines(old, path string) error {
	in, err := os.Open(old)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	w := bufio.NewWriterSize(out, 1<<20)
	lines := bufio.NewScanner(in)
	const edits = 1000
	at, next := int64(0), 0
	for lines.Scan() {
		line := append(bytes.Clone(lines.Bytes()), '\n')
		if at += int64(len(line)); next < edits && at >= info.Size()/edits*int64(next) {
			if next++; next%2 == 0 {
				continue
			}
			if _, err := fmt.Fprintf(w, "INSERT INTO orders VALUES ('new', %d);\n", next); err != nil {
				return err
			}
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), w.Flush(), out.Close())
}
